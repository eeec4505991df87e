"""The drawings of the documentation, made by the code that they are about.

python -m tools.diagrams            write docs/pictures/*.svg
python -m tools.diagrams --check    fail where one of them is not what the code draws
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kubeqos.codec import decode_yaml_all
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.objects import PodView
from kubeqos.rules.qos import cgroups, podqos
from kubeqos.rules.qos.eviction import Candidate, PodUsage, rank
from kubeqos.scheduler import config
from kubeqos.simulation.run import Simulation
from kubeqos.simulation.scenario import load
from kubeqos.views.chart import svg_charts
from kubeqos.views.machinepicture import machine_picture
from kubeqos.views.outcomes import charts
from kubeqos.views.picture import FAINT, LINE, OWNERS, PAPER, PLATE, Box, Label, Picture, svg
from kubeqos.views.picture import Path as Line

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
Part = Box | Line | Label
GIB = 1 << 30

# ---- A pod's way

WAY = (
    ("cli", "kubectl, kubeqos", "a manifest"),
    ("apiserver", "API server", "checks, defaults, charges quotas, stores"),
    ("scheduler", "scheduler", "fits, scores, preempts, binds"),
    ("node/admission", "node admission", "all managers agree, or none"),
    ("node/cgroups", "cgroups", "tiers, memory protection, weights"),
    ("cri", "container runtime", "sandbox, classes, containers"),
    ("node/updates", "updates", "CPUs move while containers run"),
    ("node/pressure", "pressure", "who goes when memory is gone"),
)
"""Rooms that a pod comes through, what people call them, and what happens there."""


def way() -> Picture:
    """The rooms one below the other, with arrows; those of the node stand on one plate."""
    parts: list[Part] = [Label(16, 26, "The way of a pod", 16, bold=True)]
    top, step = 44.0, 54.0
    first = next(number for number, (room, _, _) in enumerate(WAY) if room.startswith("node"))
    parts.append(Box(10, top + first * step - 7, 540, (len(WAY) - first) * step + 2, PLATE, LINE, 8))
    parts.append(Label(540, top + first * step + 12, "on the node", 12, FAINT, anchor="end"))
    for number, (room, name, what) in enumerate(WAY):
        if not (ROOT / "src/kubeqos" / room).is_dir():
            raise SystemExit(f"there is no room {room}: mend tools/diagrams.py")
        y = top + number * step
        parts.append(Box(24, y, 200, 38, OWNERS[number % len(OWNERS)], "", 6))
        parts.append(Label(124, y + 24, name, 14, PAPER, True, "middle"))
        parts.append(Label(240, y + 24, what, 13))
        if number + 1 < len(WAY):
            parts.append(Line(((124, y + 38), (124, y + step - 2)), FAINT, 1.5, True))
    return Picture(560, top + len(WAY) * step + 6, "The way of a pod through the rooms", tuple(parts))


# ---- From class to cgroup


def classes() -> Picture:
    """Pods of the three classes, and the values that the kernel is given for their first containers."""
    node = cgroups.NodeMemory(8 * GIB, 8 * GIB)
    parts: list[Part] = [Label(16, 26, "From resources to class to cgroup", 16, bold=True)]
    y = 44.0
    for number, raw in enumerate(decode_yaml_all((ROOT / "examples/pod-qos/pods.yaml").read_text())):
        spec = raw["spec"]
        podqos.default_requests(spec)
        pod = PodView.of(raw)
        qos = podqos.effective_class(pod)
        container = pod.spec.containers[0]
        values = cgroups.container_values(pod.spec, container, qos, node, cgroups.CgroupSettings())
        score = cgroups.oom_score_adj(pod.spec, container, qos, node.capacity_bytes)
        asked = container.resources
        lines = [
            f"requests {_amounts(asked.requests)}",
            f"limits {_amounts(asked.limits)}",
        ]
        low, high = (_size(values.unified.get(f"memory.{end}")) for end in ("min", "high"))
        given = [
            f"oom_score_adj {score}, cpu.shares {values.cpu_shares}",
            f"memory.min {low}, memory.high {high}",
            f"memory.max {_size(values.memory_limit_bytes)}",
        ]
        parts.append(Box(10, y, 700, 70, PLATE, LINE, 8))
        parts += [Label(22, y + 30 + 20 * line, text, 12) for line, text in enumerate(lines)]
        parts.append(Box(242, y + 18, 110, 34, OWNERS[number], "", 6))
        parts.append(Label(297, y + 40, str(qos.value), 14, PAPER, True, "middle"))
        parts.append(Line(((354, y + 35), (380, y + 35)), FAINT, 1.5, True))
        parts += [Label(392, y + 21 + 19 * line, text, 12) for line, text in enumerate(given)]
        y += 82
    parts.append(Label(16, y + 12, "On a node with 8 GiB; `kubeqos classify` says the same of any pod.", 12, FAINT))
    return Picture(
        720, y + 26, "Three pods, their QoS classes, and the cgroup values of their containers", tuple(parts)
    )


def _amounts(amounts: object) -> str:
    assert isinstance(amounts, dict)
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "none"


def _size(size: object) -> str:
    if size in (None, "", "max"):
        return "max"
    return f"{int(str(size)) >> 20}Mi" if int(str(size)) else "0"


# ---- An eviction

SECONDS, CAPACITY, LEAST = 60, 4096, 400
GROWING = {"BestEffort": (200, 22), "Burstable": (500, 25), "Guaranteed": (1000, 6)}
"""MiB at the start and more of it every second; the threshold is `LEAST` MiB of `CAPACITY`."""
_ASKED = {
    "BestEffort": {},
    "Burstable": {"requests": {"memory": "600Mi"}},
    "Guaranteed": {"requests": {"cpu": "1", "memory": "1600Mi"}, "limits": {"cpu": "1", "memory": "1600Mi"}},
}


def eviction() -> Picture:
    """Memory of three pods over a minute, and who goes when too little is left, as the ranking of the node decides."""
    used = {name: float(start) for name, (start, _) in GROWING.items()}
    curve: list[tuple[float, float]] = []
    gone: list[tuple[int, str, str]] = []
    for second in range(SECONDS + 1):
        free = CAPACITY - 900 - sum(used.values())
        curve.append((second, free))
        if free < LEAST and (ranked := rank("memory.available", [_candidate(name, used[name]) for name in used])):
            gone.append((second, ranked[0].candidate.name, ranked[0].because))
            del used[ranked[0].candidate.name]
        used = {name: size + GROWING[name][1] for name, size in used.items()}
    return _timeline(curve, gone)


def _candidate(name: str, size: float) -> Candidate:
    pod = PodView.of({"spec": {"containers": [{"name": "c", "resources": _ASKED[name]}]}})
    return Candidate(name, pod.spec, PodUsage(memory_working_set=int(size) << 20))


def _timeline(curve: list[tuple[float, float]], gone: list[tuple[int, str, str]]) -> Picture:
    left, right, top, bottom = 90.0, 700.0, 60.0, 250.0
    most = max(value for _, value in curve)

    def at(second: float, free: float) -> tuple[float, float]:
        return left + (right - left) * second / SECONDS, bottom - (bottom - top) * max(0.0, free) / most

    parts: list[Part] = [Label(16, 26, "An eviction", 16, bold=True), Box(left, top, right - left, bottom - top)]
    for free, name in ((0, "0"), (LEAST, f"{LEAST} MiB"), (most, f"{most:.0f} MiB")):
        y = at(0, free)[1]
        parts.append(Line(((left, y), (right, y)), "#a63c00" if free == LEAST else LINE, 1))
        parts.append(Label(left - 8, y + 4, name, 11, FAINT, anchor="end"))
    parts.append(Label(left + 6, at(0, LEAST)[1] - 5, "evictionHard: memory.available", 11, "#a63c00"))
    parts.append(Line(tuple(at(second, free) for second, free in curve), OWNERS[0], 2))
    for number, (second, name, because) in enumerate(gone):
        x, y = at(second, LEAST)
        parts.append(Box(x - 4, y - 4, 8, 8, OWNERS[1], "", 4))
        parts.append(Label(left, bottom + 38 + 19 * number, f"{second} s: {name} goes: {because}", 12))
    parts.append(Label(left, bottom + 16, "0", 11, FAINT))
    parts.append(Label(right, bottom + 16, f"{SECONDS} s", 11, FAINT, anchor="end"))
    height = bottom + 50 + 19 * len(gone)
    return Picture(720, height, "Free memory of a node over a minute, and who is evicted when", tuple(parts))


# ---- Benchmarks

_RATE = re.compile(r"([\d.,]+)(?:–([\d.,]+))?\s*(/s|ms|s)\b")
_ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<ours>[^|]+) \| (?P<theirs>[^|]+\S) \|$")


def figures(text: str) -> Iterator[tuple[str, float, float, str]]:
    """What the README's table says of both, where both were measured in the same unit: name, ours, theirs, unit."""
    for line in text.partition("## Measured")[2].partition("## Read on")[0].splitlines():
        row = _ROW.match(line)
        found = [_RATE.search(row[one]) for one in ("ours", "theirs")] if row else []
        if len(found) == 2 and found[0] and found[1] and found[0][3] == found[1][3]:
            assert row is not None
            yield row["what"].rstrip(" ¹²"), _middle(found[0]), _middle(found[1]), found[0][3]


