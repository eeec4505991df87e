"""What the container runtime says about one pod, as values that decisions can work with.

The shell asks the runtime and makes these from its answers (`node.cri.observer`); the machine compares, never asks.
Times are seconds since the epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct, field

Classes = tuple[tuple[str, str], ...]
"""(resource, class) as assigned, implicit defaults included; the empty class is the system default."""


class Stage(enum.StrEnum):
    """How far a container has come in the runtime."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


class SeenContainer(Struct, frozen=True, tag=True, tag_field="kind", omit_defaults=True):
    """One container instance: the `attempt`-th of its name in its pod."""

    id: str
    name: str
    attempt: int
    stage: Stage
    created: float
    started: float = 0.0
    finished: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_id: str = ""
    classes: Classes = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        return self.stage is not Stage.EXITED


class SeenSandbox(Struct, frozen=True, tag=True, tag_field="kind", omit_defaults=True):
    """One sandbox of a pod; the newest one that is ready is the pod's."""

    id: str
    attempt: int
    ready: bool
    created: float
    ips: tuple[str, ...] = ()
    classes: Classes = ()


class SeenPod(Struct, frozen=True, omit_defaults=True):
    """Everything the runtime holds for one pod."""

    uid: str
    namespace: str
    name: str
    sandboxes: tuple[SeenSandbox, ...] = ()
    containers: tuple[SeenContainer, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.sandboxes and not self.containers

    def newest(self, name: str) -> SeenContainer | None:
        """The newest instance of a container, whether or not it can be started."""
        found = [one for one in self.containers if one.name == name]
        return max(found, key=lambda one: (one.attempt, one.created), default=None)

    @property
    def live(self) -> list[SeenContainer]:
        return [one for one in self.containers if one.stage is not Stage.EXITED]
