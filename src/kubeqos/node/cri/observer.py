"""What the runtime's answers mean to the pod machine: CRI messages in, `node.pod.observed` values out.

Used by `node.runtime.executor`, and by the agent when it takes over what an earlier life has left running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.node.pod.observed import Classes, SeenContainer, SeenPod, SeenSandbox, Stage
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, ContainerRef, LiveContainer

POD_NAME_LABEL = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
POD_UID_LABEL = "io.kubernetes.pod.uid"
CONTAINER_NAME_LABEL = "io.kubernetes.container.name"

STAGES: dict[int, Stage] = {
    cri.CONTAINER_CREATED: Stage.CREATED,
    cri.CONTAINER_RUNNING: Stage.RUNNING,
    cri.CONTAINER_EXITED: Stage.EXITED,
    # The runtime has lost sight of it: whatever it was, it is not running for us any more.
    cri.CONTAINER_UNKNOWN: Stage.EXITED,
}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _classes(resources: Iterable[_Named]) -> Classes:
    return tuple((resource.name, str(getattr(resource, "class"))) for resource in resources)


def stage_of(state: int) -> Stage:
    """A state that is new to us is no better than one that the runtime does not know itself."""
    return STAGES.get(state, STAGES[cri.CONTAINER_UNKNOWN])


def seen_container(status: cri.ContainerStatus) -> SeenContainer:
    """A container from its CRI status."""
    return SeenContainer(
        id=status.id,
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        stage=stage_of(status.state),
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
    pods: dict[str, AdmittedPod], seen: Iterable[SeenPod], has: Mapping[ContainerKey, cri.LinuxContainerResources]
) -> Iterable[tuple[ContainerRef, LiveContainer]]:
    """The containers that run, of pods that are known: what they were created with and what they have by now."""
    for one in seen:
        pod = pods.get(one.uid)
        refs = {ref.name: ref for ref, _ in pod.containers()} if pod is not None else {}
        for container in one.live:
            if container.name in refs:
                now = has.get((one.uid, container.name), cri.LinuxContainerResources())
                marks = dict(container.annotations)
                yield refs[container.name], LiveContainer(marks, now.cpuset_cpus, now.cpuset_mems)
