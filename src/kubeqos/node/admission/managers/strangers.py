"""CPUs that containers own by a manager that this node no longer has, since its gate was turned off.

They were promised, and run on: who hands out CPUs now leaves them alone until the pod has gone. Asked by admission when
it takes over from an earlier life.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kubeqos.cci.manager import CciManager
from kubeqos.cci.store import owned_by_claims
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.node.admission.managers import Withholds
from kubeqos.plugins.managers import ContainerRef, LiveContainer, ResourceManager
from kubeqos.qrm.allocations import owned_by_plugins
from kubeqos.qrm.manager import QosResourceManager


def make_way(
    managers: Sequence[ResourceManager], states: Mapping[str, Any], live: Mapping[ContainerRef, LiveContainer]
) -> dict[str, Any]:
    """Let nobody have the CPUs that managers gave whose gate is off; what these knew is kept until they are back."""
    names = {manager.name for manager in managers}
    for ref, found in live.items():
        if cpus := owned_by_strangers(ref, found, names):
            for manager in managers:
                if isinstance(manager, Withholds):
                    manager.withhold(ref, cpus)
    return {name: state for name, state in states.items() if name not in names}


def owned_by_strangers(ref: ContainerRef, live: LiveContainer, managers: Collection[str]) -> CpuSet:
    """What a running container keeps from others, if none of these managers knows of it."""
    cpus = NO_CPUS
    if CciManager.name not in managers:
        cpus |= owned_by_claims(live.annotations)
    if QosResourceManager.name not in managers:
        cpus |= owned_by_plugins(ref, live)
    return cpus
