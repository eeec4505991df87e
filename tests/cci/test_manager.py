"""The manager through real sockets and the simulated runtime: claims by a driver, standard pods beside them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.errors import ConfigurationError, RemoteError
from kubeqos.gates import FeatureGates
from kubeqos.model.hardware.named import kep80, laptop8
from kubeqos.node.api.events import NodeEvents
from kubeqos.node.config.plugins import plugin_managers
from kubeqos.node.config.settings import NodeSettings
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.topology.alignment.hints import Policy
from tests.cci.world import KEP_CLAIM, Node, admitted, container, cores, cpus, exclusive, pod


async def test_the_claim_of_the_kep_end_to_end(tmp_path: Path) -> None:
    """Five exclusive cores, siblings preferred, one NUMA node, next to a device; twenty shared ones."""
    async with Node(tmp_path) as node, node.driver(Reference(kep80())):
        web = pod("web")
        assert await node.start(web) is None and node.cpus(web) == cpus("0-79")
        hpc = pod("hpc", KEP_CLAIM, **{"example.com/eth1": "1"})
        assert await node.start(hpc) is None
        mine = node.manager.store.entries[hpc.uid, "main"].whole
        assert len(mine) == 6 and mine <= kep80().numa_cpus[1]
        assert kep80().whole_cores(mine) == mine, "two pairs of siblings, and one more whose sibling is nobody else's"
        assert len(node.cpus(hpc)) == 25 and node.memory(hpc) == "1"
        assert node.cpus(web) == cpus("0-79") - mine
        assert node.writes == [("web", str(cpus("0-79") - mine))]
        await node.stop(hpc)
        assert node.cpus(web) == cpus("0-79") == node.available
        node.validate()
        assert node.observed == 10, "every call to the runtime was looked at"


async def test_nodes_run_standard_pods_without_any_driver(tmp_path: Path) -> None:
    """Cluster bootstrap: network, DNS and the driver's own pod need no driver."""
    async with Node(tmp_path, reserved=cpus("0-1")) as node:
        dns = pod("dns")
        assert await node.start(dns) is None
        assert node.cpus(dns) == cpus("2-79"), "the system's own CPUs are nobody's"


async def test_refusals_carry_the_drivers_own_text_and_reserve_nothing(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        refusal = await node.start(pod("big", exclusive(9)))
        assert refusal is not None and (refusal.reason, refusal.retry) == ("CCIAdmissionError", False)
        assert refusal.message == (
            "compute driver reference.cci.kubeqos.io: "
            "not enough cpus available to satisfy request: requested=9, available=8"
        )
        assert node.available == cpus("0-7") and not node.manager.store.entries


async def test_standard_pods_keep_their_minimum(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), standard_minimum=3) as node, node.driver(Reference(laptop8())):
        refusal = await node.start(pod("greedy", exclusive(6)))
        assert refusal is not None
        assert refusal.message == ("standard pods: 2 cpus would be left for pods without claims, at least 3 must stay")
        assert await node.start(pod("odd", exclusive(5))) is not None, "the sixth is nobody else's"
        assert await node.start(pod("modest", exclusive(4))) is None
        node.validate()


async def test_siblings_of_exclusive_cores_go_to_nobody_else(tmp_path: Path) -> None:
    """Seen before: three pods with one exclusive core each ran on the threads of two cores."""
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        web, owners = pod("web"), [pod(f"owner-{number}", exclusive(1)) for number in range(3)]
        for each in (web, *owners):
            assert await node.start(each) is None
        cores = [laptop8().touched_cores(node.cpus(each)) for each in owners]
        assert [len(core) for core in cores] == [2, 2, 2] and len(cores[0] | cores[1] | cores[2]) == 6
        assert node.cpus(web) == cpus("0-7") - cores[0] - cores[1] - cores[2]
        [shown] = node.manager.node_resources()
        assert (shown.capacity, shown.allocatable) == (8, 5), "three siblings are in nobody's requests"
        await node.restart()
        assert node.available == node.cpus(web) and [node.cpus(one) for one in owners] == [
            cpus(n) for n in ("0", "2", "4")
        ]


