"""Whether and when a container runs again: restart policies and crash back-off. Pure."""

from __future__ import annotations

from kubeqos.node.pod.observed import SeenContainer
from kubeqos.node.pod.record import (
    FIRST_RESTART_DELAY,
    LONGEST_RESTART_DELAY,
    Backoff,
    ContainerRecord,
    PodRecord,
)

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"


def runs_again(pod: PodRecord, container: ContainerRecord, ended: SeenContainer) -> bool:
    """Whether a container that has ended is to be started again.

    A container's own policy decides, else the pod's; an init container runs until it succeeds, unless the pod says
    Never.
    """
    policy = container.view.restart_policy or pod.view.spec.restart_policy
    if container.is_init and policy == ALWAYS:
        policy = ON_FAILURE
    return policy == ALWAYS or (policy == ON_FAILURE and ended.exit_code != 0)


def restart_at(pod: PodRecord, ended: SeenContainer) -> float:
    """When the next attempt may start: the back-off counts from the end of the last one.

    The first restart is immediate. A container that ran for twice the longest delay starts with a clean record.
    """
    backoff = pod.backoffs.get(_key(ended.name))
    if backoff is None or _expired(backoff, ended.finished):
        return ended.finished
    return ended.finished + backoff.delay


def note_restart(pod: PodRecord, ended: SeenContainer, now: float) -> None:
    """A container is being started again: the next time it will wait longer."""
    key = _key(ended.name)
    backoff = pod.backoffs.get(key)
    if backoff is None or _expired(backoff, ended.finished):
        pod.backoffs[key] = Backoff(FIRST_RESTART_DELAY, now)
    else:
        pod.backoffs[key] = backoff.next(now, LONGEST_RESTART_DELAY)


def crash_message(pod: PodRecord, name: str) -> str:
    delay = pod.backoffs[_key(name)].delay
    return f"back-off {duration_text(delay)} restarting failed container={name} pod={pod.shown}"


def duration_text(seconds: float) -> str:
    """A duration as Go prints it: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _expired(backoff: Backoff, at: float) -> bool:
    return at - backoff.updated > 2 * LONGEST_RESTART_DELAY


def _key(name: str) -> str:
    return f"restart/{name}"
