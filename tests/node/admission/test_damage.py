"""A damaged ledger never stops the agent: what runs is found again, and people are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.checkpoint import Checkpoint
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.node.admission.ledger import FORMAT, VERSION
from tests.node.admission.test_admission import OFFERS, classed, cpuset, guaranteed
from tests.node.pods import container, pod, resources
from tests.node.world import World

DAMAGE = {
    "empty": b"",
    "truncated": b'{"format":"kubeqos-node-ledger","version":1,"checksum":"sha256:',
    "foreign": b'{"policyName":"static","defaultCpuSet":"0-7","entries":{},"checksum":0}',
    "not json": b"\x00\xffnot a ledger",
}


def static_node(folder: Path) -> World:
    policies = {"cpu_manager_policy": "static", "memory_manager_policy": "static"}
    return World(folder, kep80(), OFFERS, reserved_cpus=CpuSet.of(0), **policies)


async def restarted_with(node: World, damage: bytes) -> None:
    await node.halt()
    for file in ("ledger.json", "ledger.json.previous"):
        (node.settings.state_dir / file).write_bytes(damage)
    await node.boot()


@pytest.mark.parametrize("kind", DAMAGE)
async def test_state_is_rebuilt_from_what_runs(tmp_path: Path, kind: str) -> None:
    async with static_node(tmp_path) as node:
        owner = await node.start(pod("owner", guaranteed("6", "10G")))
        classy = await node.start(pod("classy", classed(rdt="gold")))
        shared = await node.start(pod("shared"))
        cpus, mems = cpuset(node, owner), node.running(owner)["main"].resources.cpuset_mems
        ids = {uid: node.running(uid)["main"].id for uid in (owner, classy, shared)}
        await restarted_with(node, DAMAGE[kind])
        assert {uid: node.running(uid)["main"].id for uid in ids} == ids
        assert "kubeqos_node_damaged_checkpoints_total 2.0" in await node.metrics()
        assert "CheckpointDamaged" in node.reasons()
        assert node.agent.cpus is not None and str(node.agent.cpus.exclusive_of(owner, "main")) == cpus
        assert node.agent.memory is not None and str(node.agent.memory.numa_of(owner, "main")) == mems
        assert node.agent.classes is not None and sum(node.agent.classes.used().values()) == 1
        other = await node.start(pod("other", guaranteed("6", "10G")))
        assert not CpuSet.parse(cpuset(node, other)) & CpuSet.parse(cpus)
        assert not CpuSet.parse(cpuset(node, shared)) & CpuSet.parse(cpus)
        for uid in (owner, classy, shared, other):
            await node.end(uid)
        await node.advance(3)
        assert not node.agent.cpus.owned and not node.agent.admission.entries


async def test_a_good_checksum_over_nonsense_is_damage_too(tmp_path: Path) -> None:
    async with static_node(tmp_path) as node:
        uid = await node.start(pod("owner", guaranteed("6", "10G")))
        await node.halt()
        nonsense = Checkpoint(node.settings.state_dir / "ledger.json", format=FORMAT, version=VERSION)
        nonsense.save({"pods": [1, 2], "managers": None})
        await node.boot()
        assert node.status(uid)["phase"] == "Running" and "CheckpointDamaged" in node.reasons()


async def test_a_manager_with_unusable_state_starts_afresh(tmp_path: Path) -> None:
    async with static_node(tmp_path) as node:
        uid = await node.start(pod("web"))
        await node.halt()
        ledger = Checkpoint(node.settings.state_dir / "ledger.json", format=FORMAT, version=VERSION)
        data = ledger.load().data
        assert data is not None
        data["managers"]["cpu"] = {"exclusive": [["only two", "fields"]]}
        ledger.save(data)
        await node.boot()
        assert node.status(uid)["phase"] == "Running"
        assert any("manager cpu starts afresh" in message for _, message in node.events)


async def test_what_went_away_while_the_agent_was_down_is_released(tmp_path: Path) -> None:
    async with static_node(tmp_path) as node:
        owner = await node.start(pod("owner", guaranteed("6", "10G")))
        deleted = await node.start(pod("deleted", container(resources=resources(cpu="2", memory="1G"))))
        await node.halt()
        del node.pods.pods[deleted]  # by force, behind our back
        await node.boot()
        await node.advance(5)
        assert not node.running(deleted) and set(node.running(owner)) == {"main"}
        assert node.agent.cpus is not None and len(node.agent.cpus.owned) == 6
        assert set(node.agent.admission.entries) == {owner}


async def test_a_restart_gives_every_pod_the_same_answer(tmp_path: Path) -> None:
    async with static_node(tmp_path) as node:
        pods = [pod(f"p{n}", guaranteed("9", "10G")) for n in range(10)]
        uids = [await node.start(raw) for raw in pods]
        before = {uid: (node.status(uid)["phase"], node.status(uid).get("reason")) for uid in uids}
        assert sorted(set(before.values())) == [("Failed", "OutOfcpu"), ("Running", None)]
        for _ in range(3):
            await node.halt()
            await node.boot()
        assert {uid: (node.status(uid)["phase"], node.status(uid).get("reason")) for uid in uids} == before
