"""The row `kubectl get pods` prints: readiness, the one-word status and the restart count of a pod.

The order of the checks is Kubernetes' printer's; people read these words in incident channels, so they must not differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import age_since


@dataclass(slots=True)
class PodRow:
    """What the printer works out about one pod."""

    ready: int = 0
    total: int = 0
    word: str = ""
    restarts: int = 0
    last_restart: str = ""

    def restarts_cell(self, now: float) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({age_since(self.last_restart, now)} ago)"
        return str(self.restarts)


def pod_row(pod: JsonObject) -> PodRow:
    """Work out the row from spec and status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    row = PodRow(total=len(spec.get("containers") or ()) + len(sidecars))
    row.word = status.get("reason") or status.get("phase") or ""
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in _conditions(status)):
        row.word = "SchedulingGated"
    sidecar_row = PodRow()
    initializing = _init_containers(status, spec, row, sidecar_row, sidecars.__contains__)
    if not initializing or _condition_true(status, "Initialized"):
        row.restarts, row.last_restart = sidecar_row.restarts, sidecar_row.last_restart
        _containers(status, row)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            row.word = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            row.word = "Terminating"
    return row


def _init_containers(
    status: JsonObject, spec: JsonObject, row: PodRow, sidecar_row: PodRow, is_sidecar: Callable[[object], bool]
) -> bool:
    """Count init containers; True when one of them still decides the pod's word."""
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        _count_restarts(container, row)
        sidecar = is_sidecar(container.get("name"))
        if sidecar:
            _count_restarts(container, sidecar_row)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            row.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            row.word = "Init:" + _ending(terminated)
        elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            row.word = "Init:" + waiting["reason"]
        else:
            row.word = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _containers(status: JsonObject, row: PodRow) -> None:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        _count_restarts(container, row)
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            row.word = waiting["reason"]
        elif terminated is not None:
            row.word = _ending(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            row.ready += 1
    if row.word == "Completed" and running:
        row.word = "Running" if _condition_true(status, "Ready") else "NotReady"


def _ending(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _count_restarts(container: JsonObject, row: PodRow) -> None:
    row.restarts += container.get("restartCount") or 0
    finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
    row.last_restart = max(row.last_restart, finished)


def _conditions(status: JsonObject) -> Iterator[JsonObject]:
    yield from status.get("conditions") or ()


def _condition_true(status: JsonObject, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in _conditions(status))


def readiness_gates(pod: JsonObject) -> str:
    """`ready/total` of the pod's readiness gates, `<none>` without any."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return "<none>"
    status = pod.get("status") or {}
    passed = sum(_condition_true(status, gate.get("conditionType", "")) for gate in gates)
    return f"{passed}/{len(gates)}"


_COMPLETED = {
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
    "Failed": ("Failed", "The pod failed."),
}


def row_conditions(pod: JsonObject) -> list[JsonObject] | None:
    """Tables mark finished pods so that clients can hide them."""
    found = _COMPLETED.get((pod.get("status") or {}).get("phase", ""))
    if found is None:
        return None
    return [{"type": "Completed", "status": "True", "reason": found[0], "message": found[1]}]
