"""A container runtime, as the node agent sees it: typed calls and a stream of events.

Two implementations: `cri.client.CriClient` (any CRI v1 runtime behind a socket) and
`cri.simulated.SimulatedRuntime` (in this process). Each supplies one `call` and one `events`; the typed methods here
are shared, so that both behave alike by construction. `METHODS` also drives the server that publishes a runtime.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from kubeqos.cri import relist
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relist import Seen

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
IMAGE_SERVICE = "runtime.v1.ImageService"
PROVIDERS_READY = "QOSProvidersReady"
"""Condition of a runtime that is false while a class provider is away; there is none while all are with it."""
EVENTS_PATH = f"/{RUNTIME_SERVICE}/GetContainerEvents"


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One unary CRI call and how long it may take unless the caller says otherwise."""

    name: str
    request: type[Request]
    response: type[Response]
    deadline_seconds: float = 10.0
    service: str = RUNTIME_SERVICE

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


# Queries answer from memory; whatever starts or ends processes may wait for disks and cgroups.
SLOW = 120.0
PULL = 900.0
# Stopping and executing carry their own time; the runtime gets this much on top of it.
MARGIN = 30.0

VERSION = Method("Version", cri.VersionRequest, cri.VersionResponse, 5)
STATUS = Method("Status", cri.StatusRequest, cri.StatusResponse, 5)
RUNTIME_CONFIG = Method("RuntimeConfig", cri.RuntimeConfigRequest, cri.RuntimeConfigResponse, 5)
UPDATE_RUNTIME_CONFIG = Method("UpdateRuntimeConfig", cri.UpdateRuntimeConfigRequest, cri.UpdateRuntimeConfigResponse)
RUN_POD_SANDBOX = Method("RunPodSandbox", cri.RunPodSandboxRequest, cri.RunPodSandboxResponse, SLOW * 2)
STOP_POD_SANDBOX = Method("StopPodSandbox", cri.StopPodSandboxRequest, cri.StopPodSandboxResponse, SLOW)
REMOVE_POD_SANDBOX = Method("RemovePodSandbox", cri.RemovePodSandboxRequest, cri.RemovePodSandboxResponse, SLOW)
POD_SANDBOX_STATUS = Method("PodSandboxStatus", cri.PodSandboxStatusRequest, cri.PodSandboxStatusResponse)
LIST_POD_SANDBOX = Method("ListPodSandbox", cri.ListPodSandboxRequest, cri.ListPodSandboxResponse)
CREATE_CONTAINER = Method("CreateContainer", cri.CreateContainerRequest, cri.CreateContainerResponse, SLOW)
START_CONTAINER = Method("StartContainer", cri.StartContainerRequest, cri.StartContainerResponse, SLOW)
STOP_CONTAINER = Method("StopContainer", cri.StopContainerRequest, cri.StopContainerResponse, MARGIN)
REMOVE_CONTAINER = Method("RemoveContainer", cri.RemoveContainerRequest, cri.RemoveContainerResponse, SLOW)
LIST_CONTAINERS = Method("ListContainers", cri.ListContainersRequest, cri.ListContainersResponse)
CONTAINER_STATUS = Method("ContainerStatus", cri.ContainerStatusRequest, cri.ContainerStatusResponse)
UPDATE_CONTAINER_RESOURCES = Method(
    "UpdateContainerResources", cri.UpdateContainerResourcesRequest, cri.UpdateContainerResourcesResponse, 30
)
UPDATE_POD_SANDBOX_RESOURCES = Method(
    "UpdatePodSandboxResources", cri.UpdatePodSandboxResourcesRequest, cri.UpdatePodSandboxResourcesResponse, 30
)
REOPEN_CONTAINER_LOG = Method("ReopenContainerLog", cri.ReopenContainerLogRequest, cri.ReopenContainerLogResponse)
EXEC_SYNC = Method("ExecSync", cri.ExecSyncRequest, cri.ExecSyncResponse, MARGIN)
EXEC = Method("Exec", cri.ExecRequest, cri.ExecResponse)
ATTACH = Method("Attach", cri.AttachRequest, cri.AttachResponse)
PORT_FORWARD = Method("PortForward", cri.PortForwardRequest, cri.PortForwardResponse)
CONTAINER_STATS = Method("ContainerStats", cri.ContainerStatsRequest, cri.ContainerStatsResponse)
LIST_CONTAINER_STATS = Method("ListContainerStats", cri.ListContainerStatsRequest, cri.ListContainerStatsResponse)
POD_SANDBOX_STATS = Method("PodSandboxStats", cri.PodSandboxStatsRequest, cri.PodSandboxStatsResponse)
LIST_POD_SANDBOX_STATS = Method("ListPodSandboxStats", cri.ListPodSandboxStatsRequest, cri.ListPodSandboxStatsResponse)
LIST_IMAGES = Method("ListImages", cri.ListImagesRequest, cri.ListImagesResponse, service=IMAGE_SERVICE)
IMAGE_STATUS = Method("ImageStatus", cri.ImageStatusRequest, cri.ImageStatusResponse, service=IMAGE_SERVICE)
PULL_IMAGE = Method("PullImage", cri.PullImageRequest, cri.PullImageResponse, PULL, IMAGE_SERVICE)
REMOVE_IMAGE = Method("RemoveImage", cri.RemoveImageRequest, cri.RemoveImageResponse, SLOW, IMAGE_SERVICE)
IMAGE_FS_INFO = Method("ImageFsInfo", cri.ImageFsInfoRequest, cri.ImageFsInfoResponse, service=IMAGE_SERVICE)

