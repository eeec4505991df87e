"""Managers after a restart: the state that the ledger kept for them, and what they take over from containers that run.

Called by `node.admission.transaction` before anything is admitted. What cannot be read or taken over is told in words.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from kubeqos.errors import KubeqosError
from kubeqos.node.admission.managers import Adopts
from kubeqos.plugins.managers import AdmittedPod, ContainerRef, LiveContainer, ResourceManager


async def restore_managers(
    managers: Iterable[ResourceManager], states: Mapping[str, Any], known: Mapping[str, AdmittedPod]
) -> list[str]:
    """Give every manager its state of an earlier life; one that cannot use it starts afresh, and that is said."""
    repairs: list[str] = []
    for manager in managers:
        try:
            repairs += await manager.restore(states.get(manager.name), known)
        except (KubeqosError, ValueError, TypeError, KeyError, AttributeError) as error:
            repairs.append(f"manager {manager.name} starts afresh: its saved state is unusable ({error})")
    return repairs


def adopt(
    managers: Sequence[ResourceManager],
    pods: Mapping[str, AdmittedPod],
    live: Mapping[ContainerRef, LiveContainer],
    entered: Container[str],
) -> tuple[set[str], list[str]]:
    """Let managers take over what containers hold whose pods are not in the ledger: which pods, and in words."""
    adopted: set[str] = set()
    taken: list[str] = []
    for ref, found in live.items():
        pod = pods.get(ref.pod_uid)
        if pod is None or ref.pod_uid in entered:
            continue
        who = f"container {ref.name} of pod {pod.view.metadata.name}"
        for manager in managers:
            if isinstance(manager, Adopts) and manager.adopt(pod, ref, found):
                adopted.add(ref.pod_uid)
                taken.append(f"took over what {who} holds ({manager.name})")
    return adopted, taken
