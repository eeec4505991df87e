"""What class providers and we say of containers, in the words of NRI."""

from __future__ import annotations

import os
import stat

from kubeqos.cri.classes.table import Found
from kubeqos.cri.enforcing.host import cgroup_path
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Edit, Level, Place, Subject
from kubeqos.errors import RemoteError
from kubeqos.node.cri.configs import apply_grant
from kubeqos.node.pod.observed import Stage
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.plugins.managers import Grant
from kubeqos.stock.agent.annotations import noted
from kubeqos.stock.cores.events import ContainerEvent, PodEvent
from kubeqos.stock.cores.nriruntime import cri_resources, nri_resources

STAGES = {
    nri.CONTAINER_CREATED: Stage.CREATED,
    nri.CONTAINER_PAUSED: Stage.RUNNING,
    nri.CONTAINER_RUNNING: Stage.RUNNING,
}
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

_MOST_DIGITS = 20


def pod_subject(pod: nri.PodSandbox) -> Subject:
    return Subject(Level.POD, pod.id, "", pod.uid, pod.namespace, pod.name, runtime_handler=pod.runtime_handler)


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
        runtime_handler=pod.runtime_handler,
    )


def asked_shares(shares: int, noted: str) -> int:
    """The CPU shares that a container asked for; what the runtime tells are those that it was given at its creation,
    unless an update has come since, which says what is asked for now."""
    asked, _, given = noted.partition(" ")
    return int(asked) if given == str(shares) and asked.isdecimal() and len(asked) <= _MOST_DIGITS else shares


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
    """A plugin cannot change how a sandbox is made, so nothing is noted on it."""
    return Found(pod_subject(pod), dict(pod.annotations), can_be_noted=False, place=pod_place(pod))


def found_container(pod: nri.PodSandbox, container: nri.Container) -> Found:
    subject, stage = container_subject(pod, container), STAGES.get(container.state, Stage.EXITED)
    return Found(
        subject,
        dict(pod.annotations),
        noted(container.annotations, subject),
        stage is not Stage.EXITED,
        stage is Stage.RUNNING,
        container.created_at,
        place=place_of(container),
    )


def pod_event(pod: nri.PodSandbox) -> PodEvent:
    return PodEvent(pod.uid, pod.namespace, pod.name, dict(pod.annotations), pod.linux.cgroup_parent)


def container_event(container: nri.Container) -> ContainerEvent:
    return ContainerEvent(
        container.name,
        container.id,
        container.linux.cgroups_path,
        container.pid,
        STAGES.get(container.state, Stage.EXITED),
        cri_resources(container.linux.resources),
        dict(container.annotations),
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


def add_grant(out: nri.ContainerAdjustment, grant: Grant, cgroup_version: int) -> None:
    """Lay upon a create request what managers grant; a class that sets the same differently is a contradiction."""
    wanted = cri.LinuxContainerResources()
    apply_grant(wanted, grant, cgroup_version)
    for kind in ("cpus", "mems"):
        by_class, own = getattr(out.linux.resources.cpu, kind), getattr(wanted, f"cpuset_{kind}")
        if by_class and own and by_class != own:
            what = f"a class sets cpuset_{kind} to {by_class}, and the node's managers to {own}"
            raise RemoteError(what, remedy="leave it out of the class on nodes that hand out cores")
    out.linux.resources.MergeFrom(nri_resources(wanted))
    out.annotations.update(grant.annotations)
    for name, value in grant.envs.items():
        out.env.add(key=name, value=value)
    for mount in grant.mounts:
        options = ["rbind", "ro" if mount.read_only else "rw"]
        out.mounts.add(source=mount.host_path, destination=mount.container_path, type="bind", options=options)
    for device in grant.devices:
        out.linux.devices.append(_device(device.host_path, device.container_path))


def _device(host_path: str, container_path: str) -> nri.LinuxDevice:
    try:
        found = os.stat(host_path)
    except OSError as error:
        raise RemoteError(f"a plugin gives the device {host_path}, which is not there: {error.strerror}") from error
    kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
    return nri.LinuxDevice(path=container_path, type=kind, major=os.major(found.st_rdev), minor=os.minor(found.st_rdev))