METHODS: tuple[Method[Any, Any], ...] = (
    VERSION,
    STATUS,
    RUNTIME_CONFIG,
    UPDATE_RUNTIME_CONFIG,
    RUN_POD_SANDBOX,
    STOP_POD_SANDBOX,
    REMOVE_POD_SANDBOX,
    POD_SANDBOX_STATUS,
    LIST_POD_SANDBOX,
    CREATE_CONTAINER,
    START_CONTAINER,
    STOP_CONTAINER,
    REMOVE_CONTAINER,
    LIST_CONTAINERS,
    CONTAINER_STATUS,
    UPDATE_CONTAINER_RESOURCES,
    UPDATE_POD_SANDBOX_RESOURCES,
    REOPEN_CONTAINER_LOG,
    EXEC_SYNC,
    EXEC,
    ATTACH,
    PORT_FORWARD,
    CONTAINER_STATS,
    LIST_CONTAINER_STATS,
    POD_SANDBOX_STATS,
    LIST_POD_SANDBOX_STATS,
    LIST_IMAGES,
    IMAGE_STATUS,
    PULL_IMAGE,
    REMOVE_IMAGE,
    IMAGE_FS_INFO,
)


def class_of(resource: cri.ContainerQOSResource | cri.PodQOSResource) -> str:
    """The `class` field of a QoS-class resource, whose name is a reserved word in Python."""
    return str(getattr(resource, "class"))


