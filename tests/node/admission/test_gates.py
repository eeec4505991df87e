"""Gates that are turned off and on while pods run: what was promised is given to nobody else, and nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.cci.manager import CciManager
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.admission.fit import NodeFit
from kubeqos.node.admission.ledger import FileLedger
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.transaction import Admission
from kubeqos.plugins.managers import AdmittedPod, ContainerRef, Grant, LiveContainer
from kubeqos.qrm.asking import Placement
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.messages import Allocation
from tests.cci.test_properties import Direct
from tests.cci.world import admitted, cpus, exclusive, pod

MACHINE = laptop8()


def guaranteed(name: str, cpu: str) -> AdmittedPod:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return admitted(name, {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}})


class Life:
    """One life of a node's admission, on the ledger that all of them share."""

    def __init__(self, folder: Path, *managers: Any) -> None:
        fit = NodeFit("n", {}, {"cpu": 8000, "memory": 64 << 30, "pods": 110})
        self.admission = Admission(MACHINE, managers, FileLedger(folder), lambda: fit)

    def cpus(self, one: AdmittedPod) -> CpuSet:
        [(ref, _)] = one.containers()
        return cpus(str(self.admission.grant(ref).properties["cpuset_cpus"]))

    def live(self, *running: AdmittedPod) -> dict[ContainerRef, LiveContainer]:
        """What the runtime says of them."""
        found = {}
        for one in running:
            [(ref, _)] = one.containers()
            grant = self.admission.grant(ref)
            found[ref] = LiveContainer(grant.annotations, str(grant.properties["cpuset_cpus"]))
        return found


def compute(folder: Path) -> CciManager:
    manager = CciManager(MACHINE, folder)
    Direct(manager, MACHINE)
    return manager


async def test_claims_off_and_on_leave_no_double_booking(tmp_path: Path) -> None:
    owner, later, shares = pod("owner", exclusive(2)), guaranteed("later", "2"), pod("shares")
    first = Life(tmp_path, compute(tmp_path))
    assert await first.admission.admit(owner) is None
    own = first.cpus(owner)

    # The gate is off, and the static CPU manager hands out CPUs in its place.
    second = Life(tmp_path, CpuManager(MACHINE, CpuSet()))
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    assert await second.admission.admit(later) is None
    assert await second.admission.admit(shares) is None
    assert not second.cpus(later) & own and not second.cpus(shares) & own, "what was promised is still somebody's"
    assert second.admission.validate() == []

    # And on again, without the other: everybody is where no promise is broken.
    third = Life(tmp_path, compute(tmp_path))
    everybody = {one.uid: one for one in (owner, later, shares)}
    await third.admission.restore(everybody, first.live(owner) | second.live(later, shares))
    assert third.cpus(owner) == own
    assert not third.cpus(later) & own and not third.cpus(shares) & own
    assert third.admission.validate() == []
    assert await third.admission.admit(pod("next", exclusive(4))) is None
    assert third.admission.validate() == []


async def test_cpus_of_strangers_are_free_when_their_pod_has_gone(tmp_path: Path) -> None:
    owner = pod("owner", exclusive(6))
    first = Life(tmp_path, compute(tmp_path))
    assert await first.admission.admit(owner) is None
    second = Life(tmp_path, CpuManager(MACHINE, CpuSet()))
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    refusal = await second.admission.admit(guaranteed("large", "4"))
    assert refusal is not None
    await second.admission.release(owner.uid)
    assert await second.admission.admit(guaranteed("again", "4")) is None


