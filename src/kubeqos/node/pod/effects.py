"""What goes into the node agent's core and what comes out of it: stimuli and effects, as plain values.

The shell (`node.agent`) turns the world into stimuli and performs the effects. Every effect that takes time is answered
by one `Done` or `Failed` that carries the effect itself, so that the core knows what is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox
from kubeqos.plugins.managers import Refusal

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A pod with the resources that were reserved for it, and the containers that have not been told yet."""

    raw: Raw
    untold: frozenset[str] = frozenset()


Result = SeenContainer | SeenSandbox | Refusal | Allocation | str | bool | None
"""What an effect made: a container, a sandbox, an allocation or refusal, a word, a probe's verdict."""


# ---- Stimuli


@dataclass(frozen=True, slots=True)
class PodSet:
    """A pod of this node as the API server (or a static pod file) has it now."""

    raw: Raw
    source: Literal["api", "file"] = "api"


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is no longer in the API (or its file is gone)."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """Every pod that the API and the files have has been told: what only the runtime knows is an orphan."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The runtime's view of one pod, asked for when the core's `serial` of that pod was `since`."""

    seen: SeenPod
    since: int


@dataclass(frozen=True, slots=True)
class Evict:
    """End the pod for good: node pressure, a vanished class."""

    uid: str
    reason: str
    message: str
    grace_seconds: int | None = None
    condition: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    """Of the event: what was short, and who used it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Done:
    """An effect was carried out; `result` is what it made."""

    effect: Effect
    result: Result = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An effect failed. `reason` is a Kubernetes reason (`ErrImagePull`) where the effect has several ways to fail."""

    effect: Effect
    message: str
    reason: str = ""


Stimulus = PodSet | PodGone | PodsListed | Observed | Evict | Tick | Done | Failed


# ---- Effects


@dataclass(frozen=True, slots=True)
class Admit:
    """Reserve everything the pod asks for, or refuse it; answered by Done(None) or Done(Refusal)."""

    uid: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Reserve what a changed spec asks for; answered as `Admit`. On success the new spec is the allocated one."""

    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class RunSandbox:
    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class EnsureImage:
    uid: str
    container: str


@dataclass(frozen=True, slots=True)
class CreateContainer:
    uid: str
    container: str
    attempt: int
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    uid: str
    container: str
    id: str


@dataclass(frozen=True, slots=True)
class RunHook:
    uid: str
    container: str
    id: str
    hook: Literal["postStart", "preStop"]
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class RunProbe:
    uid: str
    container: str
    id: str
    probe: Literal["startup", "liveness", "readiness"]


@dataclass(frozen=True, slots=True)
class StopContainer:
    uid: str
    container: str
    id: str
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    uid: str
    container: str
    id: str


@dataclass(frozen=True, slots=True)
class StopSandbox:
    uid: str
    id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    uid: str
    id: str


@dataclass(frozen=True, slots=True)
class UpdateResources:
    """Bring a running container to what its pod's allocated spec and its grants say."""

    uid: str
    container: str
    id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give back everything that the pod holds."""

    uid: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the runtime about this pod; answered by `Observed`."""

    uid: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Make this the pod's status. Not answered: only the newest counts."""

    uid: str
    status: Raw


@dataclass(frozen=True, slots=True)
class Record:
    """Tell people. Not answered."""

    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str = ""
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DeletePod:
    """The pod has ended as asked: let the API server forget it. Not answered; `PodGone` follows."""

    uid: str


@dataclass(frozen=True, slots=True)
class Forget:
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
    | Release
    | Look
    | WriteStatus
    | Record
    | DeletePod
    | Forget
)

UNANSWERED = (Look, WriteStatus, Record, DeletePod, Forget)
"""Effects that the core does not wait for."""


def target(effect: Effect) -> str:
    """What an effect keeps busy: at most one effect per pod and target is under way."""
    match effect:
        case RunProbe():
            return f"probe/{effect.container}/{effect.probe}"
        case Admit() | Release() | Resize():
            return "managers"
        case RunSandbox() | StopSandbox() | RemoveSandbox():
            return "sandbox"
        case RemoveContainer():
            return f"remove/{effect.id}"
        case StopContainer() | RunHook(hook="preStop"):
            return f"stop/{effect.container}"
        case UpdateResources():
            return f"update/{effect.container}"
        case _:
            return f"container/{getattr(effect, 'container', '')}"