class Runtime(abc.ABC):
    """The calls that the node agent makes. Every failure is a `CallError`; every call has a deadline."""

    endpoint: str

    @abc.abstractmethod
    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        """Make one call; `timeout` in seconds replaces the method's own deadline."""

    @abc.abstractmethod
    def events(self, since: Seen | None = None) -> AsyncIterator[cri.ContainerEventResponse]:
        """What happens to containers and sandboxes from now on, or since a look; goes on however often the peer
        restarts."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Give up the connection; calls under way fail."""

    async def look(self) -> dict[str, int]:
        """How far everything is: what `events` can go on from."""
        return relist.look(await self.list_pod_sandboxes(), await self.list_containers())

    async def version(self) -> cri.VersionResponse:
        return await self.call(VERSION, cri.VersionRequest(version="v1"))

    async def status(self, *, verbose: bool = False) -> cri.StatusResponse:
        """Health, and in `status.resources` the QoS-class resources that this runtime offers (KEP-3008)."""
        return await self.call(STATUS, cri.StatusRequest(verbose=verbose))

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        return await self.call(RUNTIME_CONFIG, cri.RuntimeConfigRequest())

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, *, runtime_handler: str = "") -> str:
        """Create and start a sandbox; returns its id."""
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler)
        return (await self.call(RUN_POD_SANDBOX, request)).pod_sandbox_id

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        await self.call(STOP_POD_SANDBOX, cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        await self.call(REMOVE_POD_SANDBOX, cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))

    async def pod_sandbox_status(self, sandbox_id: str, *, verbose: bool = False) -> cri.PodSandboxStatusResponse:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=verbose)
        return await self.call(POD_SANDBOX_STATUS, request)

    async def list_pod_sandboxes(self, matching: cri.PodSandboxFilter | None = None) -> Sequence[cri.PodSandbox]:
        return (await self.call(LIST_POD_SANDBOX, cri.ListPodSandboxRequest(filter=matching))).items

    async def create_container(
        self, sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        """Create a container that can be started; returns its id."""
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config)
        return (await self.call(CREATE_CONTAINER, request)).container_id

    async def start_container(self, container_id: str) -> None:
        await self.call(START_CONTAINER, cri.StartContainerRequest(container_id=container_id))

    async def stop_container(self, container_id: str, *, grace_seconds: int = 0) -> None:
        """Ask the container to end, and kill it after the grace period; returns when it has ended."""
        request = cri.StopContainerRequest(container_id=container_id, timeout=grace_seconds)
        await self.call(STOP_CONTAINER, request, timeout=grace_seconds + STOP_CONTAINER.deadline_seconds)

    async def remove_container(self, container_id: str) -> None:
        await self.call(REMOVE_CONTAINER, cri.RemoveContainerRequest(container_id=container_id))

    async def container_status(self, container_id: str, *, verbose: bool = False) -> cri.ContainerStatusResponse:
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self.call(CONTAINER_STATUS, request)

    async def list_containers(self, matching: cri.ContainerFilter | None = None) -> Sequence[cri.Container]:
        return (await self.call(LIST_CONTAINERS, cri.ListContainersRequest(filter=matching))).containers

    async def update_container_resources(self, request: cri.UpdateContainerResourcesRequest) -> None:
        """Change limits, cpusets and classes of a container: all of it or nothing."""
        await self.call(UPDATE_CONTAINER_RESOURCES, request)

    async def update_pod_sandbox_resources(self, request: cri.UpdatePodSandboxResourcesRequest) -> None:
        await self.call(UPDATE_POD_SANDBOX_RESOURCES, request)

    async def reopen_container_log(self, container_id: str) -> None:
        await self.call(REOPEN_CONTAINER_LOG, cri.ReopenContainerLogRequest(container_id=container_id))

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: int = 10
    ) -> cri.ExecSyncResponse:
        """Run a command in a container and wait for it; the runtime ends it after the timeout."""
        request = cri.ExecSyncRequest(container_id=container_id, cmd=command, timeout=timeout_seconds)
        return await self.call(EXEC_SYNC, request, timeout=timeout_seconds + EXEC_SYNC.deadline_seconds)

    async def exec_url(self, request: cri.ExecRequest) -> str:
        """Where to open the streams of an interactive command."""
        return (await self.call(EXEC, request)).url

    async def attach_url(self, request: cri.AttachRequest) -> str:
        return (await self.call(ATTACH, request)).url

    async def port_forward_url(self, request: cri.PortForwardRequest) -> str:
        return (await self.call(PORT_FORWARD, request)).url

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        return (await self.call(CONTAINER_STATS, cri.ContainerStatsRequest(container_id=container_id))).stats

    async def list_container_stats(
        self, matching: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        return (await self.call(LIST_CONTAINER_STATS, cri.ListContainerStatsRequest(filter=matching))).stats

    async def pod_sandbox_stats(self, sandbox_id: str) -> cri.PodSandboxStats:
        return (await self.call(POD_SANDBOX_STATS, cri.PodSandboxStatsRequest(pod_sandbox_id=sandbox_id))).stats

    async def list_pod_sandbox_stats(self) -> Sequence[cri.PodSandboxStats]:
        return (await self.call(LIST_POD_SANDBOX_STATS, cri.ListPodSandboxStatsRequest())).stats

    async def image_status(self, image: str) -> cri.Image | None:
        """The image, or None when the runtime does not have it."""
        answer = await self.call(IMAGE_STATUS, cri.ImageStatusRequest(image=cri.ImageSpec(image=image)))
        return answer.image if answer.HasField("image") else None

    async def list_images(self) -> Sequence[cri.Image]:
        return (await self.call(LIST_IMAGES, cri.ListImagesRequest())).images

    async def pull_image(
        self, image: str, *, auth: cri.AuthConfig | None = None, sandbox_config: cri.PodSandboxConfig | None = None
    ) -> str:
        """Fetch an image; returns the reference by which containers use it."""
        request = cri.PullImageRequest(image=cri.ImageSpec(image=image), auth=auth, sandbox_config=sandbox_config)
        return (await self.call(PULL_IMAGE, request)).image_ref

    async def remove_image(self, image: str) -> None:
        await self.call(REMOVE_IMAGE, cri.RemoveImageRequest(image=cri.ImageSpec(image=image)))

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        return await self.call(IMAGE_FS_INFO, cri.ImageFsInfoRequest())
