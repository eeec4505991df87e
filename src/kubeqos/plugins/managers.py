"""The contract between the node agent and everything that hands out a node's resources.

The built-in CPU, memory and class managers, the QoS Resource Manager (KEP-3461) and the CCI manager
(KEP-3675) all implement `ResourceManager`. Admission of a pod is one transaction over all of them: the agent
collects offers, merges them, allocates container by container, and either checkpoints everything or releases
everything (DESIGN §3, one ledger per node). Managers only declare what each container should have; what containers were
told, and in which order they may be told something new, is known to `node.updates` alone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from kubeqos.model.annotations.topologysummary import ByNuma, ComputeSummary, Division, Down
from kubeqos.model.cpuset import NO_CPUS, NO_NUMA, CpuSet, NumaSet
from kubeqos.model.objects import ContainerView, PodView
from kubeqos.rules.qos.podqos import QosClass, effective_class
from kubeqos.topology.alignment.hints import Hint, Merged, Offer, Scope

ContainerKey = tuple[str, str]
"""Pod uid and container name: one container of this node, through all its restarts."""


class ContainerKind(enum.StrEnum):
    """When a container runs: once before the others, beside them from before, as the pod's purpose, or when asked to.

    An ephemeral container (`kubectl debug`) has no resources of its own: managers never hear of it.
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """One container of one pod on this node."""

    pod_uid: str
    name: str
    kind: ContainerKind
    index: int
    """Position in its list: initContainers for INIT and SIDECAR, containers for APP, ephemeralContainers."""


@dataclass(frozen=True, slots=True)
class AdmittedPod:
    """A pod as managers see it: the view, the raw tree behind it, and its QoS class."""

    view: PodView
    raw: Mapping[str, Any]
    qos: QosClass
    claims: Mapping[str, Any] = field(default_factory=dict)
    """For CCI: claim name as the pod spells it → resolved claim (class name, driver, parameters text)."""
    uid: str = field(init=False)
    refs: Mapping[str, ContainerRef] = field(init=False, repr=False, compare=False)
    """Every container by its name."""

    @classmethod
    def of(cls, raw: Mapping[str, Any], claims: Mapping[str, Any] | None = None) -> AdmittedPod:
        """A pod as the API server tells it: both forms of it from one tree, so that they cannot disagree."""
        view = PodView.of(dict(raw))
        return cls(view, raw, effective_class(view), claims or {})

    def with_claims(self, claims: Mapping[str, Any]) -> AdmittedPod:
        return replace(self, claims=claims)

    def __post_init__(self) -> None:
        # Worked out once: everybody who has to do with the pod asks for both again and again.
        object.__setattr__(self, "uid", self.view.metadata.uid)
        refs = {ref.name: ref for ref, _ in self.containers()}
        for index, one in enumerate(self.view.spec.ephemeral_containers):
            refs[one.name] = ContainerRef(self.uid, one.name, ContainerKind.EPHEMERAL, index)
        object.__setattr__(self, "refs", refs)

    def containers(self) -> list[tuple[ContainerRef, ContainerView]]:
        """Every container in the order in which it starts: init containers, then app containers."""
        spec = self.view.spec
        found = []
        for index, container in enumerate(spec.init_containers):
            kind = ContainerKind.SIDECAR if container.is_sidecar else ContainerKind.INIT
            found.append((ContainerRef(self.uid, container.name, kind, index), container))
        for index, container in enumerate(spec.containers):
            found.append((ContainerRef(self.uid, container.name, ContainerKind.APP, index), container))
        return found


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A container that an earlier life of the agent created: with which annotations, and what it has by the runtime."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    cpus: str = ""
    """Its `cpuset_cpus`; empty when the runtime does not say."""
    mems: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceNode:
    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Grant:
    """What one manager wants the runtime to give one container.

    `properties` are fields of CRI's LinuxContainerResources by their proto name (`cpuset_cpus`, `cpuset_mems`,
    `cpu_shares`, …; `hugepage_limits.2MB` for one page size), `unified` are cgroup v2 files. Two managers that set one
    property to different values are a conflict, which refuses the pod.
    """

    properties: Mapping[str, str | int] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    devices: Sequence[DeviceNode] = ()
    because: str = ""
    exclusive: CpuSet = NO_CPUS
    """CPUs that containers of other pods must not use, whether this one runs on all of them or not."""
    unthrottled: bool = False
    """All of its CPUs are its own: a quota would only take from it what is its own (kubernetes#70585)."""


NOTHING = Grant()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot have what it asks for.

    `reason` becomes the pod's status.reason (`TopologyAffinityError`, `SMTAlignmentError`, …). `retry` says that the
    same pod may succeed later without anything being freed, for example once a plugin is back.
    """

    reason: str
    message: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class NodeResource:
    """A resource that a manager adds to the node's status."""

    name: str
    capacity: float
    allocatable: float


