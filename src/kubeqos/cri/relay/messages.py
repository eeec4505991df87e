"""Reads and patches CRI messages. Fields this version does not know stay in the message and travel on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping

from kubeqos.codec import JsonError, decode_json, encode_json_sorted
from kubeqos.cri.classes.decisions import Offers, Wish, annotation_keys, assigned
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.holders import Assignment, Holder
from kubeqos.cri.providers.protocol import Edit, Level, Place, Subject
from kubeqos.cri.runtime import PROVIDERS_READY
from kubeqos.rules.qos.classes import POD_QOS

ASSIGNED = "qos.kubeqos.io/assigned"
"""Annotation on what we created: the runtime keeps it, so an assignment survives a crash between create and save."""

_MOST_PID = 1 << 31

FindHolder = Callable[[str], Holder | None]
Patch = Callable[[bytes, Offers, FindHolder], bytes]
"""A response as the client shall see it."""


def wishes_of(entries: Iterable[cri.ContainerQOSResource | cri.PodQOSResource]) -> list[Wish]:
    return [Wish(entry.name, getattr(entry, "class")) for entry in entries]


def knows_classes(request: cri.CreateContainerRequest) -> bool:
    """Whether the caller speaks the KEP's fields: it has read annotations itself, where somebody could count them.

    A node agent that knows classes tells the pod's QoS class with every pod, if nothing else.
    """
    return bool(request.config.qos_resources or request.sandbox_config.qos_resources)


def sandbox_subject(request: cri.RunPodSandboxRequest) -> Subject:
    meta = request.config.metadata
    return Subject(
        Level.POD,
        pod_uid=meta.uid,
        pod_namespace=meta.namespace,
        pod_name=meta.name,
        pod_qos=pod_qos(request.config),
        runtime_handler=request.runtime_handler,
    )


def container_subject(request: cri.CreateContainerRequest, runtime_handler: str) -> Subject:
    meta, resources = request.sandbox_config.metadata, request.config.linux.resources
    return Subject(
        Level.CONTAINER,
        sandbox_id=request.pod_sandbox_id,
        pod_uid=meta.uid,
        pod_namespace=meta.namespace,
        pod_name=meta.name,
        container_name=request.config.metadata.name,
        cpu_shares=resources.cpu_shares,
        memory_limit_bytes=resources.memory_limit_in_bytes,
        pod_qos=pod_qos(request.sandbox_config),
        runtime_handler=runtime_handler,
    )


def pod_qos(config: cri.PodSandboxConfig) -> str:
    """The QoS class of the pod, which is information for providers and never a request."""
    return next((getattr(entry, "class") for entry in config.qos_resources if entry.name == POD_QOS), "")


def edit_sandbox(request: cri.RunPodSandboxRequest, edit: Edit, holder: Holder) -> None:
    request.config.ClearField("qos_resources")
    request.config.annotations.update(edit.annotations)
    _mark(request.config.annotations, holder)


def edit_container(request: cri.CreateContainerRequest, edit: Edit, holder: Holder, offers: Offers) -> None:
    """The request as the runtime shall see it."""
    config = request.config
    config.ClearField("qos_resources")
    request.sandbox_config.ClearField("qos_resources")
    config.annotations.update(edit.annotations)
    edit_resources(config.linux.resources if edit.resources or edit.unified else None, edit)
    for offer in offers.values():
        if offer.annotation_stem:
            _take_annotations(request, offer.annotation_stem)
    _mark(config.annotations, holder)


def edit_resources(resources: cri.LinuxContainerResources | None, edit: Edit) -> None:
    if resources is None:
        return
    for name, value in edit.resources.items():
        setattr(resources, name, value)
    resources.unified.update(edit.unified)


def _take_annotations(request: cri.CreateContainerRequest, stem: str) -> None:
    """The relay has answered these; a runtime that also reads them would refuse or apply a class of its own."""
    own, named, pod = annotation_keys(stem, request.config.metadata.name)
    config, sandbox = request.config.annotations, request.sandbox_config.annotations
    asked = any(key in sandbox for key in (named, pod))
    config.pop(own, None)
    for key in (named, pod):
        config.pop(key, None)
        sandbox.pop(key, None)
    if asked:
        # The runtime also has the annotations it was given with the sandbox; an empty class overrides them.
        config[own] = ""


def _mark(annotations: MutableMapping[str, str], holder: Holder) -> None:
    annotations.pop(ASSIGNED, None)
    classes = {name: a.class_name for name, a in holder.classes.items() if a.explicit}
    if any(a.class_name for a in holder.classes.values()):
        subject = holder.subject
        data = {"classes": classes, "cpuShares": subject.cpu_shares, "memoryLimit": subject.memory_limit_bytes}
        annotations[ASSIGNED] = encode_json_sorted(data).decode()


def holder_from_mark(annotations: Mapping[str, str], subject: Subject) -> Holder | None:
    """The holder that a marked sandbox or container was created as, or None."""
    try:
        data = decode_json(annotations.get(ASSIGNED, "").encode())
        classes = {str(name): Assignment(str(value), explicit=True) for name, value in data["classes"].items()}
        shares, limit = int(data.get("cpuShares", 0)), int(data.get("memoryLimit", 0))
    except (JsonError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return Holder(dataclasses.replace(subject, cpu_shares=shares, memory_limit_bytes=limit), classes)


def place_of(info: Mapping[str, str]) -> Place:
    """The process of a container, from the verbose part of its status (containerd, CRI-O, our simulated runtime).

    Its cgroup is not taken from the OCI spec in there: that says what the runtime was asked for, and which folder
    comes of it is the OCI runtime's affair. Only the simulated runtime, which has no processes, tells it.
    """
    try:
        data = decode_json(info.get("info", "{}").encode())
    except JsonError:
        return Place()
    pid, path = (data.get("pid"), data.get("cgroupsPath")) if isinstance(data, dict) else (0, "")
    known = pid if isinstance(pid, int) and 0 < pid < _MOST_PID else 0
    return Place(known, path if isinstance(path, str) else "")


def offers_message(offers: Offers) -> cri.ResourcesInfo:
    def infos(level: Level) -> list[cri.QOSResourceInfo]:
        return [
            cri.QOSResourceInfo(
                name=offer.name,
                mutable=offer.mutable,
                classes=[cri.QOSResourceClassInfo(name=c.name, capacity=c.capacity) for c in offer.current()],
                runtime_handlers=[
                    cri.QOSResourceHandlerInfo(name=name, classes=given) for name, given in offer.by_handler()
                ],
            )
            for _, offer in sorted(offers.items())
            if offer.level is level and (offer.current() or not offer.classes)
        ]

    return cri.ResourcesInfo(pod_qos_resources=infos(Level.POD), container_qos_resources=infos(Level.CONTAINER))


def patch_status(data: bytes, offers: Offers, absent: Mapping[str, str]) -> bytes:
    """A runtime's status with the classes on offer, and with a condition for providers that are away."""
    response = cri.StatusResponse.FromString(data)
    response.status.resources.CopyFrom(offers_message(offers))
    if absent:
        message = "; ".join(f"{entry}: {why}" for entry, why in sorted(absent.items()))
        response.status.conditions.add(type=PROVIDERS_READY, status=False, reason="ProviderGone", message=message)
    return response.SerializeToString()


