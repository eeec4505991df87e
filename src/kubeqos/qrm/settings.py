"""How a node's QoS resource manager behaves; the flags of KEP-3461 and ours."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kubeqos.qrm.asking import SkipRules

RECONCILE_SECONDS = 3.0
STOP_GRACE_SECONDS = 300.0


class OnError(enum.StrEnum):
    """What becomes of a pod whose resource cannot be allocated."""

    FAIL = "fail"
    LAST_KNOWN_GOOD = "last-known-good"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class QrmSettings:
    """Defaults are those of the KEP where it gives one."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The pods' resource names → the plugins' (`--qos-resource-manager-resource-names-map`)."""
    skip: SkipRules = field(default_factory=SkipRules)
    on_error: Mapping[str, OnError] = field(default_factory=dict)
    built_in: frozenset[str] = frozenset()
    """Resources that a built-in manager of this node hands out; a plugin for one of them is refused."""
    implicit: frozenset[str] = frozenset()
    """Resources whose plugins are asked for every container, for plugins that cannot say so themselves."""
    reconcile_seconds: float = RECONCILE_SECONDS
    """`--qos-resource-manager-reconcile-period`."""
    expected: frozenset[str] = frozenset()
    """Resources that a plugin of this node is to hand out: nobody who asks for one is let in before it registers."""
    deadline_seconds: float | None = None
    stop_grace_seconds: float = STOP_GRACE_SECONDS
    stranger_seconds: float = 60.0
    """How long a plugin may hold something for a pod that the node does not know before it is told to let go."""
    capacity_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something an operator should see; about a pod, or about the node when there is no uid."""

    reason: str
    message: str
    pod_uid: str = ""


EventSink = Callable[[Event], None]
