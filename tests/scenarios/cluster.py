"""A cluster for scenarios: a real API server, the scheduler on its own thread, and the real kubectl."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.codec import decode_json, encode_json
from kubeqos.gates import FeatureGates
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from tests.apiserver.live import LiveServer, live_server
from tests.scenarios.kubectl import BINARY as KUBECTL

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")


class ScenarioCluster:
    """What a scenario talks to."""

    def __init__(self, live: LiveServer, home: Path) -> None:
        self.live = live
        self.environment = {**os.environ, "KUBECONFIG": str(live.kubeconfig), "HOME": str(home)}

    def kubectl(self, *words: str, manifest: Any = None, check: bool = True) -> str:
        """Run kubectl; a manifest is given to it on standard input."""
        assert KUBECTL is not None
        text = None if manifest is None else encode_json(manifest).decode()
        done = subprocess.run(
            [KUBECTL, *words],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout + ("" if check else done.stderr)

    def apply(self, *manifests: Any) -> None:
        self.kubectl(
            "apply",
            "--validate=false",
            "-f",
            "-",
            manifest={"apiVersion": "v1", "kind": "List", "items": list(manifests)},
        )

    def get(self, *words: str) -> Any:
        """An object or list as kubectl prints it in JSON."""
        return decode_json(self.kubectl("get", *words, "-o", "json").encode())

    def node(self, name: str, *, cpu: str = "4", qos: Any = None, **labels: str) -> None:
        """A node object without an agent behind it."""
        self.live.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts}
        if qos is not None:
            status["qosResources"] = qos
        answer = self.live.call(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": status},
            {"Content-Type": "application/merge-patch+json"},
        )
        assert answer.code == 200, answer.body
        # New nodes are tainted not-ready until their lifecycle controller sees them ready. Where none runs nobody takes
        # the taint away; where one runs it may have put another in its place already, and kubectl finds none.
        self.kubectl("taint", "node", name, "node.kubernetes.io/not-ready:NoSchedule-", check=False)

    def wait(self, what: str, is_so: Callable[[], Any], seconds: float = 120) -> Any:
        """Poll until something is so; says what it was waiting for when it never is."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = is_so()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"never happened: {what}")

    def pod(self, name: str, namespace: str = "default") -> Any:
        answer = self.live.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return answer.body if answer.code == 200 else None


class Service(Protocol):
    """A part of the control plane that works for an API server."""

    ready: asyncio.Event

    async def run(self) -> None: ...


Part = TypeVar("Part", bound=Service)


@contextmanager
def beside(live: LiveServer, make: Callable[[HttpApi], Part]) -> Iterator[Part]:
    """A part beside the server, on a loop of its own, over HTTP as an administrator."""
    started, stop, box = threading.Event(), asyncio.Event(), list[Part]()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        api = HttpApi.from_kubeconfig(live.kubeconfig)
        service = make(api)
        box.append(service)
        task = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        started.set()
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(60), "it did not start"
    try:
        yield box[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(60)


def scheduler_service(api: HttpApi) -> SchedulerService:
    return SchedulerService(api, Scheduler())


@contextmanager
def scenario_cluster(folder: Path) -> Iterator[ScenarioCluster]:
    home = folder / "home"
    home.mkdir()
    gates = FeatureGates.parse("AllAlpha=true,QOSResourcesStrictNames=false")
    with live_server(folder / "data", gates) as live, beside(live, scheduler_service):
        yield ScenarioCluster(live, home)