def _middle(found: re.Match[str]) -> float:
    ends = [float(one.replace(",", "")) for one in (found[1], found[2]) if one]
    return sum(ends) / len(ends)


def benchmarks() -> Picture:
    """Both figures of every row, as bars; each pair has a scale of its own, as their units differ."""
    parts: list[Part] = [Label(16, 26, "Beside Kubernetes' own code on the same kind of machine", 16, bold=True)]
    y = 48.0
    for what, ours, theirs, unit in figures((ROOT / "README.md").read_text()):
        better = "more is better" if unit == "/s" else "less is better"
        parts.append(Label(16, y + 12, what if len(what) < 92 else f"{what[:90]} …", 12))
        for number, (name, value) in enumerate((("kubeqos", ours), ("Kubernetes", theirs))):
            top = y + 20 + 18 * number
            width = max(2.0, 430 * value / max(ours, theirs))
            parts.append(Label(96, top + 11, name, 11, FAINT, anchor="end"))
            parts.append(Box(102, top, width, 14, OWNERS[0] if name == "kubeqos" else "#9aa7b3", "", 2))
            told = f"{value:,.0f}" if value >= 10 else f"{value:g}"
            parts.append(Label(108 + width, top + 11, f"{told}{'' if unit == '/s' else ' '}{unit}", 11))
        parts.append(Label(704, y + 32, better, 10, FAINT, anchor="end"))
        y += 66
    return Picture(720, y + 4, "Measured figures of kubeqos beside those of Kubernetes", tuple(parts))


