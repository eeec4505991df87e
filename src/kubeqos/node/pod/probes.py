"""Startup, liveness and readiness probes: when the next one is due and what its result means. Pure.

The core asks `due_probes` what to run and tells `note_result` what came of it; status asks `is_started` and `is_ready`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from kubeqos.model.objects import ContainerView
from kubeqos.node.pod.effects import RunProbe
from kubeqos.node.pod.observed import SeenContainer, Stage
from kubeqos.node.pod.record import PodRecord, ProbeState

Kind = Literal["startup", "liveness", "readiness"]
KINDS: tuple[Kind, ...] = ("startup", "liveness", "readiness")
FIELDS: dict[Kind, str] = {"startup": "startupProbe", "liveness": "livenessProbe", "readiness": "readinessProbe"}


def probe_of(pod: PodRecord, container: str, kind: Kind) -> dict[str, Any] | None:
    """The probe as the pod describes it, or None."""
    found: dict[str, Any] | None = pod.raw_container(container).get(FIELDS[kind])
    return found


def _running(pod: PodRecord, container: ContainerView) -> SeenContainer | None:
    newest = pod.newest(container.name)
    return newest if newest is not None and newest.stage is Stage.RUNNING else None


def _passed(pod: PodRecord, name: str, kind: Kind, identity: str) -> bool | None:
    state = pod.probes.get((name, kind))
    return state.passed if state is not None and state.id == identity else None


def is_started(pod: PodRecord, container: ContainerView) -> bool:
    """Running, and past its startup probe where it has one."""
    newest = _running(pod, container)
    if newest is None:
        return False
    return probe_of(pod, container.name, "startup") is None or bool(_passed(pod, container.name, "startup", newest.id))


def is_ready(pod: PodRecord, container: ContainerView) -> bool:
    """Whether it serves. An init container that is no sidecar is ready once it has succeeded."""
    newest = pod.newest(container.name)
    if container in pod.view.spec.init_containers and not container.is_sidecar:
        return newest is not None and newest.stage is Stage.EXITED and newest.exit_code == 0
    if newest is None or not is_started(pod, container) or newest.id in pod.kill:
        return False
    if probe_of(pod, container.name, "readiness") is None:
        return True
    return bool(_passed(pod, container.name, "readiness", newest.id))


def due_probes(pod: PodRecord, now: float) -> Iterator[tuple[float, RunProbe]]:
    """Every probe of a running container and when it is to run next; a startup probe holds the others back."""
    for container in pod.containers():
        newest = _running(pod, container)
        if newest is None or newest.id in pod.kill:
            continue
        started = is_started(pod, container)
        for kind in KINDS:
            probe = probe_of(pod, container.name, kind)
            if probe is None or (kind == "startup") == started:
                continue
            state = pod.probes.get((container.name, kind))
            if state is None or state.id != newest.id:
                due = max(newest.started, now if kind != "startup" else 0.0) + probe.get("initialDelaySeconds", 0)
                state = pod.probes[container.name, kind] = ProbeState(newest.id, due)
            yield state.due, RunProbe(pod.uid, container.name, newest.id, kind)


def note_result(pod: PodRecord, effect: RunProbe, success: bool, now: float) -> bool:
    """Count a result; True when the container has just been found dead and must be stopped."""
    state = pod.probes.get((effect.container, effect.probe))
    probe = probe_of(pod, effect.container, effect.probe)
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


def kill_grace(pod: PodRecord, container: str, kind: Kind) -> int | None:
    """A probe may give its container less time to end than the pod does."""
    found: int | None = (probe_of(pod, container, kind) or {}).get("terminationGracePeriodSeconds")
    return found
