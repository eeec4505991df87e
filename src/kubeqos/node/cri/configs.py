"""From pods to CRI: sandbox and container configurations, resource updates. Pure.

The shell passes what it knows about the node (`Context`) and the grants of the managers; everything a runtime is told
about a pod is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.objects import ContainerView
from kubeqos.node.cri.context import Context
from kubeqos.node.cri.environment import environment, expanded
from kubeqos.node.cri.observer import CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL
from kubeqos.plugins.managers import AdmittedPod, ContainerKind, ContainerRef, Grant
from kubeqos.rules.qos.cgroups import (
    cgroup_parent,
    container_values,
    hugepage_limits,
    oom_score_adj,
    page_size_name,
)
from kubeqos.rules.qos.classes import POD_QOS, Catalog, Level, container_classes, pod_classes

Raw = Mapping[str, Any]


# ---- Sandboxes


def pod_cgroup(pod: AdmittedPod, context: Context) -> str:
    """The pod's cgroup below the root of the hierarchy."""
    return context.cgroup_root.rstrip("/") + cgroup_parent(pod.view, pod.qos, context.cgroup_driver)


def pod_log_dir(pod: AdmittedPod, context: Context) -> Path:
    metadata = pod.view.metadata
    return context.log_dir / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"


def sandbox_config(pod: AdmittedPod, attempt: int, context: Context) -> cri.PodSandboxConfig:
    """What RunPodSandbox and CreateContainer are told about the pod."""
    metadata, spec = pod.view.metadata, pod.raw.get("spec") or {}
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=metadata.name, uid=metadata.uid, namespace=metadata.namespace, attempt=attempt
        ),
        hostname="" if spec.get("hostNetwork") else (spec.get("hostname") or metadata.name)[:63],
        log_directory=str(pod_log_dir(pod, context)),
        labels={**metadata.labels, **_pod_labels(pod)},
        annotations=metadata.annotations,
    )
    parent = pod_cgroup(pod, context)
    # The systemd driver wants the slice alone: its name says where it stands.
    config.linux.cgroup_parent = parent.rpartition("/")[2] if context.cgroup_driver == "systemd" else parent
    config.linux.security_context.namespace_options.CopyFrom(_namespaces(spec))
    for port in _ports(spec):
        config.port_mappings.add(**port)
    config.qos_resources.extend(_pod_classes(pod, context.classes.catalog))
    if context.classes.catalog.types:
        # For a runtime that knows classes, which need not guess it from cgroups (KEP-3008, Pass on Pod QoS class).
        config.qos_resources.add(**{"name": POD_QOS, "class": pod.qos.value})
    return config


def sandbox_update(pod: AdmittedPod, sandbox_id: str, context: Context) -> cri.UpdatePodSandboxResourcesRequest:
    """The classes that a running pod is brought to; its amounts are in cgroups that are the node's own."""
    return cri.UpdatePodSandboxResourcesRequest(
        pod_sandbox_id=sandbox_id, qos_resources=_pod_classes(pod, context.classes.catalog)
    )


def _pod_classes(pod: AdmittedPod, catalog: Catalog) -> list[cri.PodQOSResource]:
    if not catalog.types:
        return []
    level = [kind.name for kind in catalog.of_level(Level.POD)]
    return [
        cri.PodQOSResource(**{"name": name, "class": effective.class_name})
        for name, effective in pod_classes(pod.view.spec, level).items()
        if effective.class_name is not None
    ]


def _pod_labels(pod: AdmittedPod) -> dict[str, str]:
    metadata = pod.view.metadata
    return {
        POD_NAME_LABEL: metadata.name,
        POD_NAMESPACE_LABEL: metadata.namespace,
        POD_UID_LABEL: metadata.uid,
    }


def _namespaces(spec: Raw) -> cri.NamespaceOption:
    pid = cri.NODE if spec.get("hostPID") else cri.POD if spec.get("shareProcessNamespace") else cri.CONTAINER
    return cri.NamespaceOption(
        network=cri.NODE if spec.get("hostNetwork") else cri.POD,
        pid=pid,
        ipc=cri.NODE if spec.get("hostIPC") else cri.POD,
    )


def _ports(spec: Raw) -> Iterator[dict[str, Any]]:
    if spec.get("hostNetwork"):
        return
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            yield {
                "protocol": cri.Protocol.Value(port.get("protocol", "TCP")),
                "container_port": port.get("containerPort", 0),
                "host_port": port.get("hostPort", 0),
                "host_ip": port.get("hostIP", ""),
            }


# ---- Containers