async def test_plugins_off_and_on_leave_no_double_booking(tmp_path: Path) -> None:
    """QRM knows from the ledger alone who holds what: it finds it again, whatever was written meanwhile."""
    owner, later = guaranteed("owner", "2"), guaranteed("later", "2")
    [(ref, _)] = owner.containers()
    qrm = QosResourceManager(machine=MACHINE)
    first = Life(tmp_path, qrm)
    assert await first.admission.admit(owner) is None
    own = Allocation(property="CpusetCpus", node=True, scalar=True, quantity=2.0, result="0,4", exclusive=True)
    assert qrm.allocations.put(qrm.allocations.open(ref, Placement()), "cpu", {"cpu": own}) is None
    await first.admission.recorded()
    saved = FileLedger(tmp_path).load().managers["qrm"]

    second = Life(tmp_path, CpuManager(MACHINE, CpuSet()))
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    assert await second.admission.admit(later) is None
    assert not second.cpus(later) & cpus("0,4")
    kept = FileLedger(tmp_path).load().managers
    assert kept.keys() == {"qrm", "cpu"} and kept["qrm"] == saved

    again = QosResourceManager(machine=MACHINE)
    third = Life(tmp_path, again)
    await third.admission.restore({one.uid: one for one in (owner, later)}, {})
    assert again.allocations.owned() == cpus("0,4") and third.cpus(owner) == cpus("0,4")
    assert third.admission.validate() == []


async def test_claims_are_kept_where_nobody_hands_out_cpus(tmp_path: Path) -> None:
    """The gate is off and the CPU manager's policy is none: everybody else is kept off what was promised."""
    owner, later = pod("owner", exclusive(2)), guaranteed("later", "2")
    first = Life(tmp_path, compute(tmp_path))
    assert await first.admission.admit(owner) is None
    own = first.cpus(owner)
    second = Life(tmp_path)
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    assert await second.admission.admit(later) is None
    assert second.cpus(owner) == own, "also when its container starts again"
    assert second.cpus(later) == MACHINE.online - MACHINE.touched_cores(own)
    await second.admission.release(owner.uid)
    [(ref, _)] = later.containers()
    assert "cpuset_cpus" not in second.admission.grant(ref).properties
    assert FileLedger(tmp_path).load().managers.keys() == {"cci"}


async def test_claims_are_kept_from_resource_plugins(tmp_path: Path) -> None:
    """A plugin knows nothing of them: what it shares is cut, what it gives to one alone is refused for now."""
    owner, later = pod("owner", exclusive(2)), guaranteed("later", "2")
    first = Life(tmp_path, compute(tmp_path))
    assert await first.admission.admit(owner) is None
    own = first.cpus(owner)
    qrm = QosResourceManager(machine=MACHINE)
    second = Life(tmp_path, qrm)
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    assert await second.admission.admit(later) is None
    [(ref, _)] = later.containers()
    shared = Allocation(property="CpusetCpus", node=True, scalar=True, quantity=8.0, result="0-7")
    qrm.allocations.put(qrm.allocations.open(ref, Placement()), "cpu", {"cpu": shared})
    assert second.cpus(later) == cpus("0-7") - MACHINE.touched_cores(own)
    alone = Grant({"cpuset_cpus": "0-7"}, exclusive=cpus("0-7"))
    refusal = second.admission._strangers.refuses((later.uid, "main"), alone)
    assert refusal is not None and refusal.retry
    assert "are still owned by pods of a manager that is turned off" in refusal.message
    await second.admission.release(owner.uid)
    assert second.admission._strangers.refuses((later.uid, "main"), alone) is None


async def test_what_plugins_gave_is_kept_from_claims(tmp_path: Path) -> None:
    owner, wants = guaranteed("owner", "2"), pod("wants", exclusive(2))
    [(ref, _)] = owner.containers()
    qrm = QosResourceManager(machine=MACHINE)
    first = Life(tmp_path, qrm)
    assert await first.admission.admit(owner) is None
    own = Allocation(property="CpusetCpus", node=True, scalar=True, quantity=2.0, result="0,4", exclusive=True)
    assert qrm.allocations.put(qrm.allocations.open(ref, Placement()), "cpu", {"cpu": own}) is None
    await first.admission.recorded()
    second = Life(tmp_path, compute(tmp_path))
    await second.admission.restore({owner.uid: owner}, first.live(owner))
    assert await second.admission.admit(wants) is None
    assert second.cpus(owner) == cpus("0,4") and not second.cpus(wants) & cpus("0,4")
    assert second.admission.validate() == []
    await second.admission.release(owner.uid)
    assert await second.admission.admit(pod("large", exclusive(2))) is None, "they are free again"