class ResourceManager(Protocol):
    """Hands out one kind of resource.

    Calls for one pod never overlap, and those for different pods only while a manager waits for a peer of its own. What
    `allocate` gives is taken at once, so that nobody else is given it while the rest of the pod is still being asked
    for.
    """

    name: str

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        """NUMA placements it could serve, one offer per resource; empty when it has no opinion."""

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        """Take what the container needs, under the merged hint. Taken until `release`; idempotent per container."""

    async def release(self, pod_uid: str) -> None:
        """Give back everything the pod holds; unknown pods are fine."""

    def grant(self, container: ContainerRef) -> Grant | None:
        """What the container should have now, whether it runs or is to be created. Changes nothing."""

    def grants(self) -> Mapping[ContainerKey, Grant]:
        """The same for every container that it gives something. What did not change should be the same object."""

    def save(self) -> Any:
        """Its state as JSON values, stored in the node's ledger before any container starts."""

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        """Take over saved state; drop what belongs to no running pod. Returns what had to be repaired, in words."""

    def node_resources(self) -> Sequence[NodeResource]:
        """Resources it adds to Node status."""

    def validate(self) -> list[str]:
        """Broken invariants; empty means sound."""


@runtime_checkable
class AllocatesUnits(Protocol):
    """A manager of several resources, which wants to know the whole merge.

    Policy numeric gives each resource a hint of its own; in scope `pod` a resource may be given to the pod as a whole.
    """

    async def allocate_unit(
        self, pod: AdmittedPod, containers: Sequence[ContainerRef], merged: Merged, scope: Scope
    ) -> Mapping[str, Grant] | Refusal:
        """`allocate` for the containers that share one merge: grants by the container's name, all or none."""


@runtime_checkable
class AsksPeers(Protocol):
    """A manager whose offers come from others, for which it has to wait: QRM's plugins."""

    def peers(self, pod: AdmittedPod) -> frozenset[str]:
        """Whom it will ask about this pod, by name. Pods that need the same peers take turns; nobody else waits."""

    def offers_stand(self, pod: AdmittedPod) -> bool:
        """Whether its last offers for this pod still hold: nobody has been given anything by these peers since."""


@runtime_checkable
class StartHook(Protocol):
    """A manager that has something to do between a container's creation and its start.

    QRM's `PreStartContainer` and CCI's `CCIAddContainerResource` are called from here; the agent asks
    `isinstance(manager, StartHook)`. Called again when a container is created anew with another id.
    """

    async def before_start(
        self, pod: AdmittedPod, container: ContainerRef, container_id: str, cgroup_parent: str
    ) -> Refusal | None:
        """Prepare the container; a refusal keeps it from starting and is retried as container starts are."""


@dataclass(frozen=True, slots=True)
class CpuHolding:
    """Where a container runs: all its CPUs, those that nobody else may use, and its memory nodes."""

    cpus: CpuSet
    own: CpuSet = NO_CPUS
    mems: NumaSet = NO_NUMA


@runtime_checkable
class AlignsByNode(Protocol):
    """A manager that hands out resources by NUMA node, and can tell what is left on each."""

    def free_by_node(self) -> Mapping[str, ByNuma]:
        """Resource → NUMA node → what can still be handed out."""

    def held_by_node(self) -> Mapping[str, Mapping[str, ByNuma]]:
        """Pod uid → resource → NUMA node → what it holds."""


@runtime_checkable
class TellsResources(Protocol):
    """A manager of several resources, which others choose for it: it can tell who chose what."""

    def given(self, container: ContainerRef) -> Sequence[tuple[str, str, str]]:
        """Of each resource that the container has: its name, what of it, and who chose that."""


@runtime_checkable
class Divides(Protocol):
    """A manager whose resources are divided among pods by their role."""

    def divisions(self) -> Mapping[str, tuple[Division, Mapping[str, float]]]:
        """Resource → how it is divided, and what the containers of each pool request."""


@runtime_checkable
class ServesClaims(Protocol):
    """A manager that gives CPUs by claims, and can tell who holds what."""

    def compute(self) -> ComputeSummary:
        """What the scheduler has to know to decide as admission here does."""


@runtime_checkable
class DependsOnPeers(Protocol):
    """A manager that cannot serve some pods while a peer of its own is away."""

    def down(self) -> Sequence[Down]:
        """The peers that cannot be asked now, and whom that concerns."""


@runtime_checkable
class PlacesOnCpus(Protocol):
    """A manager that decides on which CPUs containers run, and can tell."""

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        """The container's CPUs; None when this manager has none for it."""

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        """The named pools that containers without CPUs of their own share."""
