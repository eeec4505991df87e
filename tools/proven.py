"""The reference page of what is proven where, read from the marks of the tests themselves.

A test that proves a feature says so: `@pytest.mark.proves("exclusive-cpus")`, or in its module's `pytestmark`. Where it
proves it follows from where it runs: in tests/vm on a booted machine, with the mark `containerd` on this machine's
cgroups, beside an unmodified kubelet where it imports one, else on the simulated runtime. A test that runs in several
homes names them (`on=("simulated", "v1")`). A test that is expected to fail proves nothing: it is listed as not so yet.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.vm.machines import NOT_SHOWN

Table = Callable[[list[str], list[list[str]]], str]

FEATURES = {
    "discovery": "CPUs, cores, NUMA nodes, distances and huge pages of the machine are found",
    "exclusive-cpus": "a Guaranteed pod owns whole CPUs, and nobody else runs there",
    "numa-alignment": "CPUs, memory and pages of a pod lie on one NUMA node, or the pod is refused",
    "pod-cgroups": "weights, quotas and limits of containers, pods and QoS tiers",
    "memory-qos": "memory.min, memory.low and memory.high follow requests and limits, and hold under reclaim",
    "huge-pages": "huge pages go to who asked for them, and to nobody else",
    "systemd-driver": "the pods' cgroups are slices of systemd, and stay as they are when it reloads",
    "oom": "one container is killed for its memory, told and restarted, and its neighbours live",
    "eviction": "under pressure of memory pods go in the order of their classes",
    "resize": "a running pod gets new amounts in place",
    "restart": "an agent that was killed finds its pods as they were",
    "probes-and-hooks": "probes, hooks, logs and last words of containers",
    "class-cpu": "CPU classes: weight, idle and burst",
    "class-memory": "memory classes: protection and throttling",
    "class-blockio": "block I/O classes: rates and weights",
    "class-ulimits": "ulimit classes",
    "class-rdt": "cache and memory bandwidth classes (resctrl)",
    "class-changes": "classes are given, moved, refused and undone as a whole",
    "qrm-pools": "QRM: pools by role, dedicated cores, changes of running pods",
    "cci-claims": "CCI: claims for cores of one's own",
}
KUBELET = "tests.stock.kubelet"
"""Who runs an unmodified kubelet imports it."""
PLACES = {
    "simulated": "simulated",
    "v1": "cgroup v1",
    "v2": "cgroup v2, NUMA (VM)",
    "stock": "stock kubelet",
}


@dataclass(frozen=True, slots=True)
class Proof:
    """One test, one feature, one place. `not_yet` is the reason why it is expected to fail, if it is."""

    feature: str
    place: str
    test: str
    not_yet: str = ""


class WrongMark(Exception):
    """A mark names what is not in the tables above."""


def proofs(tests: Path) -> list[Proof]:
    """Every proof that the tests claim."""
    found: list[Proof] = []
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text()
        if "proves(" in text:
            name = path.relative_to(tests.parent).as_posix()
            found += _proofs_in(name, ast.parse(text))
    return found


def _proofs_in(file: str, tree: ast.Module) -> Iterator[Proof]:
    of_module = [mark for node in tree.body if isinstance(node, ast.Assign) for mark in _module_marks(node)]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        marks = [*of_module, *map(_mark, node.decorator_list)]
        names = {name for name, _ in marks}
        not_yet = next((_words(call, "reason") for name, call in marks if name == "xfail"), [""])[0]
        for name, call in marks:
            if name != "proves" or call is None:
                continue
            places = _words(call, "on") or [_place(file, names, tree)]
            for feature in (str(ast.literal_eval(word)) for word in call.args):
                for place in places:
                    if feature not in FEATURES or place not in PLACES:
                        raise WrongMark(f"{file}: {node.name}: no such feature or place: {feature!r} on {place!r}")
                    yield Proof(feature, place, f"{file}::{node.name}", not_yet)


def _place(file: str, marks: Iterable[str], tree: ast.Module) -> str:
    if file.startswith("tests/vm/"):
        return "v2"
    if any(isinstance(node, ast.ImportFrom) and node.module == KUBELET for node in tree.body):
        return "stock"
    if file.startswith("tests/stock/"):
        raise WrongMark(f"{file}: no kubelet runs there (it does not import {KUBELET}): say `on=`")
    return "v1" if "containerd" in marks else "simulated"


def _module_marks(node: ast.Assign) -> Iterator[tuple[str, ast.Call | None]]:
    if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets):
        elements = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
        yield from map(_mark, elements)


def _mark(node: ast.expr) -> tuple[str, ast.Call | None]:
    """`pytest.mark.NAME` or `pytest.mark.NAME(…)`; anything else has no name."""
    call = node if isinstance(node, ast.Call) else None
    words = ast.unparse(call.func if call else node).split(".")
    return (words[2] if words[:2] == ["pytest", "mark"] and len(words) == 3 else "", call)


def _words(call: ast.Call | None, key: str) -> list[str]:
    for keyword in call.keywords if call else ():
        if keyword.arg == key:
            value = ast.literal_eval(keyword.value)
            return [value] if isinstance(value, str) else list(value)
    return []


def proven_on(tests: Path, table: Table) -> str:
    """The page."""
    found = proofs(tests)
    rows = []
    for feature, about in FEATURES.items():
        cells = [f"`{feature}`", about]
        for place in PLACES:
            here = [one for one in found if (one.feature, one.place) == (feature, place)]
            proven = sum(not one.not_yet for one in here)
            waiting = len(here) - proven
            cells.append((str(proven) if proven else "") + (f" ({waiting} not yet)" if waiting else ""))
        rows.append(cells)
    return "\n\n".join([BEFORE, table(["feature", "what is shown", *PLACES.values()], rows), *_details(found)])


def _details(found: list[Proof]) -> Iterator[str]:
    waiting = [one for one in found if one.not_yet]
    if waiting:
        lines = "\n".join(f"- `{one.feature}`, {PLACES[one.place]}: {one.not_yet} (`{one.test}`)" for one in waiting)
        yield f"## Not so yet\n\nThese tests are expected to fail, and the day they pass they say so.\n\n{lines}"
    shown = "\n".join(f"- {what}: {why}" for what, why in NOT_SHOWN.items())
    yield f"## What no booted machine shows\n\n{shown}"
    yield "## The tests"
    for feature in FEATURES:
        tests = sorted({one.test for one in found if one.feature == feature and not one.not_yet})
        if tests:
            yield f"### {feature}\n\n" + "\n".join(f"- `{test}`" for test in tests)


BEFORE = """\
# What is proven where

How many tests prove a feature, and on what: the simulated runtime; real containerd on a machine with cgroup v1 and one
NUMA node (with the systemd driver: a booted one); a booted machine with cgroup v2, systemd and several NUMA nodes
(`make test-vm`); an unmodified kubelet. An empty cell means that nobody has shown it there, not that it fails.

Nothing here is written by hand: tests carry the mark `proves`, and where a test runs says where it proves it."""
