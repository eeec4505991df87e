"""The shell around the simulated runtime's core: a `Runtime` in this process.

It gives the core the time, performs its effects (logs, cgroup files, events) and waits where a caller has to wait.
Thousands of them live in one process: without log or cgroup folders a node costs its core's dictionaries and one timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from kubeqos.clock import NS, Clock, Timer, WallClock
from kubeqos.cri import relist
from kubeqos.cri.errors import CallError, Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.relist import Seen
from kubeqos.cri.runtime import EXEC_SYNC, STOP_CONTAINER, Method, Request, Response, Runtime
from kubeqos.cri.simulated import views
from kubeqos.cri.simulated.core import POD_CIDR, Core
from kubeqos.cri.simulated.execution import execute
from kubeqos.cri.simulated.faults import Faults
from kubeqos.cri.simulated.files import CgroupTree, append_log
from kubeqos.cri.simulated.state import KILLED, Effect, Happened, State, Wrote
from kubeqos.logs import logger
from kubeqos.model.machine import Machine

log = logger("kubeqos.simulated")


def _no_stream(_core: Core, _request: object, _now_ns: int) -> object:
    raise RuntimeRefused(Code.UNIMPLEMENTED, "a simulated container has no streams; run the command with ExecSync")


Handler = Callable[[Core, Any, int], Any]
HANDLERS: Mapping[str, Handler] = {
    "Version": views.version,
    "Status": views.status,
    "RuntimeConfig": views.runtime_config,
    "UpdateRuntimeConfig": lambda core, request, now: cri.UpdateRuntimeConfigResponse(),
    "RunPodSandbox": Core.run_pod_sandbox,
    "StopPodSandbox": Core.stop_pod_sandbox,
    "RemovePodSandbox": Core.remove_pod_sandbox,
    "PodSandboxStatus": views.sandbox_answer,
    "ListPodSandbox": views.list_sandboxes,
    "CreateContainer": Core.create_container,
    "StartContainer": Core.start_container,
    "StopContainer": Core.stop_container,
    "RemoveContainer": Core.remove_container,
    "ListContainers": views.list_containers,
    "ContainerStatus": views.container_answer,
    "UpdateContainerResources": Core.update_container_resources,
    "UpdatePodSandboxResources": Core.update_pod_sandbox_resources,
    "ReopenContainerLog": Core.reopen_container_log,
    "ExecSync": execute,
    "Exec": _no_stream,
    "Attach": _no_stream,
    "PortForward": _no_stream,
    "ContainerStats": views.one_container_stats,
    "ListContainerStats": views.all_container_stats,
    "PodSandboxStats": views.one_sandbox_stats,
    "ListPodSandboxStats": views.all_sandbox_stats,
    "ListImages": views.list_images,
    "ImageStatus": views.image_status,
    "PullImage": views.pull_image,
    "RemoveImage": views.remove_image,
    "ImageFsInfo": views.image_fs_info,
}


class SimulatedRuntime(Runtime):
    """A container runtime without containers."""

    def __init__(
        self,
        machine: Machine,
        offers: Iterable[Advertisement] = (),
        *,
        name: str = "simulated",
        pod_cidr: str = POD_CIDR,
        clock: Clock | None = None,
        cgroup_root: Path | None = None,
        logs: bool = True,
        faults: Faults | None = None,
    ) -> None:
        self.endpoint = f"simulated:{name}"
        self.clock: Clock = clock or WallClock()
        self.core = Core(machine, offers, name=name, pod_cidr=pod_cidr, writes_cgroups=cgroup_root is not None)
        self.faults = faults
        self._tree = CgroupTree(cgroup_root) if cgroup_root is not None else None
        self._logs = logs
        self._subscribers: dict[asyncio.Queue[cri.ContainerEventResponse], None] = {}  # told in the order they came
        self._timer: Timer | None = None
        self._timer_ns: int | None = None

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        try:
            if self.faults is not None:
                await self._suffer(method.name, method.deadline_seconds if timeout is None else timeout)
            answer = self._perform(HANDLERS[method.name], request)
            if method.name == STOP_CONTAINER.name:
                answer = await self._await_end(cast(cri.StopContainerRequest, request).container_id, answer)
            elif method.name == EXEC_SYNC.name:
                await self.clock.sleep_until(answer.at_ns)
                answer = answer.answer
                if answer is None:
                    raise RuntimeRefused(Code.DEADLINE_EXCEEDED, "failed to exec in container: timeout exceeded")
        except RuntimeRefused as refused:
            raise CallError(method.name, refused.code, refused.what, endpoint=self.endpoint) from refused
        return cast(Response, answer)

    async def exec_with_input(
        self, container_id: str, command: Sequence[str], stdin: bytes, *, timeout_seconds: float
    ) -> cri.ExecSyncResponse:
        """`exec_sync` with something to read, which CRI's message has no room for."""
        request = cri.ExecSyncRequest(container_id=container_id, cmd=command, timeout=int(timeout_seconds))
        try:
            found = self._perform(lambda core, asked, now: execute(core, asked, now, stdin), request)
        except RuntimeRefused as refused:
            raise CallError(EXEC_SYNC.name, refused.code, refused.what, endpoint=self.endpoint) from refused
        await self.clock.sleep_until(found.at_ns)
        return cast(cri.ExecSyncResponse, found.answer or cri.ExecSyncResponse(exit_code=KILLED))

    async def events(self, since: Seen | None = None) -> AsyncIterator[cri.ContainerEventResponse]:
        queue: asyncio.Queue[cri.ContainerEventResponse] = asyncio.Queue()
        self._subscribers[queue] = None
        try:
            if since is not None:
                for event in self._since(since):
                    yield event
            while True:
                yield await queue.get()
        finally:
            self._subscribers.pop(queue, None)

    def _since(self, before: Seen) -> list[cri.ContainerEventResponse]:
        now_ns = self.clock.now_ns()
        sandboxes = views.list_sandboxes(self.core, cri.ListPodSandboxRequest(), now_ns).items
        containers = views.list_containers(self.core, cri.ListContainersRequest(), now_ns).containers
        return relist.passed(before, relist.look(sandboxes, containers), at_ns=now_ns)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._timer_ns = None

    def set_offers(self, offers: Iterable[Advertisement]) -> None:
        """Offer other QoS-class resources from now on."""
        self.core.set_offers(offers)

    def refresh_usage(self) -> None:
        """Bring the meters in the cgroup tree up to date."""
        now_ns = self.clock.now_ns()
        if self._tree is not None:
            for container in self.core.containers.values():
                if container.state is State.RUNNING:
                    self._tree.write(self.core.cgroup_path(container), self.core.cgroup_files(container, now_ns))

    def _perform(self, handler: Handler, request: object) -> Any:
        core, now_ns = self.core, self.clock.now_ns()
        core.advance(now_ns)
        try:
            return handler(core, request, now_ns)
        finally:
            if core.effects or (core.timers[0][0] if core.timers else None) != self._timer_ns:
                self._flush()  # most calls only ask, and leave nothing to be done

    def _flush(self) -> None:
        """Perform what the core has decided, and set the timer for what it will do by itself."""
        effects, self.core.effects = self.core.effects, []
        for effect in effects:
            try:
                self._effect(effect)
            except OSError as error:
                # As in a real runtime, a container outlives the disk that its log is on.
                log.warning("cannot write", file=error.filename, reason=error.strerror)
        self._arm()

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, Happened):
            if self._subscribers:
                message = views.event_message(self.core, effect)
                for queue in self._subscribers:
                    queue.put_nowait(message)
        elif isinstance(effect, Wrote):
            if self._logs:
                append_log(effect)
        elif self._tree is not None:
            if effect.files is None:
                self._tree.remove(effect.path)
            else:
                self._tree.write(effect.path, effect.files)

    def _arm(self) -> None:
        # The next timer may be outdated by now: then it wakes the core for nothing, once.
        due = self.core.timers[0][0] if self.core.timers else None
        if due != self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ns = due
            self._timer = None if due is None else self.clock.call_at(due, self._wake)

    def _wake(self) -> None:
        self._timer = self._timer_ns = None
        self.core.advance(self.clock.now_ns())
        self._flush()

    async def _await_end(self, container_id: str, ends_ns: int) -> cri.StopContainerResponse:
        await self.clock.sleep_until(ends_ns)
        self.core.advance(max(ends_ns, self.clock.now_ns()))
        self._flush()
        return cri.StopContainerResponse()

    async def _suffer(self, method: str, timeout: float) -> None:
        """Delay, refuse or hang a call as the faults say; never longer than its deadline."""
        assert self.faults is not None
        fate = self.faults.fate(method)
        hangs = fate.fault is not None and fate.fault.code is None
        if hangs or fate.delay_ns > timeout * NS:
            await self.clock.sleep(timeout)
            raise RuntimeRefused(Code.DEADLINE_EXCEEDED, f"no answer in {timeout:g} s")
        if fate.delay_ns:
            await self.clock.sleep(fate.delay_ns / NS)
        if fate.fault is not None and fate.fault.code is not None:
            raise RuntimeRefused(fate.fault.code, "injected fault")
