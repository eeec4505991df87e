"""Rehearsals in a process of their own: they may take seconds, and a server that others wait for has none to spare.

    python -m kubeqos.dashboard.rehearsal < task > answer

The child gets a task on its standard input (a manifest with the objects of the cluster, these objects alone to make a
scenario from, or a scenario with policies) and writes the answer or the problem. It reads no file, talks to nobody and
changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import islice

import msgspec

from kubeqos.dashboard.present.data import (
    CompareQuestion,
    ComparisonData,
    CurveData,
    FitData,
    PlayedReason,
    PlayedWorkload,
    Problem,
    ScenarioData,
    WhatIfData,
    WhatIfQuestion,
)
from kubeqos.errors import InputError, KubeqosError, RemoteError

SECONDS = 60.0
MOST_POLICIES = 4
MOST_REASONS = 20


class Fit(msgspec.Struct, tag=True, frozen=True):
    """Manifests against a copy of the cluster."""

    question: WhatIfQuestion
    nodes: list[msgspec.Raw]
    pods: list[msgspec.Raw]
    priorities: list[msgspec.Raw]
    stored: list[tuple[str, msgspec.Raw]] | None = None
    """Volume claims and what they lead to, each with its kind; None where they may not be read."""


class Import(msgspec.Struct, tag=True, frozen=True):
    """The cluster as a scenario."""

    nodes: list[msgspec.Raw]
    pods: list[msgspec.Raw]


class Compare(msgspec.Struct, tag=True, frozen=True):
    """A scenario under several policies."""

    question: CompareQuestion


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the child writes: one of these."""

    fit: WhatIfData | None = None
    comparison: ComparisonData | None = None
    scenario: ScenarioData | None = None
    problem: Problem | None = None


async def fitted(
    question: WhatIfQuestion,
    nodes: Sequence[bytes],
    pods: Sequence[bytes],
    priorities: Sequence[bytes],
    stored: Sequence[tuple[str, bytes]] | None,
) -> WhatIfData:
    """Where the pods of a manifest would go."""
    there, here, classes = (list(map(msgspec.Raw, found)) for found in (nodes, pods, priorities))
    volumes = None if stored is None else [(kind, msgspec.Raw(raw)) for kind, raw in stored]
    answer = (await _asked(Fit(question, there, here, classes, volumes))).fit
    assert answer is not None
    return answer


async def imported(nodes: Sequence[bytes], pods: Sequence[bytes]) -> ScenarioData:
    """The cluster as a scenario: it may be changed, and played."""
    answer = (await _asked(Import(*(list(map(msgspec.Raw, found)) for found in (nodes, pods))))).scenario
    assert answer is not None
    return answer


async def compared(question: CompareQuestion) -> ComparisonData:
    """How policies differ on the same day; one alone is that day played."""
    if not 1 <= len(question.policies) <= MOST_POLICIES:
        raise InputError(f"a day is played under 1 to {MOST_POLICIES} policies, and {len(question.policies)} are given")
    answer = (await _asked(Compare(question))).comparison
    assert answer is not None
    return answer


async def _asked(task: Fit | Import | Compare) -> Answered:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubeqos.dashboard.rehearsal"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            written, said = await child.communicate(msgspec.json.encode(task))
    except TimeoutError as error:
        raise RemoteError(
            f"the rehearsal took more than {SECONDS:.0f} s", remedy="make it shorter, or use kubeqos simulate"
        ) from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    try:
        answer = msgspec.json.decode(written, type=Answered)
    except msgspec.DecodeError as error:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise RemoteError(f"the rehearsal ended without an answer: {last}") from error
    if answer.problem is not None:
        told = answer.problem
        raise InputError(told.error, where=told.where or None, remedy=told.remedy or None)
    return answer


# ---- In the child


