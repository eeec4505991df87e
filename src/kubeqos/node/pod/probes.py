"""Startup, liveness and readiness probes: when the next one is due and what its result means. Pure.

The machine asks `due_probes` what to run and tells `note_result` what came of it; what follows for a container
(`started`, `ready`) its record says.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeqos.node.pod.effects import Raw, RunProbe
from kubeqos.node.pod.observed import SeenContainer, Stage
from kubeqos.node.pod.record import ContainerRecord, PodRecord, ProbeKind, ProbeState


def due_probes(
    pod: PodRecord, container: ContainerRecord, newest: SeenContainer, now: float
) -> Iterator[tuple[float, RunProbe]]:
    """Every probe of a running container and when it is to run next; a startup probe holds the others back."""
    if newest.stage is not Stage.RUNNING or newest.id in pod.kill:
        return
    name = container.view.name
    for kind, probe in container.probes.items():
        if (kind == "startup") == container.started:
            continue
        state = pod.probes.get((name, kind))
        if state is None or state.id != newest.id:
            # The others begin when the container has started, which may be long after it was.
            since = newest.started if kind == "startup" else max(newest.started, now)
            state = pod.probes[name, kind] = ProbeState(newest.id, since + probe.get("initialDelaySeconds", 0))
        yield state.due, RunProbe(pod.uid, name, newest.id, kind)


def note_result(pod: PodRecord, effect: RunProbe, success: bool, now: float) -> bool:
    """Count a result; True when the container has just been found dead and must be stopped."""
    state = pod.probes.get((effect.container, effect.probe))
    probe = _probe(pod, effect.container, effect.probe)
    if state is None or state.id != effect.id or probe is None:
        return False
    state.due = now + probe.get("periodSeconds", 10)
    if success:
        state.successes, state.failures = state.successes + 1, 0
        if state.successes >= probe.get("successThreshold", 1):
            state.passed = True
        return False
    state.successes, state.failures = 0, state.failures + 1
    if state.failures < probe.get("failureThreshold", 3):
        return False
    state.passed = False
    return effect.probe != "readiness"


def kill_grace(pod: PodRecord, container: str, kind: ProbeKind) -> int | None:
    """A probe may give its container less time to end than the pod does."""
    found: int | None = (_probe(pod, container, kind) or {}).get("terminationGracePeriodSeconds")
    return found


def _probe(pod: PodRecord, name: str, kind: ProbeKind) -> Raw | None:
    container = pod.containers.get(name)
    return container.probes.get(kind) if container is not None else None