def container_config(
    pod: AdmittedPod,
    ref: ContainerRef,
    attempt: int,
    grant: Grant,
    context: Context,
    *,
    pod_ip: str = "",
    lookup: Mapping[tuple[str, str], Mapping[str, str]] | None = None,
    target_id: str = "",
) -> cri.ContainerConfig:
    """What CreateContainer is told. `lookup` holds the ConfigMaps and Secrets that the environment refers to.

    `target_id` is the container whose processes an ephemeral container shall see.
    """
    raw, view = raw_container(pod, ref), container_view(pod, ref)
    # What managers set wins over the pod's own: a plugin that names its device must be believed.
    envs = dict(environment(pod, raw, context, pod_ip, lookup or {})) | dict(grant.envs)
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=ref.name, attempt=attempt),
        image=cri.ImageSpec(image=view.image, user_specified_image=view.image),
        command=[expanded(word, envs) for word in raw.get("command") or ()],
        args=[expanded(word, envs) for word in raw.get("args") or ()],
        working_dir=raw.get("workingDir", ""),
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in envs.items()],
        labels={CONTAINER_NAME_LABEL: ref.name, **_pod_labels(pod)},
        annotations={"io.kubernetes.container.restartCount": str(attempt), **grant.annotations},
        log_path=f"{ref.name}/{attempt}.log",
        stdin=raw.get("stdin", False),
        stdin_once=raw.get("stdinOnce", False),
        tty=raw.get("tty", False),
    )
    config.mounts.extend(_mounts(pod, raw, context))
    if context.folders:
        host = str(termination_log(pod, ref.name, attempt, context))
        config.mounts.add(container_path=raw.get("terminationMessagePath") or TERMINATION_PATH, host_path=host)
    for mount in grant.mounts:
        config.mounts.add(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
    for device in grant.devices:
        config.devices.add(
            container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
        )
    config.linux.resources.CopyFrom(linux_resources(pod, view, grant, context))
    config.linux.security_context.CopyFrom(_security_context(pod.raw.get("spec") or {}, raw))
    if target_id:
        options = config.linux.security_context.namespace_options
        options.pid, options.target_id = cri.TARGET, target_id
    config.qos_resources.extend(classes_of(pod, view, context.classes.catalog))
    return config


def raw_container(pod: AdmittedPod, ref: ContainerRef) -> dict[str, Any]:
    key = {ContainerKind.APP: "containers", ContainerKind.EPHEMERAL: "ephemeralContainers"}.get(
        ref.kind, "initContainers"
    )
    found: dict[str, Any] = (pod.raw.get("spec") or {})[key][ref.index]
    return found


def container_view(pod: AdmittedPod, ref: ContainerRef) -> ContainerView:
    spec = pod.view.spec
    if ref.kind is ContainerKind.EPHEMERAL:
        return spec.ephemeral_containers[ref.index]
    return (spec.containers if ref.kind is ContainerKind.APP else spec.init_containers)[ref.index]


def classes_of(pod: AdmittedPod, view: ContainerView, catalog: Catalog) -> list[cri.ContainerQOSResource]:
    """The classes that a container asks for, itself or through its pod; defaults are the runtime's to choose."""
    if not catalog.types:
        return []
    level = [kind.name for kind in catalog.of_level(Level.CONTAINER)]
    return [
        cri.ContainerQOSResource(**{"name": name, "class": effective.class_name})
        for name, effective in container_classes(pod.view.spec, view, level).items()
        if effective.class_name is not None
    ]


def linux_resources(
    pod: AdmittedPod, view: ContainerView, grant: Grant, context: Context
) -> cri.LinuxContainerResources:
    """Cgroup values by QoS class, with what the managers grant above them."""
    values = container_values(pod.view.spec, view, pod.qos, context.memory, context.cgroups)
    score = oom_score_adj(pod.view.spec, view, pod.qos, context.memory.capacity_bytes)
    resources = cri.LinuxContainerResources(
        cpu_shares=values.cpu_shares or 0,
        cpu_quota=values.cpu_quota_us or 0,
        cpu_period=values.cpu_period_us or 0,
        memory_limit_in_bytes=values.memory_limit_bytes or 0,
        oom_score_adj=score,
    )
    for size, limit in hugepage_limits(view.resources.limits, context.hugepage_sizes).items():
        resources.hugepage_limits.add(page_size=page_size_name(size), limit=limit)
    if context.cgroup_version == 2:
        resources.unified.update(values.unified)
        if context.kills_as_a_whole:
            resources.unified["memory.oom.group"] = "1"
        if context.has_swap:
            resources.unified["memory.swap.max"] = "0"  # as Kubernetes' NoSwap; a memory class may say otherwise
    apply_grant(resources, grant, context.cgroup_version)
    return resources


def apply_grant(resources: cri.LinuxContainerResources, grant: Grant, cgroup_version: int) -> None:
    """Write what managers grant over what is there."""
    if grant.unthrottled:
        resources.cpu_quota = -1
    for name, value in grant.properties.items():
        kind, _, page_size = name.partition(".")
        if page_size:
            known = [page for page in resources.hugepage_limits if page.page_size == page_size]
            (known[0] if known else resources.hugepage_limits.add(page_size=page_size)).limit = int(value)
        else:
            setattr(resources, kind, value)
    if cgroup_version == 2:
        resources.unified.update(grant.unified)


def has_grant(resources: cri.LinuxContainerResources, grant: Grant, cgroup_version: int) -> bool:
    """Whether a container with these resources has what managers grant."""
    pages = {page.page_size: page.limit for page in resources.hugepage_limits}
    for name, value in grant.properties.items():
        kind, _, page_size = name.partition(".")
        if (pages.get(page_size) if page_size else getattr(resources, kind)) != value:
            return False
    return cgroup_version != 2 or grant.unified.items() <= dict(resources.unified).items()


def resource_update(
    pod: AdmittedPod, ref: ContainerRef, container_id: str, grant: Grant, context: Context
) -> cri.UpdateContainerResourcesRequest:
    """What a running container is brought to."""
    view = container_view(pod, ref)
    return cri.UpdateContainerResourcesRequest(
        container_id=container_id,
        linux=linux_resources(pod, view, grant, context),
        qos_resources=classes_of(pod, view, context.classes.catalog),
    )


# ---- Files and rights


TERMINATION_PATH = "/dev/termination-log"


def termination_log(pod: AdmittedPod, container: str, attempt: int, context: Context) -> Path:
    """The file in which a container may leave its last words."""
    return context.state_dir / "pods" / pod.uid / "containers" / container / str(attempt)


_CLAIM = "persistentVolumeClaim"
VOLUME_FOLDERS: Mapping[str, str] = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downwardAPI": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
    _CLAIM: "kubernetes.io~claim",
    "ephemeral": "kubernetes.io~claim",
}
"""Volumes that live in the agent's own folder; `node.runtime.volumes` fills them, or has a link there for claims."""


