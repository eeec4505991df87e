"""Run by `test_without` against a copy of the package: a server and its components in one process, as in `kubeqos up`.

Prints what is stored in the end, one object a line. Clock and uids are fixed, so that two runs can be compared.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
import sys
from pathlib import Path

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.api import Submission
from kubeqos.client.events import EventRecorder
from kubeqos.client.resources import PODS
from kubeqos.model.messages import Binding, BindingMetadata

NOW = 1_800_000_000.0


def pod(name: str, cpu: str) -> dict[str, object]:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def main(data: Path) -> None:
    random.seed(7)  # the names of events
    numbers = itertools.count()
    async with ApiServer.start(Settings(data, port=0)) as server:
        server.core.clock = lambda: NOW
        server.core.new_uid = lambda: f"uid-{next(numbers)}"
        api = server.local()
        made = await api.submit(PODS, [Submission(pod(f"p{n}", f"{n % 3}"), "default") for n in range(12)])
        again = await api.submit(PODS, [Submission(pod(f"p{n}", "1"), "default") for n in range(10, 14)])
        bindings = [
            Binding.to_node(f"n{n % 2}", BindingMetadata(f"p{n}", "default", annotations={"why": "it fits"}))
            for n in range(13)
        ]
        asked = [Submission(one, "default", one.metadata.name, "binding") for one in (*bindings, *bindings[:2])]
        bound = await api.submit(PODS, asked)
        recorder = EventRecorder(api, "scheduler", clock=lambda: datetime.datetime.fromtimestamp(NOW, datetime.UTC))
        for n in range(8):
            metadata = {"name": f"p{n}", "namespace": "default", "uid": f"uid-{n}"}
            recorder.record({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, "Scheduled", f"to n{n % 2}")
        running = asyncio.create_task(recorder.run())
        await recorder.flushed()
        running.cancel()
        for refused in (*made, *again, *bound):
            print(refused)
        for prefix in ("/registry/core/pods/", "/registry/core/events/"):
            for stored in server.store.range(prefix).items:
                print(stored.key, stored.revision, stored.value.decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