def patch_container_status(data: bytes, offers: Offers, find: FindHolder) -> bytes:
    response = cri.ContainerStatusResponse.FromString(data)
    _fill_container(response.status, offers, find)
    return response.SerializeToString()


def patch_sandbox_status(data: bytes, offers: Offers, find: FindHolder) -> bytes:
    response = cri.PodSandboxStatusResponse.FromString(data)
    _fill_sandbox(response.status, offers, find)
    for status in response.containers_statuses:
        _fill_container(status, offers, find)
    return response.SerializeToString()


def patch_event(data: bytes, offers: Offers, find: FindHolder) -> bytes:
    event = cri.ContainerEventResponse.FromString(data)
    if event.HasField("pod_sandbox_status"):
        _fill_sandbox(event.pod_sandbox_status, offers, find)
    for status in event.containers_statuses:
        _fill_container(status, offers, find)
    return event.SerializeToString()


def _fill_container(status: cri.ContainerStatus, offers: Offers, find: FindHolder) -> None:
    holder = find(status.id)
    entries = assigned(offers, Level.CONTAINER, holder)
    scaled = any(offers[name].scales_shares and class_name for name, class_name in entries)
    if scaled and holder and holder.subject.cpu_shares and status.resources.linux.cpu_shares:
        # A kubelet takes what it reads here for the container's request.
        status.resources.linux.cpu_shares = holder.subject.cpu_shares
    if entries:
        del status.resources.qos_resources[:]
        for name, class_name in entries:
            status.resources.qos_resources.append(cri.ContainerQOSResource(**{"name": name, "class": class_name}))


def _fill_sandbox(status: cri.PodSandboxStatus, offers: Offers, find: FindHolder) -> None:
    del status.qos_resources[:]
    for name, class_name in assigned(offers, Level.POD, find(status.id)):
        status.qos_resources.append(cri.PodQOSResource(**{"name": name, "class": class_name}))
