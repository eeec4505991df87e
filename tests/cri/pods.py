"""Small makers of CRI configurations, so that tests read like stories."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kubeqos.cri.proto import cri_pb2 as cri
from tests.cri.images import BUSYBOX_IMAGE

_serial = itertools.count(1)


def pod(
    name: str = "web",
    *,
    uid: str | None = None,
    attempt: int = 0,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    classes: dict[str, str] | None = None,
    log_directory: str = "",
    cgroup_parent: str = "/kubepods/pod-web",
    host_network: bool = False,
) -> cri.PodSandboxConfig:
    """A sandbox configuration with a uid of its own."""
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=name, uid=uid or f"uid-{next(_serial)}", namespace="default", attempt=attempt
        ),
        log_directory=log_directory,
        labels=labels,
        annotations=annotations,
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent),
    )
    if host_network:
        config.linux.security_context.namespace_options.network = cri.NODE
    for resource, cls in (classes or {}).items():
        config.qos_resources.add(**{"name": resource, "class": cls})
    return config


def container(
    name: str = "main",
    command: Sequence[str] = (),
    *,
    attempt: int = 0,
    image: str = BUSYBOX_IMAGE,
    labels: dict[str, str] | None = None,
    classes: dict[str, str] | None = None,
    **resources: int | str,
) -> cri.ContainerConfig:
    """A container configuration; keywords are fields of LinuxContainerResources."""
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=name, attempt=attempt),
        image=cri.ImageSpec(image=image),
        command=command,
        labels=labels,
        log_path=f"{name}_{attempt}.log",
        linux=cri.LinuxContainerConfig(resources=cri.LinuxContainerResources(**resources)),  # type: ignore[arg-type]
    )
    for resource, cls in (classes or {}).items():
        config.qos_resources.add(**{"name": resource, "class": cls})
    return config


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def pod_update(sandbox_id: str, **classes: str) -> cri.UpdatePodSandboxResourcesRequest:
    """An update of a whole pod's classes."""
    request = cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox_id)
    for resource, cls in classes.items():
        request.qos_resources.add(**{"name": resource, "class": cls})
    return request


def update(
    container_id: str, *, classes: dict[str, str] | None = None, **resources: int | str
) -> cri.UpdateContainerResourcesRequest:
    """An update of a container's resources and classes."""
    request = cri.UpdateContainerResourcesRequest(container_id=container_id)
    if resources:
        request.linux.CopyFrom(cri.LinuxContainerResources(**resources))  # type: ignore[arg-type]
    for resource, cls in (classes or {}).items():
        request.qos_resources.add(**{"name": resource, "class": cls})
    return request
