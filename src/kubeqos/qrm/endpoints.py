"""The plugins of one node: who is registered, who is away since when, and which releases they still have to be told.

Registration comes in two ways (`registry`); both end here. A plugin joins only after it was brought up to date: told
the releases that it missed, and compared with the allocations.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.model.annotations.topologysummary import Down
from kubeqos.model.machine import Machine
from kubeqos.plugins.distrust import RefusedAnswers
from kubeqos.plugins.managers import NodeResource
from kubeqos.qrm.asking import Catalogue, Served
from kubeqos.qrm.edge.capacity import Capacity
from kubeqos.qrm.edge.values import name_wrong
from kubeqos.qrm.endpoint import CAPACITY, Endpoint, PluginFailure, Unusable, WrongAnswer
from kubeqos.qrm.messages import VERSION
from kubeqos.qrm.metrics import Metrics
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.settings import QrmSettings

log = logger("kubeqos.qrm")

MOST_UNRELEASED = 10_000
RELEASE_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 3.0, 300.0
REMOVE = "RemovePod"
Synchronise = Callable[[Endpoint], Awaitable[None]]


class Endpoints:
    """Plugins by the resource that they own."""

    def __init__(
        self,
        settings: QrmSettings,
        metrics: Metrics,
        refused: RefusedAnswers,
        machine: Machine | None = None,
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when a plugin comes, goes, falls silent or answers again."""
        self.settings = settings
        self.refused = refused
        self.machine = machine
        self.metrics = metrics
        self.clock = clock
        self._changed = changed
        self._by_name: dict[str, Endpoint] = {}
        self._catalogue: tuple[dict[str, pb.ResourcePluginOptions], Catalogue] = {}, Catalogue({}, settings.names)
        self._unreleased: dict[str, dict[str, None]] = {}
        self._releasing: dict[asyncio.Task[bool], str] = {}
        self._tardy: set[asyncio.Task[bool]] = set()
        """Releases that took too long: nobody waits for their plugins until they are over."""
        self._being_told: set[tuple[str, str]] = set()
        self._put_off: dict[tuple[str, str], tuple[float, float]] = {}
        """Releases that a plugin refuses, by plugin and pod: when they are due again, and the pause after that."""

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(list(self._by_name.values()))

    def get(self, name: str) -> Endpoint | None:
        return self._by_name.get(name)

    def catalogue(self) -> Catalogue:
        """What can be asked for; plugins that are away included, so that their absence is noticed."""
        said = {name: endpoint.options for name, endpoint in self._by_name.items()}
        known, catalogue = self._catalogue
        if known.keys() != said.keys() or any(known[name] is not options for name, options in said.items()):
            catalogue = Catalogue({name: self._served(name) for name in said}, self.settings.names)
            self._catalogue = said, catalogue  # every admission asks for it several times
        return catalogue

    def _served(self, name: str) -> Served:
        said = self._by_name[name].served()
        return replace(said, plugin=name, implicit=said.implicit or name in self.settings.implicit)

    # ---- Registration

    def why_not(self, name: str, versions: tuple[str, ...]) -> str | None:
        """What speaks against a plugin from the start."""
        if VERSION not in versions:
            return f"versions {', '.join(versions) or 'none'} are not supported; this node speaks {VERSION}"
        if not name:
            return "the plugin gave no resource name"
        if wrong := name_wrong(name):
            return wrong
        if name in self.settings.built_in:
            return (
                f"the built-in {name} manager of this node hands out {name}; "
                f"set its policy to none to use a plugin, or remove the plugin"
            )
        return None

    async def attach(
        self, name: str, socket: Path, synchronise: Synchronise, options: pb.ResourcePluginOptions | None = None
    ) -> str | None:
        """Take a plugin into use; the text of a refusal, or None."""
        current = self._by_name.get(name)
        if current and current.live and current.socket != socket and await current.probe():
            return f"resource {name} is served already, by the plugin at {current.socket}"
        fresh = self._endpoint(name, socket)
        if current:
            fresh.capacity = current.capacity
            await current.stop()
        self.refused.forget(name)
        fresh.connect()
        self._by_name[name] = fresh
        try:
            await self._introduce(fresh, options)
            await self.tell_missed(fresh)
            await synchronise(fresh)
        except RemoteError as error:
            await fresh.stop()
            self._forget(fresh, current)
            return error.what
        fresh.go_live()
        log.info("resource plugin is in use", resource=name, socket=str(socket))
        return None

    def _endpoint(self, name: str, socket: Path) -> Endpoint:
        deadline = self.settings.deadline_seconds
        return Endpoint(name, socket, self.metrics, deadline=deadline, clock=self.clock, changed=self._changed)

    def _forget(self, failed: Endpoint, before: Endpoint | None) -> None:
        """A plugin that never came to be used must not make its resource one that pods wait for."""
        if self._by_name.get(failed.name) is failed:
            del self._by_name[failed.name]
            if before is not None and before.served_once:  # else it was another attempt, at the same time
                self._by_name[failed.name] = before

    async def _introduce(self, endpoint: Endpoint, options: pb.ResourcePluginOptions | None) -> None:
        try:
            await endpoint.read_options()
        except PluginFailure as error:
            if not error.unimplemented:
                raise
            if options is not None:
                endpoint.take_options(options)
        for other in self:
            shared = {endpoint.name, *endpoint.options.extra_resources} & {other.name, *other.options.extra_resources}
            if other is not endpoint and shared:
                raise RemoteError(f"plugins {other.name} and {endpoint.name} both serve {', '.join(sorted(shared))}")
        await self.read_capacity(endpoint)

    async def detach(self, name: str, socket: Path) -> None:
        """The plugin at this socket is gone; one that has taken its place meanwhile is not touched."""
        endpoint = self._by_name.get(name)
        if endpoint and endpoint.socket == socket:
            await endpoint.stop()

    async def retire(self, name: str) -> bool:
        """Forget a plugin that is not coming back, with what it had and was owed; False if it serves."""
        endpoint = self._by_name.get(name)
        if endpoint is not None:
            if endpoint.live and endpoint.socket.exists():
                return False
            await endpoint.stop()
        self._by_name.pop(name, None)
        self._unreleased.pop(name, None)
        self._put_off = {key: one for key, one in self._put_off.items() if key[0] != name}
        self.metrics.unreleased.labels(name).set(0)
        self.refused.forget(name)
        self._changed()
        return True

    def expect(
        self, name: str, capacity: dict[str, Capacity], options: pb.ResourcePluginOptions, *, expired: bool = False
    ) -> None:
        """A plugin that was there before a restart: what it serves is known, and its grace begins now.

        Unless it was over already: a restart of the agent is no news of a plugin that is gone.
        """
        endpoint = self._endpoint(name, Path())
        endpoint.capacity, endpoint.options, endpoint.served_once = capacity, options, True
        endpoint.stopped_at = -math.inf if expired else self.clock()
        self._by_name.setdefault(name, endpoint)

    async def close(self) -> None:
        for task in list(self._releasing):
            task.cancel()
        for endpoint in self:
            await endpoint.stop()

    # ---- Releases

    @property
    def unreleased(self) -> dict[str, list[str]]:
        """Releases that plugins have not acknowledged."""
        return {name: list(pods) for name, pods in self._unreleased.items() if pods}

    def release_later(self, name: str, pod_uid: str) -> None:
        """Remember a release until it is acknowledged; a plugin that never comes back is not remembered for ever."""
        late = self._unreleased.setdefault(name, {})
        late[pod_uid] = None
        if len(late) > MOST_UNRELEASED:
            late.pop(next(iter(late)))

    async def release(self, pod_uid: str, asked: Collection[str], but: Collection[str] = ()) -> None:
        """Tell every plugin that a pod is gone; who cannot be told now is told later, and holds up nobody.

        Only those that were asked for something by this pod are waited for, and not for long.
        """
        others = [endpoint for endpoint in self if endpoint.name not in but]
        for endpoint in others:
            self.release_later(endpoint.name, pod_uid)
        for endpoint in others:
            task = asyncio.create_task(self._tell_gone(endpoint, pod_uid), name=f"release {pod_uid}: {endpoint.name}")
            self._releasing[task] = endpoint.name
            task.add_done_callback(self._released)
        await self._caught_up({endpoint.name for endpoint in others} & set(asked))

    def _released(self, task: asyncio.Task[bool]) -> None:
        del self._releasing[task]
        self._tardy.discard(task)

    async def _caught_up(self, names: Collection[str]) -> None:
        """Wait for the releases that these plugins are busy with, unless they were found to take long."""
        slow = {self._releasing[task] for task in self._tardy}
        busy = {task for task, name in self._releasing.items() if name in names and name not in slow}
        if busy:
            _, late = await asyncio.wait(busy, timeout=RELEASE_SECONDS)
            self._tardy |= late

    async def ask(self, endpoint: Endpoint, method: str, request: Any) -> Any:
        """A call for a pod that is being admitted, after the releases that were sent before it: it may need the room.

        A release of this very pod that came after the answer would take away what it gives.
        """
        if self._releasing:
            await self._caught_up((endpoint.name,))
        if (endpoint.name, request.pod_uid) in self._being_told:
            raise Unusable(endpoint.name, "has not acknowledged yet that the pod's last attempt is over")
        return await endpoint.call(method, request)

    async def tell_missed(self, endpoint: Endpoint) -> None:
        """Tell one plugin everything that it has missed; what it refuses comes later, and holds up nothing else."""
        for pod_uid in list(self._unreleased.get(endpoint.name, ())):
            key = endpoint.name, pod_uid
            due, _ = self._put_off.get(key, (0.0, 0.0))
            if key in self._being_told or pod_uid not in self._unreleased[endpoint.name] or self.clock() < due:
                continue
            if not await self._tell_gone(endpoint, pod_uid) and key not in self._put_off:
                return

    def withdraw(self, name: str, pod_uid: str) -> None:
        """The pod is tried again: a release of its last attempt must not reach the plugin after the new one."""
        self._unreleased.get(name, {}).pop(pod_uid, None)
        self._put_off.pop((name, pod_uid), None)

    async def _tell_gone(self, endpoint: Endpoint, pod_uid: str) -> bool:
        late = self._unreleased.setdefault(endpoint.name, {})
        self._being_told.add((endpoint.name, pod_uid))
        try:
            await endpoint.call(REMOVE, pb.RemovePodRequest(pod_uid=pod_uid))
            self._heard(endpoint, pod_uid)
            return True
        except PluginFailure as error:
            if error.unimplemented:
                self._heard(endpoint, pod_uid)
                return True
            log.warning("release is not acknowledged", resource=endpoint.name, pod=pod_uid, error=error.what)
            if not error.unreachable:
                self._refused_release(endpoint, pod_uid, error)
        except RemoteError:
            return False  # away or silent: it has said so once, and is told when it is back
        finally:
            self._being_told.discard((endpoint.name, pod_uid))
            self.metrics.unreleased.labels(endpoint.name).set(len(late))
        return False

    def _heard(self, endpoint: Endpoint, pod_uid: str) -> None:
        """A release is acknowledged."""
        self._unreleased[endpoint.name].pop(pod_uid, None)
        self._put_off.pop((endpoint.name, pod_uid), None)
        if all(name != endpoint.name for name, _ in self._put_off):
            self.refused.accept(endpoint.name, REMOVE)

    def _refused_release(self, endpoint: Endpoint, pod_uid: str, error: PluginFailure) -> None:
        """Who will not hear of it is told again, ever more slowly, and people are told."""
        _, pause = self._put_off.get((endpoint.name, pod_uid), (0.0, 0.0))
        following = min(max(2 * pause, FIRST_PAUSE_SECONDS), LAST_PAUSE_SECONDS)
        self._put_off[endpoint.name, pod_uid] = self.clock() + pause, following
        self.refused.refuse(endpoint.name, REMOVE, f"it does not take back what pod {pod_uid} held: {error.what}")

    # ---- Capacity

    async def read_capacity(self, endpoint: Endpoint) -> None:
        """Ask how much there is. What was known stays when the answer does not come (reference, regression T21)."""
        fresh = self.clock() - endpoint.capacity_at < self.settings.capacity_seconds
        if fresh and not endpoint.divides:
            return
        try:
            await endpoint.read_capacity(self.machine)
            self.refused.accept(endpoint.name, CAPACITY)
        except WrongAnswer as error:
            self.refused.refuse(endpoint.name, CAPACITY, str(error.wrong))
        except RemoteError as error:
            log.debug("capacity is not known", resource=endpoint.name, error=error.what)

    def divided(self) -> dict[str, Capacity]:
        """The resources that plugins divide among pods. One that is away makes pods wait, whatever its pools were."""
        return {
            name: one
            for endpoint in self
            for name, one in sorted(endpoint.capacity.items())
            if one.division is not None and endpoint.live
        }

    def down(self) -> list[Down]:
        """Who cannot be asked now, and which pods would have to wait for it."""
        found = []
        for endpoint in self:
            if why := endpoint.trouble:
                served = self._served(endpoint.name)
                resources = {endpoint.name, *served.extra}
                resources |= {spelled for spelled, meant in self.settings.names.items() if meant in resources}
                roles = tuple(sorted(served.roles)) if served.implicit else ()
                everybody = served.implicit and not roles
                found.append(Down(endpoint.name, why, False, tuple(sorted(resources)), everybody, roles))
        return found

    def expired(self) -> frozenset[str]:
        """Plugins that have been away longer than their grace."""
        grace, now = self.settings.stop_grace_seconds, self.clock()
        return frozenset(one.name for one in self if one.stopped_at is not None and now - one.stopped_at > grace)

    def node_resources(self) -> list[NodeResource]:
        """What plugins add to Node status; 0 for one that has been away longer than its grace."""
        found = []
        over = self.expired()
        for endpoint in self:
            expired = endpoint.name in over
            for name, one in sorted(endpoint.capacity.items()):
                if one.shown:
                    amounts = (0.0, 0.0) if expired else (one.capacity, one.allocatable)
                    found.append(NodeResource(name, *amounts))
        return found
