"""Sandboxes and containers of a simulated runtime, as the core keeps them. Pure data."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated.process.program import SERVER, Program
from kubeqos.cri.simulated.process.script import NO_SCRIPT, Script
from kubeqos.cri.simulated.process.usage import NS, Usage

KILLED = 137  # 128 + SIGKILL
OOM_KILLED = "OOMKilled"


class State(enum.IntEnum):
    """Where a container stands.

    CREATED → RUNNING → EXITED, and any of them → gone when it is removed
    """

    CREATED = cri.CONTAINER_CREATED
    RUNNING = cri.CONTAINER_RUNNING
    EXITED = cri.CONTAINER_EXITED


@dataclass(slots=True)
class Sandbox:
    """One pod's sandbox. `classes` holds what was asked for, `fixed_classes` the defaults that can change no more."""

    id: str
    config: cri.PodSandboxConfig
    runtime_handler: str
    created_ns: int
    ip: str
    classes: dict[str, str]
    script: Script = NO_SCRIPT
    ready: bool = True
    fixed_classes: Mapping[str, str] | None = None
    containers: list[str] = field(default_factory=list)
    name: tuple[str, str, str, int] = field(init=False)
    """What no other sandbox may be called: namespace, name and uid of its pod, and the attempt."""

    def __post_init__(self) -> None:
        meta = self.config.metadata
        self.name = (meta.namespace, meta.name, meta.uid, meta.attempt)


@dataclass(frozen=True, slots=True)
class Ending:
    """When and how a container ends, or has ended."""

    at_ns: int
    code: int
    reason: str
    message: str = ""


@dataclass(slots=True)
class Container:
    """One container. `plan` counts replannings, so that an outdated timer can tell that it is.

    `limited_ns` is since when the present limits hold: memory that is above a new, lower limit is so from then on.
    """

    id: str
    sandbox_id: str
    config: cri.ContainerConfig
    resources: cri.LinuxContainerResources
    classes: dict[str, str]
    created_ns: int
    log_path: str = ""
    pid: int = 0
    script: Script = NO_SCRIPT
    program: Program = SERVER
    state: State = State.CREATED
    started_ns: int = 0
    limited_ns: int = 0
    ended: Ending | None = None
    stopping: Ending | None = None
    usage: Usage | None = None
    outputs_done: int = 0
    plan: int = 0
    fixed_classes: Mapping[str, str] | None = None
    """Implicit classes that cannot change any more, from the start on."""
    image_id: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """What commands wrote there; a name that ends with a slash is a folder."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.config.metadata.name

    @property
    def state_name(self) -> str:
        return f"CONTAINER_{self.state.name}"

    @property
    def oom_killed(self) -> bool:
        return self.ended is not None and self.ended.reason == OOM_KILLED


class Happened(Struct, frozen=True):
    """An event for subscribers: something was created, started, stopped or deleted."""

    at_ns: int
    id: str
    sandbox_id: str
    kind: cri.ContainerEventType.ValueType


class Wrote(Struct, frozen=True):
    """A container wrote text."""

    at_ns: int
    log_path: str
    stream: str
    text: str


class Cgroup(Struct, frozen=True):
    """A container's cgroup is to be written anew, or removed when `files` is None."""

    path: str
    files: dict[str, str] | None


Effect = Happened | Wrote | Cgroup


def reason_of(code: int) -> str:
    """Why a container ended, as runtimes say it."""
    return "Completed" if code == 0 else "Error"


def rfc3339(at_ns: int) -> str:
    """A time with all its nanoseconds, in UTC."""
    seconds, nanos = divmod(at_ns, NS)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def earlier_instances(
    containers: Iterable[Container], sandboxes: Mapping[str, Sandbox], sandbox: Sandbox, name: str
) -> Iterator[Container]:
    """A pod's earlier containers of this name, as far as they are still there."""
    uid = sandbox.config.metadata.uid
    return (c for c in containers if c.name == name and sandboxes[c.sandbox_id].config.metadata.uid == uid)
