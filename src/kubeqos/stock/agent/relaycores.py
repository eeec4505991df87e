"""Cores for a runtime without NRI: the kubelet's calls are the keeper's events, its grants are edits of these calls.

Stands around the relay's own handlers, which give classes: what they let through to the runtime is edited here, so
cores are laid upon classes as in the NRI plugin. The decisions are the keeper's, the same for both. Run by `relaying`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kubeqos.codec import JsonError, decode_json
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relay import undo
from kubeqos.cri.relay.proxy import CallDenied, Forward, Handler, Hooks
from kubeqos.cri.relay.starting import READY_SECONDS, denied
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.status import UNAVAILABLE
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.node.cri.configs import apply_grant
from kubeqos.node.pod.observed import Stage
from kubeqos.plugins.managers import Grant
from kubeqos.stock.cores.events import ContainerEvent, PodEvent
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.quotas import NO_QUOTA

STAGES = {cri.CONTAINER_CREATED: Stage.CREATED, cri.CONTAINER_RUNNING: Stage.RUNNING}
LOOK_SECONDS = 1.0
"""How often it is looked for containers that ended by themselves, of which no call tells."""
Around = Callable[[bytes, Forward, Handler], Awaitable[bytes]]
log = logger("kubeqos.agent")


@dataclass(frozen=True, slots=True)
class Known:
    """A container that can be spoken of by its id alone, as most calls do."""

    sandbox_id: str
    pod: PodEvent
    container: ContainerEvent


class RelayCores:
    """One node's cores, in front of its runtime."""

    def __init__(self, keeper: CoreKeeper, runtime: Runtime, cgroup_version: int) -> None:
        self.keeper = keeper
        self._runtime, self._version = runtime, cgroup_version
        self._known: dict[str, Known] = {}

    def around(self, hooks: Hooks) -> Hooks:
        """The relay's hooks with ours around them."""
        ours: Mapping[str, Around] = {
            "CreateContainer": self._create,
            "StartContainer": self._start,
            "UpdateContainerResources": self._update,
            "UpdatePodSandboxResources": self._resized,
            "StopContainer": self._stopped,
            "RemoveContainer": self._stopped,
            "StopPodSandbox": self._pod_stopped,
            "RemovePodSandbox": self._pod_stopped,
        }
        paths = {f"/runtime.v1.RuntimeService/{name}".encode(): one for name, one in ours.items()}
        wrapped = {path: _wrapped(paths[path], inner) for path, inner in hooks.handlers.items() if path in paths}
        assert len(wrapped) == len(ours), "the relay has hooks of its own for all of them"
        return dataclasses.replace(hooks, handlers={**hooks.handlers, **wrapped})

    async def close(self) -> None:
        await self._runtime.close()

    # ---- What runs already

    async def synchronize(self) -> None:
        """Tell the keeper what the runtime has; raises RemoteError where it does not say."""
        pods = {one.id: one for one in await self._runtime.list_pod_sandboxes()}
        found = [await self._seen(item, pods) for item in await self._runtime.list_containers()]
        self.keeper.synchronize([pair for pair in found if pair is not None])

    async def _learn(self, container_id: str) -> None:
        """A container that was made without us, or whose creation was never answered."""
        for item in await self._runtime.list_containers(cri.ContainerFilter(id=container_id)):
            matching = cri.PodSandboxFilter(id=item.pod_sandbox_id)
            pods = {one.id: one for one in await self._runtime.list_pod_sandboxes(matching)}
            pair = await self._seen(item, pods)
            if pair is not None:
                self.keeper.meet(*pair)

    async def _seen(
        self, item: cri.Container, pods: Mapping[str, cri.PodSandbox]
    ) -> tuple[PodEvent | None, ContainerEvent] | None:
        name, stage = item.metadata.name, STAGES.get(item.state, Stage.EXITED)
        sandbox = pods.get(item.pod_sandbox_id)
        if sandbox is None or stage is Stage.EXITED:
            return None, ContainerEvent(name, item.id, stage=Stage.EXITED)
        try:
            status = await self._runtime.container_status(item.id, verbose=True)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return None  # it has just gone
            raise
        cgroup, has = _cgroup(status.info), undo.in_status(status) or undo.in_spec(status)
        meta, parent = (
            sandbox.metadata,
            cgroup.partition(":")[0] if ":" in cgroup else str(PurePosixPath(cgroup).parent),
        )
        pod = PodEvent(meta.uid, meta.namespace, meta.name, dict(sandbox.annotations), parent)
        container = ContainerEvent(name, item.id, cgroup, 0, stage, has, dict(item.annotations))
        self._known[item.id] = Known(item.pod_sandbox_id, pod, container)
        return pod, container

    async def follow(self) -> None:
        """Find ends of which no call tells, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            live = [id for row in self.keeper.table.pods.values() for id, one in row.containers.items() if one.live]
            try:
                there = {one.id for one in await self._runtime.list_containers() if one.state in STAGES}
            except RemoteError as error:
                log.warning("waiting for the container runtime", error=error.what)
                continue
            for id in live:
                if id not in there:
                    self._ended(id)

    # ---- The kubelet's calls

    async def _create(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        asked = cri.CreateContainerRequest.FromString(data).config.linux.resources

        async def edited(data: bytes) -> bytes:
            request = cri.CreateContainerRequest.FromString(data)
            meta, parent = request.sandbox_config.metadata, request.sandbox_config.linux.cgroup_parent
            pod = PodEvent(meta.uid, meta.namespace, meta.name, dict(request.sandbox_config.annotations), parent)
            container = ContainerEvent(request.config.metadata.name, cgroup=_placed(parent, "new"))
            try:
                grant = await self.keeper.decide(pod, container)
                add_to_request(request.config, asked, grant, self._version)
            except KubeqosError as error:
                raise denied(error) from error
            answer = await forward(request.SerializeToString())
            id = cri.CreateContainerResponse.FromString(answer).container_id
            made = dataclasses.replace(container, id=id, cgroup=_placed(parent, id))
            self._known[id] = Known(request.pod_sandbox_id, pod, made)
            try:
                await self.keeper.created(pod, made, grant)
            except KubeqosError as error:
                await self._undo(id)
                raise denied(error) from error
            return answer

        await self._ready()
        return await inner(data, edited)

    async def _undo(self, id: str) -> None:
        try:
            await self._runtime.remove_container(id)
        except RemoteError as error:
            log.error("cannot undo a create", id=id, error=error.what)
        self._ended(id)
        self._known.pop(id, None)

    async def _start(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        id = cri.StartContainerRequest.FromString(data).container_id
        await self._ready()
        try:
            if id not in self._known:
                await self._learn(id)
            if (known := self._known.get(id)) is None:
                return await inner(data, forward)  # the runtime's to refuse
            async with self.keeper.starting(known.pod, known.container):
                return await inner(data, forward)
        except KubeqosError as error:
            raise denied(error) from error

    async def _update(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        async def edited(data: bytes) -> bytes:
            request = cri.UpdateContainerResourcesRequest.FromString(data)
            if request.HasField("linux") and self.keeper.quotas.owns(request.container_id):
                request.linux.cpu_quota = NO_QUOTA
                data = request.SerializeToString()
            return await forward(data)

        answer = await inner(data, edited)
        self.keeper.quotas.keep()
        return answer

    async def _resized(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        answer = await inner(data, forward)
        self.keeper.quotas.keep()
        return answer

    async def _stopped(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        answer = await inner(data, forward)
        self._ended(cri.StopContainerRequest.FromString(data).container_id)  # a removal names it in the same place
        return answer

    async def _pod_stopped(self, data: bytes, forward: Forward, inner: Handler) -> bytes:
        answer = await inner(data, forward)
        sandbox_id = cri.StopPodSandboxRequest.FromString(data).pod_sandbox_id
        for id in [id for id, one in self._known.items() if one.sandbox_id == sandbox_id]:
            self._ended(id)
        return answer

    def _ended(self, id: str) -> None:
        self.keeper.ended(id)
        self._known.pop(id, None)

    async def _ready(self) -> None:
        """Nobody is given CPUs before it is known who has which."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.keeper.ready.wait()
        except TimeoutError as error:
            raise CallDenied(UNAVAILABLE, "it is not known yet what runs on this node; it is tried again") from error