async def test_single_threads_where_the_machines_owner_wants_them(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), thread_granularity=True) as node, node.driver(Reference(laptop8())):
        owners = [pod(f"owner-{number}", exclusive(1)) for number in range(3)]
        for each in owners:
            assert await node.start(each) is None
        assert node.available == cpus("3-7")
        assert node.manager.node_resources()[0].allocatable == 8
        node.settings = replace(node.settings, thread_granularity=False)
        await node.restart()
        await node.driver_up()
        assert node.available == cpus("3-7"), "what was promised stays as it was promised"
        assert await node.start(pod("full", exclusive(1))) is None
        assert node.available == cpus("3,6-7")
        node.validate()


async def test_shared_cores_of_a_claim_make_room_and_keep_their_number(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        shared = pod("shared", cores("4"))
        assert await node.start(shared) is None
        before = node.cpus(shared)
        assert len(before) == 4
        owner = pod("owner", exclusive(4))
        assert await node.start(owner) is None
        assert node.cpus(owner) == before, "the reference driver packs from the same end"
        assert len(node.cpus(shared)) == 4 and not node.cpus(shared) & before
        refusal = await node.start(pod("more", exclusive(1)))
        assert refusal is not None and "could not keep its shared cores" in refusal.message
        node.validate()


async def test_exclusive_cores_wait_until_everybody_has_left_them(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        web = pod("web")
        await node.start(web)
        owner = pod("owner", exclusive(2))
        [(ref, _)] = owner.containers()
        await node.manager.allocate(owner, ref, None)  # type: ignore[arg-type]
        updates = node.told.updates(node.manager.grants())
        assert next(updates).key == (web.uid, "main")
        for _ in range(2):
            [busy] = node.told.pending.in_the_way(owner.uid, cpus("0-1"))
            assert busy.key == (web.uid, "main") and busy.gives_up == cpus("0-1")
            node.told.pending.failed(busy, RemoteError("no"))
            node.told.pending.retry()
        node.pods[owner.uid] = owner
        await node.apply()
        assert node.told.pending.in_the_way(owner.uid, cpus("0-1")) == [] and node.cpus(web) == cpus("2-7")


async def test_admission_is_idempotent_and_a_restarted_container_keeps_its_cores(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        owner = pod("owner", exclusive(2))
        await node.start(owner)
        before = node.cpus(owner)
        assert await node.admit(owner) is None
        [(ref, _)] = owner.containers()
        assert await node.manager.before_start(owner, ref, "second-life", "/pod") is None
        assert node.manager.store.entries[owner.uid, "main"].container_id == "second-life"
        assert node.cpus(owner) == before


async def test_init_containers_lend_their_cores_to_their_pod(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        six = exclusive(6)
        both = admitted(
            "both",
            container("main", "compute", six),
            claims={"compute": six},
            initContainers=[container("prepare", "compute", six)],
        )
        assert await node.admit(both) is None
        entries = node.manager.store.entries
        assert entries[both.uid, "prepare"].whole == entries[both.uid, "main"].whole
        assert len(node.available) == 2
        node.validate()


async def test_two_claims_of_one_container(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        one = container("main", "fast", exclusive(2))
        one["resources"]["claims"].append({"name": "loose"})
        one["resources"]["requests"]["cpu"] = one["resources"]["limits"]["cpu"] = "5"
        wanted = admitted("mixed", one, claims={"fast": exclusive(2), "loose": cores("3")})
        assert await node.start(wanted) is None
        assert len(node.cpus(wanted)) == 5 and len(node.available) == 6
        await node.stop(wanted)
        assert not node.manager.store.departures and node.available == cpus("0-7")


async def test_claims_must_match_requests_and_limits(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        one = container("main", "compute", exclusive(2))
        one["resources"]["requests"]["cpu"] = "1500m"
        refusal = await node.start(admitted("odd", one, claims={"compute": exclusive(2)}))
        assert refusal is not None and (refusal.reason, refusal.retry) == ("CCIClaimInvalid", False)
        assert refusal.message == (
            'spec.containers[0].resources.requests[cpu]: Invalid value: "1500m": '
            "must be 2, the cores of the container's claims"
        )


async def test_metrics_have_the_names_of_the_kep(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), reserved=cpus("0")) as node, node.driver(Reference(laptop8())):
        await node.start(pod("web"))
        await node.start(pod("owner", exclusive(2)))
        await node.start(pod("greedy", exclusive(9)))
        value = node.manager.metrics.registry.get_sample_value
        by_driver = {"driver": "reference.cci.kubeqos.io"}
        assert value("cci_manager_allocation_requests_total", by_driver) == 2
        assert value("cci_manager_allocation_requests_total", {"driver": ""}) == 1
        assert value("cci_manager_allocation_errors_total", {**by_driver, "reason": "CCIAdmissionError"}) == 1
        assert value("cci_manager_available_cpus") == 5 and value("cci_manager_exclusive_cpus") == 2
        assert value("cci_driver_healthy", by_driver) == 1
        assert value("cci_driver_call_duration_seconds_count", {**by_driver, "method": "CCIAdmit"}) == 2


async def test_pools_stories_and_what_the_node_has(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), reserved=cpus("0")) as node, node.driver(Reference(laptop8())):
        owner = pod("owner", exclusive(2))
        await node.start(owner)
        mine = node.cpus(owner)
        assert node.manager.cpu_pools() == {"reserved": cpus("0"), "shared": cpus("1-7") - mine}
        assert node.manager.story(owner.uid) == [
            f"main: claim owner-compute by driver reference.cci.kubeqos.io: exclusive {mine}"
        ]
        [cpu] = node.manager.node_resources()
        assert (cpu.name, cpu.capacity, cpu.allocatable) == ("cpu", 8, 7)


async def test_standard_pods_resize_and_claims_do_not(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        small, owner = pod("web"), pod("owner", exclusive(2))
        await node.start(small)
        await node.start(owner)
        assert await node.manager.resize(small, small) is None
        grown = container("main", "compute", exclusive(3))
        bigger = admitted("owner", grown, claims=dict.fromkeys(owner.claims, exclusive(3)))
        bigger.raw["metadata"]["uid"] = owner.uid
        wished = AdmittedPod.of(bigger.raw, bigger.claims)
        refusal = await node.manager.resize(owner, wished)
        assert refusal is not None and refusal.reason == "Infeasible"


@pytest.mark.parametrize(
    ("policy", "count", "siblings"),
    [("cci-exclusive", 3, None), ("sibling-cores-required", 4, True), ("no-sibling-cores", 2, False)],
)
async def test_the_annotation_form(tmp_path: Path, policy: str, count: int, siblings: bool | None) -> None:
    machine = laptop8()
    async with Node(tmp_path, machine) as node, node.driver(Reference(machine)):
        one = container("worker")
        one["resources"] = {"requests": {"cpu": str(count)}, "limits": {"cpu": str(count)}}
        prefix = "cci.resources.alpha.kubernetes.io/"
        marks = {f"{prefix}pod": "cci-default", f"{prefix}container.worker": policy}
        wanted = admitted("telco", one, container("sidekick"), annotations=marks)
        assert await node.start(wanted) is None
        entry = node.manager.store.entries[wanted.uid, "worker"]
        assert len(node.cpus(wanted, "worker")) == count
        assert node.cpus(wanted, "sidekick") == machine.online - entry.whole, "cci-default is a standard container"
        if siblings is True:
            assert machine.whole_cores(entry.cpus) == entry.cpus
        if siblings is False:
            assert len(entry.whole) == 2 * count
        node.validate()


async def test_a_policy_that_only_the_driver_knows_is_the_drivers_to_judge(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        one = container()
        one["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
        marks = {"cci.resources.alpha.kubernetes.io/container.main": "other-policy"}
        refusal = await node.start(admitted("odd", one, annotations=marks))
        assert refusal is not None
        assert "policy 'other-policy' is unknown to driver reference.cci.kubeqos.io" in refusal.message


async def test_a_pod_may_say_next_to_which_device_it_wants_to_be(tmp_path: Path) -> None:
    """A NIC is shared: pods align to it without owning it."""
    async with Node(tmp_path) as node, node.driver(Reference(kep80())):
        claims = {"compute": KEP_CLAIM}
        one = container("main", "compute", KEP_CLAIM)
        near = admitted("near", one, claims=claims, annotations={"cci.kubeqos.io/align-to": "eth1"})
        assert await node.start(near) is None
        assert node.manager.store.entries[near.uid, "main"].whole <= kep80().numa_cpus[1]
        lost = admitted("lost", one, claims=claims, annotations={"cci.kubeqos.io/align-to": "eth7"})
        refusal = await node.start(lost)
        assert refusal is not None and not refusal.retry
        assert refusal.message == "this node has no device 'eth7' with a known place (it has: eth0, eth1)"


async def test_admissions_race_and_stay_disjoint(tmp_path: Path) -> None:
    """Twenty pods at once for sixteen cores: eight of two cores are served, each alone, and the others are told no."""
    machine = kep80()
    async with Node(tmp_path, machine, reserved=machine.online - cpus("0-16")) as node, node.driver(Reference(machine)):
        wanted = [pod(f"racer-{number}", exclusive(2)) for number in range(20)]
        answers = await asyncio.gather(*(node.admit(each) for each in wanted))
        winners = [each for each, refusal in zip(wanted, answers, strict=True) if refusal is None]
        assert len(winners) == 8 and node.available == cpus("16")
        assert all(refusal is None or refusal.reason == "CCIAdmissionError" for refusal in answers)
        await asyncio.gather(*(node.manager.release(each.uid) for each in winners))
        assert node.available == cpus("0-16")
        node.validate()


def test_the_gate_decides_whether_a_node_has_the_manager(tmp_path: Path) -> None:
    for text, present in (("CCIResourceManager=true", True), ("CCIResourceManager=false", False)):
        settings = NodeSettings("n1", tmp_path, gates=FeatureGates.parse(text), reserved_cpus=cpus("0"))
        made = plugin_managers(settings, laptop8(), NodeEvents(None, "n1"))
        assert (made.cci is not None) == present and len(made.managers) == present
        if made.cci is not None:
            assert made.cci.settings.reserved == cpus("0")


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ({"cpu_manager_policy": "static", "reserved_cpus": cpus("0")}, "cpuManagerPolicy"),
        ({"memory_manager_policy": "static"}, "memoryManagerPolicy"),
        ({"topology_policy": Policy.RESTRICTED}, "topologyManagerPolicy"),
    ],
)
def test_other_managers_must_be_off(tmp_path: Path, setting: dict[str, Any], name: str) -> None:
    settings = NodeSettings("n1", tmp_path, gates=FeatureGates.parse("CCIResourceManager=true"), **setting)
    with pytest.raises(ConfigurationError, match=f"CCIResourceManager is on, but {name} is"):
        settings.check()


@pytest.mark.parametrize(
    ("reserved", "minimum", "text"),
    [("0-7", 1, "0 CPUs are left for pods"), ("0-3", 5, "4 CPUs are left"), ("9", 1, "reserved CPUs 9 do not exist")],
)
def test_settings_that_starve_standard_pods_are_refused(tmp_path: Path, reserved: str, minimum: int, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        CciManager(laptop8(), tmp_path, CciSettings(reserved=cpus(reserved), standard_minimum=minimum))
