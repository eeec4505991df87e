"""Memory, NICs and knobs: what they give, what they refuse, and that reading them changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubeqos.codec import encode_json
from kubeqos.errors import ConfigurationError
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import kep80
from kubeqos.qrm.plugins.knobs import KnobConfig, KnobPlugin
from kubeqos.qrm.plugins.memory import MemoryConfig, MemoryPlugin
from kubeqos.qrm.plugins.nic import NicConfig, NicPlugin
from kubeqos.qrm.plugins.roles import Numa, Role
from kubeqos.qrm.sdk.values import Kind, Refuse, Request
from kubeqos.topology.alignment.hints import Hint

GIB = 1 << 30
ROLES = {"db": Role(numa=Numa.BIND), "cache": Role(numa=Numa.BIND, knobs={"memory.high": "1000", "OomScoreAdj": -500})}


@pytest.fixture
def memory() -> MemoryPlugin:
    return MemoryPlugin(kep80(), MemoryConfig(system_reserved=GIB, roles=ROLES))


def ask(uid: str, role: str, amount: float, numa: str = "", **more: object) -> Request:
    hint = Hint(NumaSet.parse(numa) if numa else None, True)
    return Request(uid, "memory", amount, role=role, hint=hint, **more)  # type: ignore[arg-type]


def test_t36_shared_pods_cannot_be_promised_more_than_there_is(memory: MemoryPlugin) -> None:
    memory.allocate(ask("a", "", 300 * GIB))
    with pytest.raises(Refuse, match="bytes requested on NUMA 0-1"):
        memory.allocate(ask("b", "", 200 * GIB))
    assert memory.state.entries.keys() == {("a", "main")}


def test_unbound_pods_leave_nodes_that_others_are_bound_to(memory: MemoryPlugin) -> None:
    assert memory.allocate(ask("a", "", GIB))["memory"].result == "0-1"
    assert memory.allocate(ask("b", "db", GIB, numa="0"))["memory"].result == "0"
    assert memory.allocations()["a"]["main"]["memory"].result == "1"
    memory.release("b")
    assert memory.allocations()["a"]["main"]["memory"].result == "0-1"


def test_roles_keep_apart_for_memory_too(memory: MemoryPlugin) -> None:
    memory.allocate(ask("a", "db", GIB, numa="0"))
    assert memory.hints(ask("b", "cache", GIB)) == (Hint(NumaSet.of(1), True),)


def test_knobs_come_with_the_role(memory: MemoryPlugin) -> None:
    given = memory.allocate(ask("a", "cache", GIB, numa="0"))
    assert given["memory-knobs"].result == '{"memory.high":"1000"}'
    assert (given["memory-knobs/OomScoreAdj"].property, given["memory-knobs/OomScoreAdj"].result) == (
        "OomScoreAdj",
        "-500",
    )


def test_sidecars_follow_the_main_containers_node(memory: MemoryPlugin) -> None:
    memory.allocate(ask("a", "db", GIB, numa="1"))
    side = memory.allocate(ask("a", "db", GIB, container="side", kind=Kind.SIDECAR))
    assert side["memory"].result == "1"


def test_t37_reading_twice_leaves_the_state_alone(memory: MemoryPlugin) -> None:
    memory.allocate(ask("a", "db", GIB, numa="0"))
    before = encode_json(memory.save())
    assert memory.allocations() == memory.allocations()
    assert encode_json(memory.save()) == before


def test_memory_survives_a_restart(memory: MemoryPlugin) -> None:
    memory.allocate(ask("a", "db", GIB, numa="0"))
    memory.allocate(ask("b", "", GIB))
    again = MemoryPlugin(kep80(), memory.state.config)
    again.restore(memory.save())
    assert again.state == memory.state
    assert again.save()["machineState"]["memory"]["0"]["Allocated"] == str(GIB)


# ---- NICs


def nic(uid: str, amount: float = 0, numa: str = "", **more: object) -> Request:
    hint = Hint(NumaSet.parse(numa) if numa else None, True)
    return Request(uid, "NIC", amount, role="net", hint=hint, **more)  # type: ignore[arg-type]


def test_many_pods_share_a_nic_until_its_bandwidth_is_sold() -> None:
    plugin = NicPlugin(kep80(), NicConfig(roles=("net",)))
    for number in range(10):
        given = plugin.allocate(nic(f"free-{number}", numa="1"))
        assert given is not None and given.envs == {"AFFINITY_NIC_ADDR_IPV6": "fdbd:dc05:3:155::20"}
    plugin.allocate(nic("paying", 20000, numa="1"))
    assert plugin.hints(nic("next", 20000)) == (Hint(NumaSet.of(0), True),)
    with pytest.raises(Refuse, match="no NIC with 20000 Mbit/s on NUMA 1"):
        plugin.allocate(nic("next", 20000, numa="1"))


def test_other_roles_and_init_containers_get_no_nic() -> None:
    plugin = NicPlugin(kep80(), NicConfig(roles=("net",)))
    assert plugin.hints(Request("a", "NIC", role="other")) is None
    assert plugin.allocate(Request("a", "NIC", role="other")) is None
    assert plugin.allocate(nic("a", kind=Kind.INIT)) is None


def test_a_far_nic_is_second_best_where_that_is_allowed() -> None:
    machine = replace(kep80(), devices=kep80().devices[:1])
    plugin = NicPlugin(machine, NicConfig(restricted=False))
    assert plugin.hints(nic("a")) == (Hint(NumaSet.of(0), True), Hint(NumaSet.of(0, 1), False))
    assert plugin.allocate(nic("a", numa="1")) is not None


def test_nics_survive_a_restart() -> None:
    plugin = NicPlugin(kep80(), NicConfig())
    plugin.allocate(nic("a", 100, numa="1"))
    again = NicPlugin(kep80(), NicConfig())
    again.restore(plugin.save())
    assert again.allocations() == plugin.allocations()


@pytest.mark.parametrize(
    ("nics", "complaint"),
    [({"eth9": {}}, "no interface eth9"), ({"eth0": {"ipv4": "10.0.0"}}, "'10.0.0' does not appear")],
)
def test_wrong_interfaces_are_refused(nics: dict[str, dict[str, str]], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        NicPlugin(kep80(), NicConfig(nics=nics))


# ---- Knobs


def test_knobs_by_role_and_by_default() -> None:
    plugin = KnobPlugin(KnobConfig({"batch": {"io.weight": 10, "cpu_shares": 2}}, {"memory.oom.group": "1"}))
    given = plugin.allocate(Request("a", "knob", role="batch"))
    assert given["knob"].result == '{"io.weight":"10"}'
    assert given["knob/CpuShares"].result == "2"
    assert plugin.allocate(Request("b", "knob"))["knob"].result == '{"memory.oom.group":"1"}'


def test_a_knob_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="knobs of batch: there is no property speed"):
        KnobPlugin(KnobConfig({"batch": {"speed": 1}}))
