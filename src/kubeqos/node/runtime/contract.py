"""What the executor of effects asks of the others on its node: admission, updates of containers, cgroups.

The agent puts the parts together; here is only what `executor` needs of each, so that none of them knows another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.pod.effects import Allocation
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, ContainerRef, Grant, Refusal, ResourceManager


class Reserves(Protocol):
    """Admission: who gets what of the node's resources."""

    @property
    def managers(self) -> Sequence[ResourceManager]: ...

    async def admit(self, pod: AdmittedPod, *, static: bool = False) -> Refusal | None: ...

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None: ...

    async def release(self, uid: str) -> None: ...

    async def told(self, uid: str, container: str) -> None: ...

    def allocation(self, raw: Mapping[str, Any]) -> Allocation | None: ...

    def cpus_of(self, container: ContainerRef) -> CpuSet: ...

    def owned(self, container: ContainerRef) -> CpuSet: ...

    def grant(self, container: ContainerRef) -> Grant: ...

    def accompany(self, ephemeral: ContainerRef, other: ContainerRef) -> None: ...


class UpdatesContainers(Protocol):
    """The one place that tells running containers what they should have."""

    async def reconcile(self) -> None: ...

    async def room(self, ref: ContainerRef, cpus: CpuSet) -> None: ...

    async def created(self, ref: ContainerRef, container_id: str, grant: Grant) -> None: ...

    async def before_start(self, ref: ContainerRef, container_id: str) -> None: ...

    def outstanding(self, key: ContainerKey) -> Iterable[Any]:
        """What a container is still to be told, for `updated`."""

    def updated(self, ref: ContainerRef, grant: Grant, void: Iterable[Any] | None = None) -> None: ...

    def removed(self, pod_uid: str) -> None: ...

    def found(self, key: ContainerKey, resources: cri.LinuxContainerResources) -> None: ...

    def paused(self, ref: ContainerRef) -> AbstractAsyncContextManager[None]: ...


class KeepsCgroups(Protocol):
    """The cgroups above containers."""

    async def reconcile(self) -> object: ...

    async def remove(self, pod: AdmittedPod) -> None: ...
