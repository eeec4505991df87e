"""What a simulated runtime answers to questions: statuses, lists and statistics, built from the core's state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from kubeqos.codec import encode_json
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Level
from kubeqos.cri.simulated import cgroups
from kubeqos.cri.simulated.core import Core
from kubeqos.cri.simulated.state import Container, Happened, Sandbox, State, rfc3339

RUNTIME_NAME = "kubeqos-simulated"
RUNTIME_VERSION = "0.1.0"
IMAGE_BYTES = 10_000_000
T = TypeVar("T")


def sandbox_state(sandbox: Sandbox) -> cri.PodSandboxState.ValueType:
    return cri.SANDBOX_READY if sandbox.ready else cri.SANDBOX_NOTREADY


def sandbox_status(core: Core, sandbox: Sandbox) -> cri.PodSandboxStatus:
    config = sandbox.config
    status = cri.PodSandboxStatus(
        id=sandbox.id,
        metadata=config.metadata,
        state=sandbox_state(sandbox),
        created_at=sandbox.created_ns,
        network=cri.PodSandboxNetworkStatus(ip=sandbox.ip),
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    status.linux.namespaces.options.CopyFrom(config.linux.security_context.namespace_options)
    if core.book.offers:
        handler = sandbox.runtime_handler
        for name, cls in core.book.assigned(Level.POD, sandbox.classes, sandbox.fixed_classes, handler):
            status.qos_resources.add(**{"name": name, "class": cls})
    return status


def container_status(core: Core, container: Container) -> cri.ContainerStatus:
    config = container.config
    status = cri.ContainerStatus(
        id=container.id,
        metadata=config.metadata,
        state=container.state.value,
        created_at=container.created_ns,
        started_at=container.started_ns,
        image=config.image,
        image_ref=container.image_id,
        image_id=container.image_id,
        labels=config.labels,
        annotations=config.annotations,
        mounts=config.mounts,
        log_path=container.log_path,
        resources=cri.ContainerResources(linux=container.resources),
        stop_signal=config.stop_signal,
    )
    if container.ended is not None:
        status.finished_at = container.ended.at_ns
        status.exit_code = container.ended.code
        status.reason = container.ended.reason
        status.message = container.ended.message
    if core.book.offers:
        handler = core.sandboxes[container.sandbox_id].runtime_handler
        for name, cls in core.book.assigned(Level.CONTAINER, container.classes, container.fixed_classes, handler):
            status.resources.qos_resources.add(**{"name": name, "class": cls})
    return status


def sandbox_answer(core: Core, request: cri.PodSandboxStatusRequest, now_ns: int) -> cri.PodSandboxStatusResponse:
    sandbox = core.sandbox(request.pod_sandbox_id)
    answer = cri.PodSandboxStatusResponse(
        status=sandbox_status(core, sandbox),
        containers_statuses=[container_status(core, core.containers[c]) for c in sandbox.containers],
        timestamp=now_ns,
    )
    if request.verbose:
        info = {"classes": sandbox.classes, "ip": sandbox.ip, "story": _story(core, sandbox.id)}
        answer.info["info"] = encode_json(info).decode()
    return answer


def container_answer(core: Core, request: cri.ContainerStatusRequest, now_ns: int) -> cri.ContainerStatusResponse:
    container = core.container(request.container_id)
    answer = cri.ContainerStatusResponse(status=container_status(core, container))
    if request.verbose:
        info = {
            "pid": container.pid if container.state is State.RUNNING else 0,
            "sandboxID": container.sandbox_id,
            "cgroupsPath": f"/{core.cgroup_path(container)}",
            "cgroup": core.cgroup_files(container, now_ns),
            "classes": container.classes,
            "env": {each.key: each.value.decode(errors="replace") for each in container.config.envs},
            "story": _story(core, container.id),
        }
        answer.info["info"] = encode_json(info).decode()
    return answer


def _story(core: Core, identity: str) -> list[str]:
    return [f"{rfc3339(at_ns)} {text}" for at_ns, text in core.story(identity)]


def event_message(core: Core, happened: Happened) -> cri.ContainerEventResponse:
    """An event with the statuses that the stream carries."""
    message = cri.ContainerEventResponse(
        container_id=happened.id, container_event_type=happened.kind, created_at=happened.at_ns
    )
    sandbox = core.sandboxes.get(happened.sandbox_id)
    if sandbox is not None:
        message.pod_sandbox_status.CopyFrom(sandbox_status(core, sandbox))
        message.containers_statuses.extend(container_status(core, core.containers[c]) for c in sandbox.containers)
    return message


# ---- Lists


def list_sandboxes(core: Core, request: cri.ListPodSandboxRequest, _now_ns: int) -> cri.ListPodSandboxResponse:
    wanted = request.filter
    items = [
        cri.PodSandbox(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            state=sandbox_state(sandbox),
            created_at=sandbox.created_ns,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
            runtime_handler=sandbox.runtime_handler,
        )
        for sandbox in _by_id(core.sandboxes, wanted.id)
        if (not wanted.HasField("state") or wanted.state.state == sandbox_state(sandbox))
        and _selected(wanted.label_selector, sandbox.config.labels)
    ]
    return cri.ListPodSandboxResponse(items=items)


def list_containers(core: Core, request: cri.ListContainersRequest, _now_ns: int) -> cri.ListContainersResponse:
    wanted = request.filter
    items = [
        cri.Container(
            id=container.id,
            pod_sandbox_id=container.sandbox_id,
            metadata=container.config.metadata,
            image=container.config.image,
            image_ref=container.image_id,
            image_id=container.image_id,
            state=container.state.value,
            created_at=container.created_ns,
            labels=container.config.labels,
            annotations=container.config.annotations,
        )
        for container in _by_id(core.containers, wanted.id)
        if (not wanted.HasField("state") or wanted.state.state == container.state.value)
        and wanted.pod_sandbox_id in ("", container.sandbox_id)
        and _selected(wanted.label_selector, container.config.labels)
    ]
    return cri.ListContainersResponse(containers=items)


def _by_id(all_of_them: Mapping[str, T], wanted: str) -> Iterable[T]:
    """Everything, or the one with this id; a unique beginning of an id will do, as in containerd."""
    if not wanted:
        return all_of_them.values()
    if wanted in all_of_them:
        return [all_of_them[wanted]]
    found = [value for key, value in all_of_them.items() if key.startswith(wanted)]
    return found if len(found) == 1 else []


def _selected(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


# ---- Statistics


def container_stats(core: Core, container: Container, now_ns: int) -> cri.ContainerStats:
    config = container.config
    stats = cri.ContainerStats(
        attributes=cri.ContainerAttributes(
            id=container.id, metadata=config.metadata, labels=config.labels, annotations=config.annotations
        )
    )
    usage = container.usage
    if usage is not None:
        _fill(stats.cpu, stats.memory, [container], now_ns)
        limit = cgroups.memory_limit(container.resources)
        if limit is not None:
            stats.memory.available_bytes.value = max(0, limit - usage.memory_at(now_ns))
        stats.writable_layer.timestamp = now_ns
        stats.writable_layer.fs_id.mountpoint = f"/simulated/{core.name}"
        stats.writable_layer.used_bytes.value = usage.written_at(now_ns)
        stats.writable_layer.inodes_used.value = 1
    return stats


def sandbox_stats(core: Core, sandbox: Sandbox, now_ns: int) -> cri.PodSandboxStats:
    config = sandbox.config
    containers = [core.containers[c] for c in sandbox.containers]
    running = [c for c in containers if c.state is State.RUNNING]
    stats = cri.PodSandboxStats(
        attributes=cri.PodSandboxAttributes(
            id=sandbox.id, metadata=config.metadata, labels=config.labels, annotations=config.annotations
        )
    )
    _fill(stats.linux.cpu, stats.linux.memory, containers, now_ns)
    stats.linux.process.timestamp = now_ns
    stats.linux.process.process_count.value = len(running)
    stats.linux.containers.extend(container_stats(core, container, now_ns) for container in running)
    return stats


def _fill(cpu: cri.CpuUsage, memory: cri.MemoryUsage, containers: Iterable[Container], now_ns: int) -> None:
    meters = [c.usage for c in containers if c.usage is not None]
    cpu.timestamp = memory.timestamp = now_ns
    cpu.usage_core_nano_seconds.value = sum(meter.cpu_ns_at(now_ns) for meter in meters)
    cpu.usage_nano_cores.value = sum(m.cpu_milli * 1_000_000 for m in meters if m.stopped_ns is None)
    used = sum(meter.memory_at(now_ns) for meter in meters)
    for field in (memory.working_set_bytes, memory.usage_bytes, memory.rss_bytes):
        field.value = used
    for field in (memory.page_faults, memory.major_page_faults):
        field.value = 0


def one_container_stats(core: Core, request: cri.ContainerStatsRequest, now_ns: int) -> cri.ContainerStatsResponse:
    return cri.ContainerStatsResponse(stats=container_stats(core, core.container(request.container_id), now_ns))


def all_container_stats(
    core: Core, request: cri.ListContainerStatsRequest, now_ns: int
) -> cri.ListContainerStatsResponse:
    return cri.ListContainerStatsResponse(stats=_running_stats(core, request.filter, now_ns))


def _running_stats(core: Core, wanted: cri.ContainerStatsFilter, now_ns: int) -> Iterator[cri.ContainerStats]:
    for container in _by_id(core.containers, wanted.id):
        if (
            container.state is State.RUNNING
            and wanted.pod_sandbox_id in ("", container.sandbox_id)
            and _selected(wanted.label_selector, container.config.labels)
        ):
            yield container_stats(core, container, now_ns)


def one_sandbox_stats(core: Core, request: cri.PodSandboxStatsRequest, now_ns: int) -> cri.PodSandboxStatsResponse:
    return cri.PodSandboxStatsResponse(stats=sandbox_stats(core, core.sandbox(request.pod_sandbox_id), now_ns))


def all_sandbox_stats(
    core: Core, request: cri.ListPodSandboxStatsRequest, now_ns: int
) -> cri.ListPodSandboxStatsResponse:
    wanted = request.filter
    return cri.ListPodSandboxStatsResponse(
        stats=[
            sandbox_stats(core, sandbox, now_ns)
            for sandbox in _by_id(core.sandboxes, wanted.id)
            if sandbox.ready and _selected(wanted.label_selector, sandbox.config.labels)
        ]
    )


# ---- Runtime and images


def version(_core: Core, _request: cri.VersionRequest, _now_ns: int) -> cri.VersionResponse:
    return cri.VersionResponse(
        version="0.1.0", runtime_name=RUNTIME_NAME, runtime_version=RUNTIME_VERSION, runtime_api_version="v1"
    )


def status(core: Core, request: cri.StatusRequest, _now_ns: int) -> cri.StatusResponse:
    ready = [cri.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
    answer = cri.StatusResponse(status=cri.RuntimeStatus(conditions=ready))
    if core.book.offers:
        answer.status.resources.CopyFrom(core.book.info())
    if request.verbose:
        used = {f"{name}/{cls}": count for (name, cls), count in sorted(core.book.used.items()) if count}
        counts = {"sandboxes": len(core.sandboxes), "containers": len(core.containers), "classesInUse": used}
        answer.info["config"] = encode_json({"machine": core.machine.name, **counts}).decode()
    return answer


def runtime_config(_core: Core, _request: cri.RuntimeConfigRequest, _now_ns: int) -> cri.RuntimeConfigResponse:
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))


def _image(core: Core, name: str) -> cri.Image:
    identity = core.image(name)
    return cri.Image(id=identity, repo_tags=[name], size=IMAGE_BYTES, spec=cri.ImageSpec(image=name))


def list_images(core: Core, request: cri.ListImagesRequest, _now_ns: int) -> cri.ListImagesResponse:
    wanted = request.filter.image.image
    return cri.ListImagesResponse(images=[_image(core, name) for name in core.images if wanted in ("", name)])


def image_status(core: Core, request: cri.ImageStatusRequest, _now_ns: int) -> cri.ImageStatusResponse:
    return cri.ImageStatusResponse(image=_image(core, request.image.image))


def pull_image(core: Core, request: cri.PullImageRequest, _now_ns: int) -> cri.PullImageResponse:
    return cri.PullImageResponse(image_ref=core.pull(request))


def remove_image(core: Core, request: cri.RemoveImageRequest, _now_ns: int) -> cri.RemoveImageResponse:
    asked = request.image.image  # a name or an id, as in any runtime
    for name in [name for name, identity in core.images.items() if asked in (name, identity)]:
        del core.images[name]
    return cri.RemoveImageResponse()


def image_fs_info(core: Core, _request: cri.ImageFsInfoRequest, now_ns: int) -> cri.ImageFsInfoResponse:
    usage = cri.FilesystemUsage(timestamp=now_ns)
    usage.fs_id.mountpoint = f"/simulated/{core.name}"
    usage.used_bytes.value = IMAGE_BYTES * len(core.images)
    usage.inodes_used.value = len(core.images)
    return cri.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])
