"""Starting: a container's classes are enforced before its first instruction, or as soon after it as CRI allows.

With the OCI hook in the runtime (`gate`) the first; without it the second, unless that is not good enough for this
node. `service` hooks StartContainer up to `Starts.start_container`; the gate calls `Starts.admit`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from kubeqos.cri.classes import enforce
from kubeqos.cri.classes.keeper import ClassRefused
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.holders import Holder
from kubeqos.cri.providers.protocol import Place, Subject, SubjectGone
from kubeqos.cri.relay.gate import has_hook
from kubeqos.cri.relay.keeper import Keeper
from kubeqos.cri.relay.proxy import CallDenied, Forward
from kubeqos.cri.status import FAILED_PRECONDITION, INTERNAL, UNAVAILABLE
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger

READY_SECONDS = 10.0
NO_HOOK = "the container runtime does not run the relay's hook"
HOW = "give it the hook that `kubeqos relay-hook` prints"
log = logger("kubeqos.relay")


@dataclass(slots=True)
class Start:
    """A StartContainer under way, and what the OCI hook brought about meanwhile."""

    entered: bool = False
    reason: KubeqosError | None = None
    """Why the container was held back."""


class Starts:
    """Starts of containers with classes."""

    def __init__(self, keeper: Keeper, *, require_hook: bool = False) -> None:
        self.keeper = keeper
        self.require_hook = require_hook
        self._under_way: dict[str, Start] = {}
        self._warned = False

    async def start_container(self, data: bytes, forward: Forward) -> bytes:
        container_id = cri.StartContainerRequest.FromString(data).container_id
        async with self.keeper.lock(container_id):
            before = self.keeper.holders.get(container_id)
            if before is not None and enforce.needs_place(self.keeper.catalog, before.classes) and self.require_hook:
                await self._check_hook(before)
            start = self._under_way[container_id] = Start()
            try:
                answer = await forward(data)
            except BaseException:
                if before is not None and start.entered:
                    self.keeper.table.put(container_id, before, "not started")
                self.keeper.doubtful = True  # a container that could not be started has ended for most runtimes
                if start.reason is not None:
                    raise denied(start.reason) from start.reason
                raise
            finally:
                del self._under_way[container_id]
            if not start.entered:
                await self._enter_after_start(container_id)
            return answer

    async def admit(self, container_id: str, pid: int) -> None:
        """The OCI hook holds a container back: enforce its classes before it runs (`gate`)."""
        start = self._under_way.get(container_id)
        try:
            await until_ready(self.keeper)
            holder = self.keeper.holders.get(container_id)
            if holder is None or not enforce.acts_in_place(self.keeper.catalog, holder.classes):
                return
            await self.enter(container_id, holder.subject, await self.keeper.held_back(holder.subject, pid))
        except (CallDenied, KubeqosError) as error:
            reason = error if isinstance(error, KubeqosError) else RemoteError(error.message)
            if start is not None:
                start.reason = reason
            raise reason from error
        if start is not None:
            start.entered = True

    async def _enter_after_start(self, container_id: str) -> None:
        """Without the hook, classes take hold as soon as the runtime has said where the container runs."""
        holder = self.keeper.holders.get(container_id)
        if holder is None or not enforce.acts_in_place(self.keeper.catalog, holder.classes):
            return
        if enforce.needs_place(self.keeper.catalog, holder.classes):
            self._warn_once()
        try:
            await self.enter(container_id, holder.subject)
        except KubeqosError as error:
            if isinstance(error, SubjectGone) or await self._has_exited(container_id):
                await self.keeper.ended(container_id)  # a short life: its cgroup went before we came to it
                return
            await self._stop_unenforced(container_id)
            raise denied(error) from error

    async def enter(self, key: str, subject: Subject, place: Place | None = None) -> None:
        """Enforce the classes of a subject that has just started, as they are once its place is known."""
        await self.keeper.enter(key, place or await self._place_of(subject))

    async def _has_exited(self, container_id: str) -> bool:
        try:
            status = (await self.keeper.runtime.container_status(container_id)).status
        except CallError:
            return False
        return status.state == cri.CONTAINER_EXITED

    async def _stop_unenforced(self, container_id: str) -> None:
        """A container never runs outside the class it was promised."""
        try:
            await self.keeper.runtime.stop_container(container_id)
        except RemoteError as error:
            log.error("cannot stop a container whose class failed", container=container_id, error=error.what)
        await self.keeper.ended(container_id)

    async def _place_of(self, subject: Subject) -> Place:
        place = await self.keeper.place(subject)
        if place is None:
            raise RemoteError(f"the runtime did not tell where {subject.describe()} runs")
        return place

    async def _check_hook(self, holder: Holder) -> None:
        """Refuse to start what would run outside its class for a moment."""
        try:
            response = await self.keeper.runtime.container_status(holder.subject.id, verbose=True)
        except CallError:
            return  # the runtime's to refuse
        if not has_hook(response.info):
            raise CallDenied(FAILED_PRECONDITION, f"{holder.subject.describe()} was not started: {NO_HOOK}; {HOW}")

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(f"{NO_HOOK}: classes take hold just after a container's start", remedy=HOW)


async def until_ready(keeper: Keeper) -> None:
    """Classes are given out only when the holders agree with the runtime."""
    if keeper.ready.is_set():
        return
    try:
        async with asyncio.timeout(READY_SECONDS):
            await keeper.ready.wait()
    except TimeoutError as error:
        raise CallDenied(UNAVAILABLE, "the relay has not yet heard from the container runtime") from error


def denied(error: KubeqosError) -> CallDenied:
    """What the client is told: that it cannot have what it asked for, or that enforcing failed."""
    if isinstance(error, ClassRefused):
        return CallDenied(error.code, error.what)
    return CallDenied(INTERNAL, " ".join(line.strip() for line in error.lines()))


@contextlib.contextmanager
def denying() -> Iterator[None]:
    """An error is the client's answer."""
    try:
        yield
    except KubeqosError as error:
        raise denied(error) from error
