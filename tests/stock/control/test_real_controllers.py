"""Our controllers beside a real kube-apiserver: a crowd at three of them, and an authority that is replaced."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NAMESPACES, SECRETS
from kubeqos.codec import decode_json
from kubeqos.stock.cluster import CLASSES, PODS, QUOTAS
from kubeqos.stock.control.controller import SECRET
from kubeqos.stock.control.registration import MUTATING, VALIDATING, published
from tests.qrm.harness import until
from tests.stock.control.replicas import NAMESPACE, asked, ensured, prepared, replica
from tests.stock.control.rotation import Client, Rotation
from tests.stock.kube_apiserver import free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock

pytestmark = needs_stock("kube-apiserver", "etcd")
REPLICAS, CREATORS, TURNS, CAPACITY = 3, 20, 3, 7
Raw = dict[str, Any]


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as path:
        yield path


@asynccontextmanager
async def cluster(kubeconfig: Path) -> AsyncIterator[HttpApi]:
    """An administrator's client of a server with our kinds and two classes; no webhook is left afterwards."""
    api = HttpApi.from_kubeconfig(kubeconfig, None)
    try:
        await prepared(api)
        for name in ("gold", "bronze"):
            spec = {"resource": "rdt", "class": name, "level": "container"}
            await ensured(api, CLASSES, own("QOSClass", f"rdt.{name}", spec))
        yield api
    finally:
        for resource, name, namespace in (
            (MUTATING, "kubeqos", ""),
            (VALIDATING, "kubeqos", ""),
            (SECRETS, SECRET, NAMESPACE),
        ):
            with suppress(ApiError):
                await api.delete(resource, name, namespace)
        await api.close()


def own(kind: str, name: str, spec: Raw) -> Raw:
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def enforcing(api: HttpApi, name: str) -> None:
    labels = {"qos.kubeqos.io/enforce": "true"}
    await api.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )


async def created(api: HttpApi, namespace: str, name: str, cls: str = "gold") -> str:
    """Whether a pod was taken, or the words with which it was not."""
    metadata = {"name": name, "annotations": {"qos.kubeqos.io/container.main": f"rdt={cls}"}}
    spec = {"containers": [{"name": "main", "image": "a"}]}
    try:
        await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace)
    except ApiError as error:
        return error.message
    return ""


async def bundle_of(api: HttpApi) -> bytes:
    try:
        return published(await api.get(MUTATING, "kubeqos"))
    except ApiError:
        return b""


class Service:
    """What the Service of an installation does: every new connection goes to the next replica."""

    def __init__(self, ports: list[int]) -> None:
        self.taken = dict.fromkeys(ports, 0)
        self._turn = count()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = list(self.taken)[next(self._turn) % len(self.taken)]
        self.taken[port] += 1
        there, back = await asyncio.open_connection("127.0.0.1", port)
        with suppress(OSError):
            await asyncio.gather(self._copied(reader, back), self._copied(there, writer))

    @staticmethod
    async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def controllers(api: HttpApi, kubeconfig: Path, folder: Path) -> AsyncIterator[Service]:
    """Processes of `kubeqos controller` behind one address, each answering."""
    front, *ports = free_ports(1 + REPLICAS)
    service = Service(ports)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(await asyncio.start_server(service, "127.0.0.1", front))
        running = stack.enter_context(ExitStack())
        for number, port in enumerate(ports):
            words = [sys.executable, "-m", "kubeqos.cli.main", "controller", "--kubeconfig", str(kubeconfig)]
            words += ["--port", "0", "--webhook-bind-address", "127.0.0.1", "--webhook-port", str(port)]
            words += ["--webhook-url", f"https://127.0.0.1:{front}"]
            running.enter_context(process(words, folder, f"controller-{number}"))

        async def answers(port: int) -> bool:
            bundle = await bundle_of(api)
            pod = {"metadata": {"name": "p"}, "spec": {"containers": []}}
            with suppress(OSError, ValueError):
                request = {"operation": "CREATE", "namespace": "x", "object": pod}
                return bool(bundle) and bool((await asked(port, "/mutate", bundle, request))["allowed"])
            return False

        for port in ports:
            await until("a replica answers", lambda port=port: answers(port))
        yield service


async def test_twenty_creators_and_three_controllers_never_overrun_a_quota(kubeconfig: Path, tmp_path: Path) -> None:
    async with cluster(kubeconfig) as api, controllers(api, kubeconfig, tmp_path) as service:
        await enforcing(api, "crowd")
        classes = [{"name": "gold", "capacity": CAPACITY}, {"name": "bronze"}]
        quota = own("QOSClassQuota", "q", {"qosResources": {"container": [{"name": "rdt", "classes": classes}]}})
        await api.create(QUOTAS, quota, "crowd")

        async def told() -> tuple[int, int]:
            status = (await api.get(QUOTAS, "q", "crowd")).get("status") or {}
            [usage] = (status.get("qosResourcesUsage") or {}).get("container") or [{"classes": [{"capacity": -1}]}]
            gold = next((one for one in usage["classes"] if one.get("name") == "gold"), {"capacity": -1})
            return gold.get("capacity", 0), len(status.get("reserved") or {})

        async def says(*expected: int) -> bool:
            return await told() == expected

        await until("counted", lambda: says(0, 0))

        # Nobody may come past webhooks that the server does not know yet.
        async def is_judged() -> bool:
            return "there is no class" in await created(api, "crowd", "never", "purple")

        await until("judged", is_judged)

        async def creator(number: int) -> list[str]:
            return [await created(api, "crowd", f"p{number}-{turn}") for turn in range(TURNS)]

        answers = [answer for each in await asyncio.gather(*map(creator, range(CREATORS))) for answer in each]
        assert all(service.taken.values()), "every replica was asked"
        listing = await api.list(PODS, "crowd")
        assert len(listing.items) == answers.count("") == CAPACITY
        assert all("exceeded quota" in answer for answer in answers if answer), answers
        await until("nothing is noted any more", lambda: says(CAPACITY, 0))
        for raw in listing.items[:3]:
            await api.delete(PODS, decode_json(raw)["metadata"]["name"], "crowd", grace_seconds=0)
        await until("given back", lambda: says(CAPACITY - 3, 0))
        again = [await created(api, "crowd", f"again-{turn}") for turn in range(4)]
        assert [bool(answer) for answer in again] == [False, False, False, True], again
        await until("counted again", lambda: says(CAPACITY, 0))


async def test_pods_with_classes_are_created_while_the_authority_is_replaced(kubeconfig: Path) -> None:
    """The namespace depends on the webhook: a handshake that fails is a pod that is refused."""
    async with cluster(kubeconfig) as api:
        rotation = Rotation(api)
        await rotation.begin()
        await enforcing(api, "rotating")
        # Between publishing and signing lies a period, in which the server has to hear of the new authority.
        async with replica(api, "a", now=rotation.now, period=2.0) as controller:
            await until("registered", lambda: bundle_of(api))
            client = Client(rotation, controller.port)
            refused: list[str] = []
            numbers = count()

            async def creator() -> None:
                while True:
                    refused.append(await created(api, "rotating", f"p{next(numbers)}"))
                    await asyncio.sleep(0.05)

            async def is_judged() -> bool:
                return "there is no class" in await created(api, "rotating", "never", "purple")

            await until("judged", is_judged)
            tasks = [asyncio.create_task(client.run()), asyncio.create_task(creator())]
            try:
                await until("shown", lambda: client.shown)
                await rotation.pass_by(client.sees)
                before = len(refused)
                await until("created afterwards", lambda: len(refused) > before + 10)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert client.failed == []
            assert set(refused) == {""}