def main() -> None:
    """Read a task, write its answer."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Fit | Import | Compare)
    try:
        match task:
            case Fit():
                answer = Answered(fit=_fit(task))
            case Import():
                answer = Answered(scenario=_import(task))
            case Compare():
                answer = Answered(comparison=_compare(task.question))
    except KubeqosError as error:
        answer = Answered(problem=Problem(error=error.what, where=error.where or "", remedy=error.remedy or ""))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _fit(task: Fit) -> WhatIfData:
    from kubeqos.codec import decode_json
    from kubeqos.manifests import parse
    from kubeqos.scheduler.reading.snapshot import snapshot
    from kubeqos.scheduler.reading.storage import volumes_in
    from kubeqos.simulation.rehearsal import rehearse_pods
    from kubeqos.views.fitting import pods_of

    manifests = parse(task.question.manifest, "manifest")
    nodes, pods, priorities = (
        [decode_json(bytes(raw)) for raw in found] for found in (task.nodes, task.pods, task.priorities)
    )
    volumes = None
    if task.stored is not None:
        volumes = volumes_in((kind, decode_json(bytes(raw))) for kind, raw in task.stored)
    asked = pods_of(manifests, priorities, task.question.namespace, volumes=volumes)
    if not asked:
        raise InputError("no pods found", where="manifest", remedy="paste a Pod or a workload with a pod template")
    answers = rehearse_pods(snapshot(nodes, pods, volumes=volumes)[0], asked)
    found = [
        FitData(pod=one.pod, fits=one.fits, node=one.node, evicts=list(one.evicts), because=one.because)
        for one in answers
    ]
    return WhatIfData(answers=found, commands={"answers": "kubeqos simulate fit -f manifest.yaml -o wide"})


def _import(task: Import) -> ScenarioData:
    from kubeqos.codec import decode_json, encode_yaml
    from kubeqos.simulation.importing import imported

    objects = [
        {**decode_json(bytes(raw)), "kind": kind}
        for kind, found in (("Node", task.nodes), ("Pod", task.pods))
        for raw in found
    ]
    made = imported(objects)
    commands = {"scenario": "kubeqos import > scenario.yaml"}
    return ScenarioData(scenario=encode_yaml(made.document), not_carried=list(made.lost), commands=commands)


def _compare(question: CompareQuestion) -> ComparisonData:
    # Imported here, in the rehearsal's own process: the server imports this module too, and never simulates.
    from kubeqos.document import parse_document
    from kubeqos.scheduler import config
    from kubeqos.scheduler.core import Profile
    from kubeqos.simulation.run import Simulation, reasons
    from kubeqos.simulation.scenario import parse
    from kubeqos.views import outcomes

    scenario = parse(parse_document(question.scenario, "scenario", InputError))
    results = []
    for name, text in question.policies.items():
        profiles = config.parse(parse_document(text, f"policy {name}")) if text.strip() else (Profile(),)
        results.append(Simulation(scenario, profiles).run(name))
    rows = [[title, *(measure(result) for result in results)] for title, measure in outcomes.compared(results)]
    charts = [
        CurveData(
            title=chart.title,
            unit=chart.unit,
            top=chart.top,
            duration=chart.duration,
            series={name: list(points) for name, points in chart.series.items()},
        )
        for chart in outcomes.charts(results, evictions=True)
    ]
    flags = "".join(f" --policy {name}.yaml" for name, text in question.policies.items() if text.strip())
    verb = "compare" if len(question.policies) > 1 else "run"
    commands = {"comparison": f"kubeqos simulate {verb} scenario.yaml{flags}"}
    return ComparisonData(
        policies=list(question.policies),
        rows=rows,
        columns=list(outcomes.WORKLOAD_COLUMNS),
        workloads=[
            PlayedWorkload(policy=result.name, cells=cells, nodes=outcomes.nodes_of(result, cells[0]))
            for result in results
            for cells in outcomes.workloads(result)
        ],
        reasons=[
            PlayedReason(policy=result.name, pods=count, because=because)
            for result in results
            for because, count in islice(reasons(result), MOST_REASONS)
        ],
        charts=charts,
        commands=commands,
    )


if __name__ == "__main__":
    main()
