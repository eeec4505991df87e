"""Cores beside a kubelet, without one: pods are set, hooks are called as a runtime would, updates are written down.

The machine has eight CPUs, of which the first is kept for the system; the CPU manager gives Guaranteed pods their own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.errors import ConfigurationError, KubeqosError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.cgroups.partitions import EXCLUSIVE, PARTITION
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.plugins.managers import Grant
from kubeqos.stock.agent.adjusting import container_event, pod_event
from kubeqos.stock.agent.report import cores_told
from kubeqos.stock.cores.assembly import make_keeper, read_configuration, refuse_kubelet
from kubeqos.stock.cores.events import ContainerEvent, PodEvent
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.nriruntime import NriRuntime
from tests.qrm.harness import until

CONFIG = """
apiVersion: kubeqos.io/v1alpha1
kind: NodeConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
stateDir: {folder}/state
"""

CCI_INSTEAD = "cpuManagerPolicy: static", "profile: cci"


class Node:
    """One node whose agent can come and go; what runs, and where, is remembered here as a runtime would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods = LocalPods()
        self.sandboxes: dict[str, nri.PodSandbox] = {}
        self.containers: dict[str, nri.Container] = {}
        self.updates: list[tuple[str, str]] = []
        self.stuck = asyncio.Event()
        self.stuck.set()
        (folder / "node.yaml").write_text(CONFIG.format(folder=folder))

    @asynccontextmanager
    async def agent(self, *, waits: bool = True) -> AsyncIterator[CoreKeeper]:
        config = read_configuration(self.folder / "node.yaml", "n1")
        host = Host(self.folder, version=V2)
        keeper = make_keeper(
            config, load_machine("laptop8"), host, None, partial(NriRuntime, update=self.update), lambda: None
        )
        object.__setattr__(keeper.parts, "pods", self.pods)
        self.keeper = keeper
        task = asyncio.create_task(keeper.run())
        keeper.synchronize(self.found())
        try:
            async with asyncio.timeout(30):
                await (keeper.ready.wait() if waits else asyncio.sleep(0))
            yield keeper
            assert keeper.validate() == []
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def found(self) -> list[tuple[PodEvent | None, ContainerEvent]]:
        pods = {one.id: pod_event(one) for one in self.sandboxes.values()}
        return [(pods.get(one.pod_sandbox_id), container_event(one)) for one in self.containers.values()]

    async def update(self, updates: Sequence[nri.ContainerUpdate]) -> Sequence[nri.ContainerUpdate]:
        await self.stuck.wait()
        for one in updates:
            cpus = one.linux.resources.cpu.cpus
            self.containers[one.container_id].linux.resources.cpu.cpus = cpus
            self.updates.append((one.container_id, cpus))
        return ()

    def bind(self, name: str, cpu: str = "", **metadata: Any) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}} if cpu else {}
        spec = {"containers": [{"name": "c", "image": "a", "resources": resources}], "nodeName": "n1"}
        self.pods.set({"metadata": {"name": name, "namespace": "team", "uid": f"u-{name}", **metadata}, "spec": spec})

    async def admitted(self, name: str) -> None:
        await until(f"{name} is admitted", lambda: self.keeper.table.pods[f"u-{name}"].is_admitted)

    async def create(self, name: str, **annotations: str) -> Grant:
        pod = nri.PodSandbox(id=f"s-{name}", name=name, uid=f"u-{name}", namespace="team", annotations=annotations)
        container = nri.Container(id=f"c-{name}", pod_sandbox_id=pod.id, name="c", state=nri.CONTAINER_CREATED)
        container.linux.cgroups_path = f"/kubepods/{name}"
        grant = await self.keeper.create(pod_event(pod), container_event(container))
        self.sandboxes[pod.id] = pod
        container.linux.resources.cpu.cpus = str(grant.properties["cpuset_cpus"])
        container.annotations.update(grant.annotations)
        self.containers[container.id] = container
        return grant

    async def start(self, name: str) -> None:
        pod, container = self.sandboxes[f"s-{name}"], self.containers[f"c-{name}"]
        group = self.folder / "kubepods" / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpuset.cpus").write_text(container.linux.resources.cpu.cpus)
        await self.keeper.start(pod_event(pod), container_event(container))
        container.state = nri.CONTAINER_RUNNING
        self.keeper.started(pod_event(pod), container_event(container))

    async def run(self, name: str, cpu: str = "") -> str:
        self.bind(name, cpu)
        await self.admitted(name)
        await self.create(name)
        await self.start(name)
        return self.cpus(name)

    def end(self, name: str) -> None:
        del self.containers[f"c-{name}"]
        self.keeper.ended(f"c-{name}")

    def cpus(self, name: str) -> str:
        return str(self.containers[f"c-{name}"].linux.resources.cpu.cpus)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_running_pods_leave_cpus_before_somebody_owns_them(node: Node) -> None:
    async with node.agent() as keeper:
        assert await node.run("web") == "0-7"
        own = await node.run("db", "2")
        assert node.updates == [("c-web", str(CpuSet.parse("0-7") - CpuSet.parse(own)))], "told before db was created"
        assert str(keeper.shared.owned()) == own
        free = CpuSet.parse("1-7") - CpuSet.parse(own)
        whole = [cpus for cpus in load_machine("laptop8").cores.values() if cpus <= free]
        told = cores_told(keeper)
        assert told.free == str(free) and sum(one["cores"] for one in told.free_cores) == len(whole)
        node.end("db")
        node.pods.remove("u-db")
        await until("web is back", lambda: node.cpus("web") == "0-7")