def add_to_request(
    config: cri.ContainerConfig, asked: cri.LinuxContainerResources, grant: Grant, cgroup_version: int
) -> None:
    """Lay upon a create request what managers grant; a class that sets the same differently is a contradiction.

    `asked` is what the kubelet wants; what differs from it comes from a class.
    """
    resources = config.linux.resources
    for kind in ("cpuset_cpus", "cpuset_mems"):
        by_class, own = getattr(resources, kind), grant.properties.get(kind)
        if by_class != getattr(asked, kind) and own and by_class != own:
            what = f"a class sets {kind} to {by_class}, and the node's managers to {own}"
            raise RemoteError(what, remedy="leave it out of the class on nodes that hand out cores")
    apply_grant(resources, grant, cgroup_version)
    config.annotations.update(grant.annotations)
    kept = [one for one in config.envs if one.key not in grant.envs]
    del config.envs[:]
    config.envs.extend(kept)
    for name, value in grant.envs.items():
        config.envs.add(key=name, value=value.encode())
    for mount in grant.mounts:
        config.mounts.add(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
    for device in grant.devices:
        config.devices.add(
            container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
        )


def _wrapped(around: Around, inner: Handler) -> Handler:
    return lambda data, forward: around(data, forward, inner)


def _placed(parent: str, id: str) -> str:
    """Where containerd puts a container, as it writes it in the container's specification."""
    return f"{PurePosixPath(parent).name}:cri-containerd:{id}" if parent.endswith(".slice") else f"{parent}/{id}"


def _cgroup(info: Mapping[str, str]) -> str:
    """Where a container is, from the specification in its verbose status."""
    try:
        told: Any = decode_json(info.get("info", "{}").encode())
        return str(told["runtimeSpec"]["linux"]["cgroupsPath"])
    except (JsonError, KeyError, TypeError):
        return ""
