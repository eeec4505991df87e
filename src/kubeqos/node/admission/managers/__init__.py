"""The node agent's own resource managers: QoS classes, exclusive CPUs, NUMA memory.

Each is a `plugins.managers.ResourceManager`; QRM and CCI stand beside them in the same list. What a manager can do
beyond that contract is optional and found by `isinstance`: resize a pod in place, say hints for a whole pod, take over
containers that run although the ledger is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kubeqos.model.cpuset import CpuSet
from kubeqos.plugins.managers import AdmittedPod, ContainerRef, LiveContainer, Refusal
from kubeqos.topology.alignment.hints import Offer


@runtime_checkable
class Resizes(Protocol):
    """Can change what a running pod holds."""

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Take what the new spec needs in place of the old one, or refuse and keep the old one."""


@runtime_checkable
class HoldsUntilResized(Protocol):
    """Holds what a pod had beside what it was resized to, until its containers have been told."""

    def resize_done(self, pod_uid: str) -> None:
        """Every container has what the pod was resized to: nothing more is held."""


@runtime_checkable
class OffersForPods(Protocol):
    """Knows hints for a whole pod at once, for the topology manager's scope `pod`."""

    async def pod_offers(self, pod: AdmittedPod) -> Sequence[Offer]: ...


@runtime_checkable
class Adopts(Protocol):
    """Can rebuild what a running container holds from the annotations it was created with, and from what it has."""

    def adopt(self, pod: AdmittedPod, container: ContainerRef, live: LiveContainer) -> bool:
        """True when something was taken over."""


@runtime_checkable
class Withholds(Protocol):
    """Hands out CPUs, and can leave alone those that somebody owns of whom it knows nothing."""

    def withhold(self, container: ContainerRef, cpus: CpuSet) -> None:
        """Give these to nobody until the container's pod is released."""


@runtime_checkable
class Reconciles(Protocol):
    """Looks by itself, every so often, whether running containers should get something else."""

    reconcile_seconds: float

    async def reconcile(self) -> bool:
        """Whether what it declares may have changed. Called beside admissions, so a peer that hangs holds up nobody."""
