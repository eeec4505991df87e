"""Owners of CPUs that get others while they run: what a role promises stays true, and a stale plan is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm.plugins.cpu.moving import Moved, moved
from kubeqos.qrm.plugins.cpu.plugin import POOLS_SERVICE, CpuPlugin
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.cpu.statefile import from_json, to_json
from kubeqos.qrm.proto import cpupools_pb2 as pb
from kubeqos.qrm.sdk import Options, running
from kubeqos.qrm.sdk.values import Kind
from kubeqos.topology.answers import Unsatisfiable
from tests.qrm.harness import short_folder
from tests.qrm.test_cpu_plugin import ask, config, cpus, granted


@pytest.fixture
def state() -> CpuState:
    made = CpuState.of(kep80(), config())
    made = granted(made.allocate(ask("p", "pinned", 4)))
    made = granted(made.allocate(ask("s", "storage", 4)))
    return granted(made.allocate(ask("p", "pinned", 1, container="side", kind=Kind.SIDECAR)))


def move(state: CpuState, name: str, after: str, before: str = "") -> CpuState | Unsatisfiable:
    held = CpuSet.parse(before) if before else state.pools.exclusive.get(name, CpuSet())
    return moved(state, {name: Moved(held, CpuSet.parse(after))})


def test_an_owner_moves_and_whoever_follows_it_too(state: CpuState) -> None:
    before = CpuSet.parse(cpus(state, "p"))
    after = granted(move(state, "p/main", "76-79"))
    assert cpus(after, "p") == cpus(after, "p", "side") == "76-79"
    assert before <= after.pools.shared


def test_what_was_moved_is_still_so_after_a_restart(state: CpuState) -> None:
    after = granted(move(state, "p/main", "76-79"))
    restored, repaired = from_json(kep80(), config(), to_json(after))
    assert repaired == [] and cpus(restored, "p") == "76-79"


@pytest.mark.parametrize(
    ("name", "after", "said"),
    [
        ("p/main", "77-80", "80"),
        ("p/main", "76-78", "has 4 CPUs"),
        ("p/main", "73,75,77,79", "has whole cores"),
        ("p/main", "2-5", "online"),
        ("p/side", "76-79", "has no CPUs of its own"),
        ("gone/main", "76-79", "has no CPUs of its own"),
        ("s/main", "76-79", "is bound to NUMA 0"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_moves(state: CpuState, name: str, after: str, said: str) -> None:
    refused = move(state, name, after)
    assert isinstance(refused, Unsatisfiable) and said in str(refused)


def test_a_plan_of_yesterday_is_refused(state: CpuState) -> None:
    refused = move(state, "p/main", "76-79", before="70-73")
    assert isinstance(refused, Unsatisfiable) and "by now" in str(refused)


def test_whole_nodes_are_nobody_elses_to_move() -> None:
    state = granted(
        CpuState.of(kep80(), config("roles: {hpc: {dedicated: true, numa: exclusive}}")).allocate(ask("h", "hpc", 4))
    )
    refused = move(state, "h/main", "40-79")
    assert isinstance(refused, Unsatisfiable) and "whole NUMA nodes" in str(refused)


async def test_over_the_socket_all_or_nothing() -> None:
    plugin = CpuPlugin(kep80(), config())
    plugin.state = granted(plugin.state.allocate(ask("p", "pinned", 4)))
    plugin.state = granted(plugin.state.allocate(ask("q", "pinned", 4)))
    with short_folder() as folder:
        async with running(plugin, Options(folder), plugin.install):
            channel = dial(Path(folder) / "cpu.sock")

            async def asked(**wanted: str) -> pb.PoolsResponse:
                request = pb.MoveOwnersRequest()
                for uid, after in wanted.items():
                    request.owners[f"{uid}/main"].before = cpus(plugin.state, uid)
                    request.owners[f"{uid}/main"].after = after
                return await call(channel, f"/{POOLS_SERVICE}/MoveOwners", request, pb.PoolsResponse, seconds=10)

            before = plugin.state
            for wrong in ("2-5", "nonsense"):
                with pytest.raises(RemoteError):
                    await asked(p="76-79", q=wrong)
                assert plugin.state == before
            answer = await asked(p="76-79", q="72-75")
            assert {one.name: one.cpus for one in answer.pools}["p/main"] == "76-79"
            await channel.close(None)
