"""Events by comparison: what happened to containers between two looks at a runtime.

The client uses it where a runtime has no event stream, and after a reconnect, for what happened in between. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeqos.cri.proto import cri_pb2 as cri

Seen = Mapping[str, int]
"""How far each container and sandbox has come: one of the stages below, by id."""

CREATED, STARTED, STOPPED = 0, 1, 2
EVENT_OF_STAGE = {
    CREATED: cri.CONTAINER_CREATED_EVENT,
    STARTED: cri.CONTAINER_STARTED_EVENT,
    STOPPED: cri.CONTAINER_STOPPED_EVENT,
}
STAGE_OF_EVENT = {event: stage for stage, event in EVENT_OF_STAGE.items()}
STAGE_OF_CONTAINER = {
    cri.CONTAINER_CREATED: CREATED,
    cri.CONTAINER_RUNNING: STARTED,
    cri.CONTAINER_EXITED: STOPPED,
    cri.CONTAINER_UNKNOWN: STOPPED,
}
STAGE_OF_SANDBOX = {cri.SANDBOX_READY: STARTED, cri.SANDBOX_NOTREADY: STOPPED}


def look(sandboxes: Iterable[cri.PodSandbox], containers: Iterable[cri.Container]) -> dict[str, int]:
    """The stage of everything in two listings."""
    seen = {sandbox.id: STAGE_OF_SANDBOX[sandbox.state] for sandbox in sandboxes}
    seen |= {container.id: STAGE_OF_CONTAINER[container.state] for container in containers}
    return seen


def passed(before: Seen, after: Seen, *, at_ns: int) -> list[cri.ContainerEventResponse]:
    """Every stage passed between two looks, in the order in which each container passed them."""
    events = []
    for identity, stage in after.items():
        reached = before.get(identity, CREATED - 1)
        events += [_event(identity, EVENT_OF_STAGE[step], at_ns) for step in range(reached + 1, stage + 1)]
    for identity, stage in before.items():
        if identity not in after:
            ended = [EVENT_OF_STAGE[STOPPED]] if stage == STARTED else []
            events += [_event(identity, kind, at_ns) for kind in (*ended, cri.CONTAINER_DELETED_EVENT)]
    return events


def note(seen: dict[str, int], event: cri.ContainerEventResponse) -> bool:
    """Keep a look up to date with an event of the stream; False when the look had it already."""
    identity = event.container_id
    if event.container_event_type == cri.CONTAINER_DELETED_EVENT:
        return seen.pop(identity, None) is not None
    stage = STAGE_OF_EVENT[event.container_event_type]
    if seen.get(identity, CREATED - 1) >= stage:
        return False
    seen[identity] = stage
    return True


def _event(identity: str, kind: cri.ContainerEventType.ValueType, at_ns: int) -> cri.ContainerEventResponse:
    return cri.ContainerEventResponse(container_id=identity, container_event_type=kind, created_at=at_ns)
