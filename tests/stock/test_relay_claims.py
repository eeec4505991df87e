"""A claim for a core before a runtime without NRI: a real kube-apiserver has it, Debian's containerd 1.6 runs the pods.

What scheduler and kubelet would do the test does: allocate the claim, have it prepared, create and start containers.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.plugins.proto import dra_pb2 as dra
from kubeqos.stock.agent.agent import Settings
from kubeqos.stock.agent.relaying import RelayAgent, start
from kubeqos.stock.cluster import DEVICE_CLAIMS, DEVICE_SLICES
from kubeqos.stock.cores.devices import DRIVER
from kubeqos.stock.cores.dra import SERVICE
from kubeqos.stock.installer import install
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.relay.processes import Pod, connect
from tests.qrm.harness import until
from tests.stock.kube_apiserver import kube_apiserver, process
from tests.stock.needs import needs_stock

pytestmark = [
    *needs_stock("kube-apiserver", "etcd", root=True),
    pytest.mark.skipif(missing() is not None, reason=f"real containerd: {missing()}"),
]
MACHINE = read_machine(Path("/sys"), name="n1")
CORE = max(MACHINE.cores)
OWN, REST = str(MACHINE.cores[CORE]), str(MACHINE.online - MACHINE.cores[CORE])
WHOLE = {"cpu": "1", "memory": "64Mi"}
Raw = dict[str, Any]


class Node:
    def __init__(self, runtime: Containerd, api: HttpApi) -> None:
        self.runtime, self.api, self.folder = runtime, api, runtime.folder
        self.registry = self.folder / "c" / "plugins_registry"
        self.registry.mkdir(parents=True)
        (self.folder / "classes.yaml").write_text("resources: {}\n")
        kind = "apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\nprofile: cci\n"
        (self.folder / "node.yaml").write_text(f"{kind}stateDir: {self.folder / 'c'}\n")
        self.settings = Settings(
            "n1",
            self.folder / "classes.yaml",
            LocalMachine(Host(), self.folder / "resctrl"),
            nri=self.folder / "nri.sock",
            cores=self.folder / "node.yaml",
            kubelet=self.folder / "k",
            relay=self.folder / "relay.sock",
            runtime=runtime.socket,
            state=self.folder / "relay.json",
        )

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[RelayAgent]:
        agent = await start(self.api, self.settings)
        assert isinstance(agent, RelayAgent) and agent.cores is not None
        task = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(60):
                await agent.ready.wait()
            drivers = agent.cores.keeper.parts.plugins.drivers
            await until("the driver is there", lambda: bool(list(drivers())))
            yield agent
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def bound(self, name: str, **more: Any) -> Raw:
        container = {"name": "main", "image": "a", "resources": more.pop("resources", {})}
        spec = {"containers": [container], "nodeName": "n1", **more}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        return await self.api.create(PODS, body, "default")

    async def claimed(self) -> Raw:
        wanted = {"name": "cores", "exactly": {"deviceClassName": DRIVER}}
        raw = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one-core"}}
        return await self.api.create(DEVICE_CLAIMS, {**raw, "spec": {"devices": {"requests": [wanted]}}}, "default")

    async def allocated(self, claim: Raw, pod: Raw) -> Raw:
        """As a scheduler does."""
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        result = {"request": "cores", "driver": DRIVER, "pool": "n1", "device": f"core-{CORE}"}
        status: Raw = {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}}
        status["reservedFor"] = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]
        return await self.api.update(DEVICE_CLAIMS, {**claim, "status": status}, subresource="status")

    async def prepared(self, claim: Raw) -> dra.NodePrepareResourceResponse:
        """As a kubelet does."""
        uid = claim["metadata"]["uid"]
        request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="default", uid=uid, name="one-core")])
        socket = self.folder / "k" / "plugins_registry" / f"{DRIVER}-reg.sock"
        await until("the driver serves", socket.exists)
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/NodePrepareResources",
                request_serializer=dra.NodePrepareResourcesRequest.SerializeToString,
                response_deserializer=dra.NodePrepareResourcesResponse.FromString,
            )
            return (await call(request, timeout=60)).claims[uid]

    async def started(self, pod: Raw, socket: Path) -> str:
        def work() -> str:
            with connect(socket) as stub:
                made = Pod(stub, self.runtime.cgroup_parent)
                made.config.metadata.name, made.config.metadata.uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                made.run()
                return made.start(made.create("main"))

        return await asyncio.to_thread(work)

    def cpus(self, container_id: str) -> str:
        return self.runtime.cgroup_value("cpuset.cpus", container_id)


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    with ExitStack() as stack:
        runtime = stack.enter_context(running_containerd(Path(tempfile.mkdtemp(prefix="kq-"))))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kq-")))
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        async with AsyncExitStack() as closing:
            api = HttpApi.from_kubeconfig(kubeconfig)
            closing.push_async_callback(api.close)
            _ = [line async for line in install(api, "kubeqos:test", {})]
            await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
            made = Node(runtime, api)
            words = [sys.executable, "-m", "kubeqos.cli.main", "driver", "reference", "--registry", str(made.registry)]
            stack.enter_context(process(words, folder, "driver"))
            yield made


async def test_a_claims_core_is_its_pods_alone_without_nri() -> None:
    async with node() as here:
        through = here.settings.relay
        assert through is not None
        async with here.agent():
            await until("published", lambda: _some(here.api))
            plain = await here.started(await here.bound("plain"), through)
            assert here.cpus(plain) == str(MACHINE.online)
            claim = await here.claimed()
            resources = {"requests": WHOLE, "limits": WHOLE, "claims": [{"name": "compute"}]}
            claims = [{"name": "compute", "resourceClaimName": "one-core"}]
            pod = await here.bound("solver", resources=resources, resourceClaims=claims)
            claim = await here.allocated(claim, pod)
            answer = await here.prepared(claim)
            assert (answer.error, [one.device_name for one in answer.devices]) == ("", [f"core-{CORE}"])
            assert here.cpus(plain) == REST, "it left before the claim was prepared"
            solver = await here.started(pod, through)
            assert here.cpus(solver) == OWN, "the core that the scheduler chose"
            [told] = (await here.api.get(DEVICE_CLAIMS, "one-core", "default"))["status"]["devices"]
            assert told["data"]["cpus"] == OWN
        late = await here.started(await here.bound("late"), here.runtime.socket)  # while nobody is asked
        async with here.agent() as agent:
            await until("moved off", lambda: here.cpus(late) == REST)
            assert (here.cpus(plain), here.cpus(solver)) == (REST, OWN)
            assert agent.cores is not None and agent.cores.keeper.validate() == []


async def _some(api: HttpApi) -> bool:
    return bool((await api.list(DEVICE_SLICES)).items)
