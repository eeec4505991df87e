"""What the container runtime says about one pod, as values that decisions can work with.

The shell asks the runtime and makes these from its answers (`seen_sandbox`, `seen_container`); the core compares,
never asks. Times are seconds since the epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.plugins.managers import AdmittedPod, ContainerRef

POD_NAME_LABEL = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
POD_UID_LABEL = "io.kubernetes.pod.uid"
CONTAINER_NAME_LABEL = "io.kubernetes.container.name"

Classes = tuple[tuple[str, str], ...]
"""(resource, class) as assigned, implicit defaults included; the empty class is the system default."""


class Stage(enum.StrEnum):
    """How far a container has come in the runtime."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


_STAGES = {
    cri.CONTAINER_CREATED: Stage.CREATED,
    cri.CONTAINER_RUNNING: Stage.RUNNING,
    cri.CONTAINER_EXITED: Stage.EXITED,
    cri.CONTAINER_UNKNOWN: Stage.EXITED,
}


@dataclass(frozen=True, slots=True)
class SeenContainer:
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


@dataclass(frozen=True, slots=True)
class SeenSandbox:
    """One sandbox of a pod; the newest one that is ready is the pod's."""

    id: str
    attempt: int
    ready: bool
    created: float
    ips: tuple[str, ...] = ()
    classes: Classes = ()


@dataclass(frozen=True, slots=True)
class SeenPod:
    """Everything the runtime holds for one pod."""

    uid: str
    namespace: str
    name: str
    sandboxes: tuple[SeenSandbox, ...] = ()
    containers: tuple[SeenContainer, ...] = ()

    @property
    def newest_sandbox(self) -> SeenSandbox | None:
        return max(self.sandboxes, key=lambda one: (one.attempt, one.created), default=None)

    @property
    def sandbox(self) -> SeenSandbox | None:
        """The sandbox the pod lives in, if it has one that is ready."""
        newest = self.newest_sandbox
        return newest if newest is not None and newest.ready else None

    def instances(self, name: str) -> list[SeenContainer]:
        """Every instance of a container, newest first."""
        found = [one for one in self.containers if one.name == name]
        return sorted(found, key=lambda one: (one.attempt, one.created), reverse=True)

    def newest(self, name: str) -> SeenContainer | None:
        best = None
        for one in self.containers:
            if one.name == name and (best is None or (one.attempt, one.created) > (best.attempt, best.created)):
                best = one
        return best

    @property
    def live(self) -> list[SeenContainer]:
        return [one for one in self.containers if one.live]

    @property
    def empty(self) -> bool:
        return not self.sandboxes and not self.containers

    def with_sandbox(self, sandbox: SeenSandbox) -> SeenPod:
        others = tuple(one for one in self.sandboxes if one.id != sandbox.id)
        return replace(self, sandboxes=(*others, sandbox))

    def with_container(self, container: SeenContainer) -> SeenPod:
        others = tuple(one for one in self.containers if one.id != container.id)
        return replace(self, containers=(*others, container))

    def without_container(self, identity: str) -> SeenPod:
        return replace(self, containers=tuple(one for one in self.containers if one.id != identity))

    def without_sandbox(self, identity: str) -> SeenPod:
        return replace(self, sandboxes=tuple(one for one in self.sandboxes if one.id != identity))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _classes(resources: Iterable[_Named]) -> Classes:
    return tuple((resource.name, str(getattr(resource, "class"))) for resource in resources)


def seen_container(status: cri.ContainerStatus) -> SeenContainer:
    """A container from its CRI status."""
    return SeenContainer(
        id=status.id,
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        stage=_STAGES[status.state],
        created=status.created_at / 1e9,
        started=status.started_at / 1e9,
        finished=status.finished_at / 1e9,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
        image=status.image.image,
        image_id=status.image_ref,
        classes=_classes(status.resources.qos_resources),
        annotations=dict(status.annotations),
    )


def seen_sandbox(status: cri.PodSandboxStatus) -> SeenSandbox:
    """A sandbox from its CRI status."""
    addresses = [status.network.ip, *(extra.ip for extra in status.network.additional_ips)]
    return SeenSandbox(
        id=status.id,
        attempt=status.metadata.attempt,
        ready=status.state == cri.SANDBOX_READY,
        created=status.created_at / 1e9,
        ips=tuple(address for address in addresses if address),
        classes=_classes(status.qos_resources),
    )


def live_containers(
    pods: dict[str, AdmittedPod], seen: Iterable[SeenPod]
) -> Iterable[tuple[ContainerRef, dict[str, str]]]:
    """The containers that run, of pods that are known, and the annotations that they were created with."""
    for one in seen:
        pod = pods.get(one.uid)
        refs = {ref.name: ref for ref, _ in pod.containers()} if pod is not None else {}
        for container in one.live:
            if container.name in refs:
                yield refs[container.name], dict(container.annotations)