def volume_paths(pod: AdmittedPod, context: Context) -> dict[str, Path]:
    """Where each volume that needs no plugin lives on the host."""
    paths: dict[str, Path] = {}
    for volume in pod.view.spec.volumes:
        if "hostPath" in volume:
            paths[volume["name"]] = Path(volume["hostPath"].get("path", "/"))
            continue
        for kind, folder in VOLUME_FOLDERS.items():
            if kind in volume:
                paths[volume["name"]] = context.state_dir / "pods" / pod.uid / "volumes" / folder / volume["name"]
    return paths


def _mounts(pod: AdmittedPod, raw: Raw, context: Context) -> Iterator[cri.Mount]:
    paths = volume_paths(pod, context)
    claims = {one["name"]: one[_CLAIM] for one in pod.view.spec.volumes if _CLAIM in one}
    for mount in raw.get("volumeMounts") or ():
        path = paths.get(mount.get("name", ""))
        if path is not None:
            host = path / mount["subPath"] if mount.get("subPath") else path
            readonly = bool(mount.get("readOnly") or claims.get(mount["name"], {}).get("readOnly"))
            yield cri.Mount(container_path=mount["mountPath"], host_path=str(host), readonly=readonly)


def _security_context(spec: Raw, raw: Raw) -> cri.LinuxContainerSecurityContext:
    merged: dict[str, Any] = {**(spec.get("securityContext") or {}), **(raw.get("securityContext") or {})}
    out = cri.LinuxContainerSecurityContext(
        privileged=bool(merged.get("privileged")),
        readonly_rootfs=bool(merged.get("readOnlyRootFilesystem")),
        no_new_privs=merged.get("allowPrivilegeEscalation") is False,
        namespace_options=_namespaces(spec),
        supplemental_groups=_groups(merged),
    )
    if merged.get("runAsUser") is not None:
        out.run_as_user.value = merged["runAsUser"]
    if merged.get("runAsGroup") is not None:
        out.run_as_group.value = merged["runAsGroup"]
    capabilities = merged.get("capabilities") or {}
    out.capabilities.add_capabilities.extend(capabilities.get("add") or ())
    out.capabilities.drop_capabilities.extend(capabilities.get("drop") or ())
    return out


def _groups(context: Raw) -> Sequence[int]:
    groups = list(context.get("supplementalGroups") or ())
    return groups + ([context["fsGroup"]] if context.get("fsGroup") is not None else [])