async def test_nobody_is_created_on_cpus_that_others_have_not_left(node: Node) -> None:
    async with node.agent():
        await node.run("web")
        node.stuck.clear()
        node.bind("db", "2")
        with pytest.raises(KubeqosError, match=r"still being asked for|have not left CPUs"):
            await node.create("db")
        node.stuck.set()
        await node.admitted("db")
        assert len(CpuSet.parse(str((await node.create("db")).properties["cpuset_cpus"]))) == 2


async def test_who_asks_and_is_not_known_does_not_start_and_who_does_not_ask_does(node: Node) -> None:
    async with node.agent():
        with pytest.raises(KubeqosError, match="has not told of the pod yet"):
            await node.create("storage", **{"kubernetes.io/pod-role": "storage"})
        assert (await node.create("plain")).properties == {"cpuset_cpus": "0-7"}


async def test_who_cannot_have_its_cores_is_told_why(node: Node) -> None:
    async with node.agent():
        await node.run("first", "4")
        node.bind("second", "6")
        with pytest.raises(KubeqosError, match="container 'c' of pod team/second: UnexpectedAdmissionError"):
            await node.create("second")


async def test_a_restart_changes_nothing_and_asks_for_nothing(node: Node) -> None:
    async with node.agent():
        await node.run("web")
        own = await node.run("db", "2")
    told = list(node.updates)
    async with node.agent() as keeper:
        await until("known", lambda: keeper.table.pods["u-db"].is_admitted)
        assert (node.updates, node.cpus("db"), str(keeper.shared.owned())) == (told, own, own)


