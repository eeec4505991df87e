"""Topology decisions are those of the real kubelet: hint merge, CPU allocators, CPU hints, memory manager."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.machine import Machine, NumaNode
from kubeqos.topology.alignment.cpuhints import cpu_hints
from kubeqos.topology.alignment.hints import Hint, Offer, Policy
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.cpus import allocate_cpus
from kubeqos.topology.distributed import take_distributed
from kubeqos.topology.memory import Block, MemoryHold, MemoryState
from kubeqos.topology.packed import take_packed
from tests.conformance.recorded import cases
from tests.topology.strategies import machine_of_rows


def case_id(value: object) -> str:
    return f"id{value['id']}" if isinstance(value, dict) else getattr(value, "name", str(value))


def hint(recorded: list[Any]) -> Hint:
    mask, preferred = recorded
    return Hint(None if mask is None else NumaSet(mask), preferred)


def offers(providers: list[dict[str, Any] | None]) -> list[Offer]:
    return [
        Offer(f"provider{i}", resource, None if hints is None else [hint(h) for h in hints])
        for i, provider in enumerate(providers)
        for resource, hints in (provider or {}).items()
    ]


@pytest.mark.parametrize("case", cases("topology_merge"), ids=case_id)
def test_merge(case: dict[str, Any]) -> None:
    table = case.get("distances")
    merged = merge(
        offers(case["providers"]),
        NumaSet.from_ids(case["nodes"]),
        Policy(case["policy"]),
        closest=(lambda a, b: table[a][b]) if case["prefer_closest"] else None,
    )
    assert (merged.hint, merged.admitted) == (hint(case["hint"]), case["admit"])


def machines_and_cases(name: str) -> list[tuple[Machine, dict[str, Any]]]:
    """Each case with the machine it names; a machine line comes before the first case that uses it."""
    machines: dict[str, Machine] = {}
    found = []
    for line in cases(name):
        if line["kind"] == "machine":
            machines[line["name"]] = machine_of_rows(map(tuple, line["cpus"]), line["name"])
        else:
            found.append((machines[line["machine"]], line))
    return found


def take(machine: Machine, case: dict[str, Any], *, distributed: bool) -> str | None:
    free = CpuSet.parse(case["available"])
    if case["n"] > len(free):
        return None
    spread = case["strategy"] == "spread"
    if distributed:
        group, by_socket = case["group_size"], case["align_by_socket"]
        mask = take_distributed(machine.layout, free.mask, case["n"], group=group, spread=spread, by_socket=by_socket)
    else:
        mask = take_packed(machine.layout, free.mask, case["n"], spread=spread, by_uncore=case["prefer_align_uncore"])
    return str(CpuSet(mask))


def check_allocation(machine: Machine, case: dict[str, Any], *, distributed: bool) -> None:
    answer = take(machine, case, distributed=distributed)
    quirk = case.get("quirk")
    if quirk in ("outside-available", "endless-loop"):  # upstream's answer is wrong or never comes
        assert answer is not None
        cpus = CpuSet.parse(answer)
        assert len(cpus) == case["n"] and cpus <= CpuSet.parse(case["available"])
    elif quirk == "combo-aliasing":
        assert answer == case["clean_result"]
    else:
        assert quirk is None
        assert answer == case["result"]
    if "error" in case:
        refused = allocate_cpus(machine, CpuSet.parse(case["available"]), case["n"])
        assert str(refused) == case["error"]


@pytest.mark.parametrize(("machine", "case"), machines_and_cases("cpu_packed"), ids=case_id)
def test_packed(machine: Machine, case: dict[str, Any]) -> None:
    check_allocation(machine, case, distributed=False)


@pytest.mark.parametrize(("machine", "case"), machines_and_cases("cpu_distributed"), ids=case_id)
def test_distributed(machine: Machine, case: dict[str, Any]) -> None:
    check_allocation(machine, case, distributed=True)


@pytest.mark.parametrize(("machine", "case"), machines_and_cases("cpu_hints"), ids=case_id)
def test_cpu_hints(machine: Machine, case: dict[str, Any]) -> None:
    hints = cpu_hints(
        machine,
        CpuSet.parse(case["available"]),
        case["n"],
        reusable=CpuSet.parse(case["reusable"]),
        align_by_socket=case["align_by_socket"],
    )
    assert list(hints) == [hint(recorded) for recorded in case["hints"]]


def memory_machine(case: dict[str, Any]) -> tuple[Machine, dict[int, dict[str, int]]]:
    nodes = tuple(
        NumaNode(
            node["node"],
            node["memory"],
            {2 << 20: node["hugepages_2Mi_pages"]} if node["has_hugepages_2Mi"] else {},
        )
        for node in case["machine"]
    )
    return Machine((), nodes), {node["node"]: {"memory": node["system_reserved"]} for node in case["machine"]}


def recorded_blocks(blocks: tuple[Block, ...]) -> list[list[Any]]:
    return [[block.resource, block.size, list(block.numa)] for block in blocks]


@pytest.mark.parametrize("case", cases("memory_hints"), ids=case_id)
def test_memory(case: dict[str, Any]) -> None:
    state = MemoryState.of(*memory_machine(case))
    assert {str(node): memory.allocatable for node, memory in state.nodes.items()} == case["allocatable"]
    for step in case["steps"]:
        owner = (step["pod"], step["container"])
        if step["op"] == "remove":
            state = state.release(*owner)
        elif step["guaranteed"]:
            hints = {r: list(h) for r, h in state.hints(*owner, step["request"]).items()}
            assert hints == {r: [hint(h) for h in recorded] for r, recorded in step["hints"].items()}
            after = state.allocate(*owner, step["request"], hint(step["affinity"]), MemoryHold(step["kind"]))
            if "error" in step:
                assert isinstance(after, Unsatisfiable)
                assert f"[memorymanager] {after.reasons[0].detail}" == step["error"]
            else:
                assert isinstance(after, MemoryState), str(after)
                state = after
                assert recorded_blocks(state.blocks(*owner)) == step["blocks"]
        else:  # the manager has no opinion about pods that are not Guaranteed
            assert (step["hints"], step.get("blocks")) == (None, [])
        seen = [
            {"node": n, "assignments": m.assignments, "cells": list(m.group), "free": m.free}
            for n, m in state.nodes.items()
        ]
        assert seen == step["state"]
        assert state.validate() == []
    final: dict[str, dict[str, Any]] = {}
    for pod, container in state.entries:
        final.setdefault(pod, {})[container] = recorded_blocks(state.blocks(pod, container))
    assert final == case["final_assignments"]