# ---- Maps and simulations


def numa_map() -> Picture:
    """The KEPs' machine with pools, owners and reserved CPUs."""
    owners = {
        "reserved": "0-1,40-41",
        "shop/db/main": "2-9",
        "hpc/solver/main": "60-75",
        "pool online": "10-17,42-49",
        "shared": "18-39,50-59,76-79",
    }
    return machine_picture(kep80(), {name: CpuSet.parse(text) for name, text in owners.items()}, "node qrm")


def compared() -> str:
    """The two policies of the page on rehearsals."""
    folder = ROOT / "examples" / "simulate"
    scenario = load(folder / "scenario.yaml")
    policies = ("spread", "pack")
    results = [Simulation(scenario, config.load(folder / f"{name}.yaml")).run(name) for name in policies]
    return svg_charts(charts(results))


DRAWN: dict[str, Callable[[], str]] = {
    "pods-way": lambda: svg(way()),
    "class-to-cgroup": lambda: svg(classes()),
    "eviction": lambda: svg(eviction()),
    "benchmarks": lambda: svg(benchmarks()),
    "numa-map": lambda: svg(numa_map()),
    "simulation": compared,
}


def main(words: list[str]) -> int:
    stale = []
    for name, draw in DRAWN.items():
        path, text = FOLDER / f"{name}.svg", draw()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in words:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    if stale and "--check" in words:
        print(f"not what the code draws: {', '.join(stale)}: run python -m tools.diagrams", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