async def test_who_comes_while_an_agent_takes_over_keeps_off_what_is_owned(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime asks from the moment on that it has told what runs; the ledger is read after that."""
    async with node.agent():
        own = await node.run("db", "2")
    restore = Admission.restore

    async def slow(self: Admission, *found: Any) -> Any:
        await asyncio.sleep(0.2)  # as where plugins are asked
        return await restore(self, *found)

    monkeypatch.setattr(Admission, "restore", slow)
    async with node.agent(waits=False) as keeper:
        assert not keeper.ready.is_set()
        await node.create("plain")
        assert not CpuSet.parse(node.cpus("plain")) & CpuSet.parse(own)


async def test_who_asks_for_nothing_does_not_wait_for_an_agent_that_cannot_take_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "restore", lambda *_: asyncio.Event().wait())
    async with node.agent(waits=False) as keeper, asyncio.timeout(10):
        assert (await node.create("plain")).properties == {"cpuset_cpus": "0-7"}
        assert not keeper.ready.is_set()


async def test_who_owns_nothing_any_more_when_the_agent_is_back_is_held_to_its_limit(node: Node) -> None:
    """The node's settings have changed meanwhile: nobody gives a pod CPUs of its own for its QoS class."""
    async with node.agent():
        await node.run("db", "2")
        quota = node.folder / "kubepods" / "db" / "cpu.max"
        quota.write_text("max 100000")  # as the runtime made it: without
        node.containers["c-db"].linux.resources.cpu.quota.value = -1
    (node.folder / "node.yaml").write_text(CONFIG.format(folder=node.folder).replace(*CCI_INSTEAD))
    async with node.agent() as keeper:
        assert not keeper.shared.owned()
        await until("held", lambda: quota.read_text() == "200000 100000")


async def test_a_lost_ledger_is_rebuilt_from_what_runs(node: Node) -> None:
    async with node.agent():
        own = await node.run("db", "2")
    (node.folder / "state" / "ledger.json").write_text("{")
    async with node.agent() as keeper:
        await until("known", lambda: keeper.table.pods["u-db"].is_admitted)
        assert (node.cpus("db"), str(keeper.shared.owned())) == (own, own)


async def test_who_started_while_the_agent_was_away_is_moved_off(node: Node) -> None:
    async with node.agent():
        own = await node.run("db", "2")
    node.bind("web")
    pod = nri.PodSandbox(id="s-web", name="web", uid="u-web", namespace="team")
    node.sandboxes["s-web"] = pod
    node.containers["c-web"] = nri.Container(id="c-web", pod_sandbox_id="s-web", name="c", state=nri.CONTAINER_RUNNING)
    async with node.agent():
        left = str(CpuSet.parse("0-7") - CpuSet.parse(own))
        await until("moved", lambda: node.cpus("web") == left)


async def test_cpus_stay_owned_while_a_container_of_a_pod_that_is_gone_runs(node: Node) -> None:
    async with node.agent() as keeper:
        own = await node.run("db", "2")
        node.pods.remove("u-db")
        await asyncio.sleep(0)
        assert str(keeper.shared.owned()) == own
        node.end("db")
        await until("given back", lambda: not keeper.shared.owned())
        assert "u-db" not in keeper.table.pods


async def test_who_started_unasked_where_it_belongs_is_in_nobodys_way(node: Node) -> None:
    """Its cgroup has the CPUs that those above it let it have; the runtime, which was not told any, says none."""
    async with node.agent():
        own = await node.run("owner", "2")
    node.containers["c-owner"].linux.resources.cpu.cpus = ""
    group = node.folder / "kubepods" / "owner"
    (group / "cpuset.cpus.effective").write_text(own)
    node.stuck.clear()  # nobody can be told anything meanwhile
    async with node.agent():
        grant = await node.create("plain")
        assert not CpuSet.parse(str(grant.properties["cpuset_cpus"])) & CpuSet.parse(own)
        node.stuck.set()


async def test_a_pod_that_the_api_server_has_forgotten_and_that_still_runs_is_no_riddle(node: Node) -> None:
    """Killed in the midst of the end of two pods, one of which owns CPUs: the agent comes back and knows all."""
    async with node.agent():
        own = await node.run("owner", "2")
        await node.run("plain")
    node.pods.remove("u-owner")
    node.pods.remove("u-plain")
    async with node.agent() as keeper:
        assert not CpuSet.parse(own) & CpuSet.parse(node.cpus("plain"))
        node.end("plain")
        node.end("owner")
        await until("nobody holds anything", lambda: not keeper.admission.holders() and not keeper.table.pods)


async def test_a_pod_that_went_while_the_agent_was_away_holds_nothing(node: Node) -> None:
    async with node.agent():
        await node.run("db", "2")
    node.pods.remove("u-db")
    node.containers.clear()
    async with node.agent() as keeper:
        await until("given back", lambda: not keeper.shared.owned())


async def test_what_a_container_is_to_leave_it_leaves_before_it_runs(node: Node) -> None:
    async with node.agent():
        node.bind("web")
        await node.admitted("web")
        await node.create("web")
        node.stuck.clear()  # the runtime is about to start it, and takes no update
        node.bind("db", "2")
        await until("web is to leave", lambda: node.keeper.updater.pending.of(("u-web", "c")))
        own = node.keeper.shared.owned()
        await node.start("web")
        assert (node.folder / "kubepods/web/cpuset.cpus").read_text() == str(CpuSet.parse("0-7") - own)
        node.stuck.set()
        await until("told, too", lambda: node.cpus("web") == str(CpuSet.parse("0-7") - own))


async def test_a_static_pod_is_known_by_the_uid_of_its_mirror(node: Node) -> None:
    async with node.agent() as keeper:
        node.bind("fixed", "2", uid="u-of-mirror", annotations={"kubernetes.io/config.mirror": "u-fixed"})
        await node.admitted("fixed")
        assert len(CpuSet.parse(str((await node.create("fixed")).properties["cpuset_cpus"]))) == 2
        node.end("fixed")
        node.pods.remove("u-of-mirror")
        await until("given back", lambda: not keeper.shared.owned())


async def test_a_runtime_that_comes_back_without_a_container_has_ended_it(node: Node) -> None:
    async with node.agent() as keeper:
        await node.run("db", "2")
        node.pods.remove("u-db")
        node.containers.clear()
        keeper.synchronize([])
        await until("given back", lambda: not keeper.shared.owned())


def test_a_kubelet_that_pins_by_itself_is_refused(tmp_path: Path) -> None:
    refuse_kubelet(tmp_path)
    state = tmp_path / "cpu_manager_state"
    state.write_text(json.dumps({"policyName": "none"}))
    refuse_kubelet(tmp_path)
    state.write_text(json.dumps({"policyName": "static"}))
    with pytest.raises(ConfigurationError, match="its cpuManagerPolicy is 'static'"):
        refuse_kubelet(tmp_path)


def test_a_configuration_without_managers_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\n")
    with pytest.raises(ConfigurationError, match="no manager of cores is on"):
        read_configuration(tmp_path / "node.yaml", "n1")


async def test_owned_cpus_are_a_partition_of_the_kernel_before_their_owner_runs(node: Node) -> None:
    """Files as Linux 6.7 has them; what the kernel makes of them is seen in a guest (tests/vm/test_partitions.py)."""

    def told(path: str) -> tuple[str, str]:
        folder = node.folder / path
        return (folder / EXCLUSIVE).read_text().strip(), (folder / PARTITION).read_text().strip()

    for path in ("kubepods", "kubepods/db", "kubepods/web"):
        (node.folder / path).mkdir()
        (node.folder / path / EXCLUSIVE).write_text("\n")
        (node.folder / path / PARTITION).write_text("member\n")
    async with node.agent() as keeper:
        await node.run("web")
        node.bind("db", "2")
        await node.admitted("db")
        await node.create("db")
        own = node.cpus("db")
        await node.start("db")
        assert told("kubepods/db") == (own, "root") and told("kubepods") == (own, "member")
        assert told("kubepods/web") == ("", "member")
    async with node.agent() as keeper:
        assert keeper.owners.partitions.reasons == {("u-db", "c"): ""}, "one that comes back finds them"
        await keeper.leave()
        assert told("kubepods/db") == ("", "member") and told("kubepods") == ("", "member")
        await keeper._update()
        assert told("kubepods/db") == (own, "root")
        node.end("db")
        node.pods.remove("u-db")
        await until("given back", lambda: told("kubepods") == ("", "member"))
