"""What class providers and we say of containers, in the words of NRI. Pure."""

from __future__ import annotations

from kubeqos.cri.enforcing.host import cgroup_path
from kubeqos.cri.providers.protocol import Edit, Level, Place, Subject
from kubeqos.errors import RemoteError
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.agent.core import Found

_RUNS = (nri.CONTAINER_CREATED, nri.CONTAINER_PAUSED, nri.CONTAINER_RUNNING)
_FIELDS = {
    "cpu_shares": ("cpu", "shares"),
    "cpu_quota": ("cpu", "quota"),
    "cpu_period": ("cpu", "period"),
    "memory_limit_in_bytes": ("memory", "limit"),
    "memory_swap_limit_in_bytes": ("memory", "swap"),
}
"""Fields of CRI's LinuxContainerResources that providers may set, and where NRI has them."""
SHARES = "qos.kubeqos.io.cpu-shares"
"""The annotation of a container whose class scales its CPU shares: those that it asked for and those that it got."""


def pod_subject(pod: nri.PodSandbox) -> Subject:
    return Subject(Level.POD, pod.id, "", pod.uid, pod.namespace, pod.name)


def container_subject(pod: nri.PodSandbox, container: nri.Container) -> Subject:
    resources = container.linux.resources
    return Subject(
        Level.CONTAINER,
        container.id,
        pod.id,
        pod.uid,
        pod.namespace,
        pod.name,
        container.name,
        cpu_shares=asked_shares(resources.cpu.shares.value, container.annotations.get(SHARES, "")),
        memory_limit_bytes=max(0, resources.memory.limit.value),
    )


def asked_shares(shares: int, noted: str) -> int:
    """The CPU shares that a container asked for; what the runtime tells are those that it was given at its creation,
    unless an update has come since, which says what is asked for now."""
    asked, _, given = noted.partition(" ")
    return int(asked) if given == str(shares) and asked.isdecimal() else shares


def noted_shares(edit: Edit, subject: Subject) -> dict[str, str]:
    """What is noted of CPU shares that a class scales, so that they are not scaled again."""
    given = edit.resources.get("cpu_shares")
    return {} if given is None else {SHARES: f"{subject.cpu_shares} {given}"}


def place_of(container: nri.Container) -> Place:
    """Where a container runs, from the moment that the runtime has made its first process."""
    return Place(container.pid, cgroup_path(container.linux.cgroups_path))


def pod_place(pod: nri.PodSandbox) -> Place:
    return Place(pod.pid, cgroup_path(pod.linux.cgroups_path))


def found_pod(pod: nri.PodSandbox) -> Found:
    return Found(pod_subject(pod), dict(pod.annotations))


def found_container(pod: nri.PodSandbox, container: nri.Container) -> Found:
    return Found(
        container_subject(pod, container),
        dict(pod.annotations),
        dict(container.annotations),
        container.state in _RUNS,
        container.created_at,
    )


def adjustment(edit: Edit, marks: dict[str, str]) -> nri.ContainerAdjustment:
    """The edits of a create request."""
    out = nri.ContainerAdjustment(annotations={**edit.annotations, **marks})
    resources = out.linux.resources
    for name, value in edit.resources.items():
        if name in ("cpuset_cpus", "cpuset_mems"):
            setattr(resources.cpu, name.removeprefix("cpuset_"), str(value))
        elif name == "oom_score_adj":
            out.linux.oom_score_adj.value = int(value)
        elif name in _FIELDS:
            part, field = _FIELDS[name]
            getattr(getattr(resources, part), field).value = int(value)
        else:
            raise RemoteError(f"a class sets {name}, which NRI cannot change", remedy="use the relay for this class")
    resources.unified.update(edit.unified)
    return out
