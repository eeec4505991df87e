"""What goes into the pod machine and what comes out of it: stimuli and effects, as plain values.

The shell (`node.agent`) turns the world into stimuli and performs the effects. Every effect that takes time is answered
by one `Done` or `Failed` that carries the effect itself, so that the machine knows what is under way. All of them are
tagged structs: they compare by value, and a journal of them can be written down, read back and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox
from kubeqos.plugins.managers import Refusal

Raw = Mapping[str, Any]


class _Value(Struct, frozen=True, tag=True, tag_field="kind", omit_defaults=True):
    """Base of everything that a journal writes down. The tag is `kind`: `type` is a field of events."""


# ---- What effects make


class Allocation(_Value, frozen=True):
    """A pod with the resources that were reserved for it, and who has not been told yet: containers by name, and the
    sandbox as `node.pod.resize.SANDBOX`."""

    raw: Raw
    untold: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Shortage(Refusal):
    """Too little of a resource is left; `missing` says of which ones, and how much."""

    missing: Mapping[str, int] = field(default_factory=dict)


class Promised(_Value, frozen=True):
    """Instead of a shortage: the machine lets other pods go, so that a critical one can be admitted later."""

    by: frozenset[str]


class RecordedRefusal(_Value, frozen=True):
    """A `Refusal` or `Shortage` as it is written down: those are the managers' own type."""

    reason: str
    message: str
    retry: bool = False
    missing: dict[str, int] | None = None


Result = SeenContainer | SeenSandbox | Refusal | Allocation | Promised | str | bool | None
"""What an effect made: a container, a sandbox, an allocation or refusal, a word, a probe's verdict."""
Written = SeenContainer | SeenSandbox | RecordedRefusal | Allocation | Promised | str | bool | None


# ---- Stimuli


class PodSet(_Value, frozen=True):
    """A pod of this node as the API server (or a static pod file) has it now."""

    raw: Raw
    source: Literal["api", "file"] = "api"


class PodGone(_Value, frozen=True):
    """The pod is no longer in the API (or its file is gone)."""

    uid: str


class PodsListed(_Value, frozen=True):
    """Every pod that the API and the files have has been told: what only the runtime knows is an orphan."""


class Observed(_Value, frozen=True):
    """The runtime's view of one pod, asked for when the machine's `serial` of that pod was `since`."""

    seen: SeenPod
    since: int


class Evict(_Value, frozen=True):
    """End the pod for good: node pressure, a vanished class."""

    uid: str
    reason: str
    message: str
    grace_seconds: int | None = None
    condition: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    """Of the event: what was short, and who used it."""


class RoomMade(_Value, frozen=True):
    """One of those for whom a critical pod waits has left. Only the machine says this, of one pod to another."""

    uid: str


class Tick(_Value, frozen=True):
    """Time has passed."""


# ---- Effects


class Admit(_Value, frozen=True):
    """Reserve everything the pod asks for, or refuse it; answered by Done(Allocation) or Done(Refusal)."""

    uid: str


class Resize(_Value, frozen=True):
    """Reserve what a changed spec asks for; answered as `Admit`. On success the new spec is the allocated one."""

    uid: str
    generation: int


class RunSandbox(_Value, frozen=True):
    uid: str
    attempt: int


class EnsureImage(_Value, frozen=True):
    uid: str
    container: str


class CreateContainer(_Value, frozen=True):
    uid: str
    container: str
    attempt: int
    sandbox_id: str


class StartContainer(_Value, frozen=True):
    uid: str
    container: str
    id: str


class RunHook(_Value, frozen=True):
    uid: str
    container: str
    id: str
    hook: Literal["postStart", "preStop"]
    deadline_seconds: float


class RunProbe(_Value, frozen=True):
    uid: str
    container: str
    id: str
    probe: Literal["startup", "liveness", "readiness"]


class StopContainer(_Value, frozen=True):
    uid: str
    container: str
    id: str
    grace_seconds: int


class RemoveContainer(_Value, frozen=True):
    uid: str
    container: str
    id: str


class StopSandbox(_Value, frozen=True):
    uid: str
    id: str


class RemoveSandbox(_Value, frozen=True):
    uid: str
    id: str


class UpdateResources(_Value, frozen=True):
    """Bring a running container to what its pod's allocated spec and its grants say."""

    uid: str
    container: str
    id: str


class UpdateSandbox(_Value, frozen=True):
    """Bring a pod's sandbox to the classes that its allocated spec asks for."""

    uid: str
    id: str


class Release(_Value, frozen=True):
    """Give back everything that the pod holds."""

    uid: str


class Look(_Value, frozen=True):
    """Ask the runtime about this pod; answered by `Observed`."""

    uid: str


class WriteStatus(_Value, frozen=True):
    """Make this the pod's status. Not answered: only the newest counts."""

    uid: str
    status: Raw


class Record(_Value, frozen=True):
    """Tell people. Not answered."""

    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str = ""
    annotations: Mapping[str, str] | None = None


class DeletePod(_Value, frozen=True):
    """The pod has ended as asked: let the API server forget it. Not answered; `PodGone` follows."""

    uid: str


class Forget(_Value, frozen=True):
    """Nothing of this pod is left on the node."""

    uid: str


Effect = (
    Admit
    | Resize
    | RunSandbox
    | EnsureImage
    | CreateContainer
    | StartContainer
    | RunHook
    | RunProbe
    | StopContainer
    | RemoveContainer
    | StopSandbox
    | RemoveSandbox
    | UpdateResources
    | UpdateSandbox
    | Release
    | Look
    | WriteStatus
    | Record
    | DeletePod
    | Forget
)


# ---- Answers to effects: stimuli again


class Done(Struct, frozen=True):
    """An effect was carried out; `result` is what it made."""

    effect: Effect
    result: Result = None


class Failed(_Value, frozen=True):
    """An effect failed. `reason` is a Kubernetes reason (`ErrImagePull`) where the effect has several ways to fail."""

    effect: Effect
    message: str
    reason: str = ""


Stimulus = PodSet | PodGone | PodsListed | Observed | Evict | RoomMade | Tick | Done | Failed
