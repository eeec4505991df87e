"""Files that the version before the rooms were rebuilt has written: an agent takes them over as if they were its own.

`data/` holds what that version wrote: the ledger of a node with CPU and memory manager, one of QRM in the middle of a
change (`was`: nobody had been told yet), and those of CCI.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cci.manager import CciManager
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.objects import PodView
from kubeqos.node.admission.ledger import FileLedger
from kubeqos.plugins.managers import Grant
from kubeqos.qrm.manager import QosResourceManager
from tests.cci.world import exclusive
from tests.cci.world import pod as claiming
from tests.node.pods import container, pod, resources
from tests.node.updates.told import Told
from tests.node.world import World
from tests.qrm.harness import admitted
from tests.qrm.harness import pod as role_pod

DATA = Path(__file__).parent / "data"


def saved(folder: Path, name: str) -> Any:
    """The state of one manager in an old ledger."""
    folder.mkdir(exist_ok=True)
    shutil.copy(DATA / f"ledger-{name}.json", folder / "ledger.json")
    loaded = FileLedger(folder).load()
    assert loaded.found and not loaded.damaged
    return loaded.managers[name]


@pytest.mark.proves("restart")
async def test_a_node_goes_on_where_the_old_agent_stopped(tmp_path: Path) -> None:
    static = {"cpu_manager_policy": "static", "memory_manager_policy": "static", "reserved_cpus": CpuSet.of(0)}
    async with World(tmp_path, **static) as node:
        web = await node.start(pod("web", uid="uid-web"))
        owner = await node.start(pod("owner", container(resources=resources(cpu="2", memory="1Gi")), uid="uid-owner"))
        await node.halt()
        ledger = node.settings.state_dir / "ledger.json"
        now = json.loads(ledger.read_text())
        shutil.copy(DATA / "ledger.json", ledger)
        assert now == json.loads(ledger.read_text()), "the same pods make the same file"
        updates = _count_updates(node)
        node.events.clear()
        await node.boot()
        assert node.agent.admission.entries.keys() == {web, owner} and not node.events
        assert updates == [], "who has what he should have is told nothing"
        other = await node.start(pod("other", container(resources=resources(cpu="2", memory="1Gi"))))
        sets = [CpuSet.parse(node.running(uid)["main"].resources.cpuset_cpus) for uid in (web, owner, other)]
        assert [str(cpus) for cpus in sets] == ["0-1,6-7", "2-3", "4-5"]
        assert len(updates) == 1


def _count_updates(node: World) -> list[str]:
    found: list[str] = []
    update = node.runtime.update_container_resources

    async def counted(request: Any) -> None:
        found.append(request.container_id)
        await update(request)

    node.runtime.update_container_resources = counted  # type: ignore[method-assign]
    return found


async def test_a_change_that_the_old_agent_had_begun_is_finished(tmp_path: Path) -> None:
    manager = QosResourceManager(machine=laptop8())
    pods = {f"uid-{name}": admitted(role_pod(name, cpu="1")) for name in ("one", "two")}
    assert await manager.restore(saved(tmp_path, "qrm"), pods) == []
    told = Told(laptop8().online)
    running = {
        ("uid-one", "container0"): Grant({"cpuset_cpus": "0-3"}),
        ("uid-two", "container0"): Grant({"cpuset_cpus": "4-7"}),
    }
    told.found(running, manager.grants())
    assert [(one.key[0], str(one.cpus)) for one in told.updates(manager.grants())] == [
        ("uid-one", "0-1"),
        ("uid-two", "2-7"),
    ]
    assert list(told.updates(manager.grants())) == []
    for containers in manager.save()["pods"].values():
        assert "was" not in containers["container0"]


async def test_claims_of_the_old_agent_keep_their_cores(tmp_path: Path) -> None:
    old = json.loads((DATA / "cci_manager_state").read_text())["data"]
    owned = [one for entry in old["entries"] for holding in entry["holdings"] for one in holding["sets"]]
    for one in owned:
        one["whole"] = one["cpuset"]  # what it owns beside its CPUs, which no agent before has known: nothing
    uids = {entry["label"].partition("/")[2]: entry["pod"] for entry in old["entries"]}
    pods = {uids[one.view.metadata.name]: one for one in (claiming("web"), claiming("owner", exclusive(2)))}
    for uid, one in pods.items():
        raw = {**one.raw, "metadata": {**one.raw["metadata"], "uid": uid}}
        pods[uid] = replace(one, raw=raw, view=PodView.of(raw))
    for copied in (True, False):
        folder = tmp_path / str(copied)
        state = saved(folder, "cci")
        if copied:  # else the ledger's copy has to do
            shutil.copy(DATA / "cci_manager_state", folder)
        manager = CciManager(laptop8(), folder)
        assert await manager.restore(state, pods) == []
        assert manager.store.dump() == old
        sets = {key[0]: grant.properties["cpuset_cpus"] for key, grant in manager.grants().items()}
        assert sets == {uids["web"]: "2-7", uids["owner"]: "0-1"}
