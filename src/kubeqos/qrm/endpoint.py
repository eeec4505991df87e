"""One registered plugin as the manager talks to it: a channel, deadlines, and a memory of whether it answers.

A call that takes long is doubted: a plugin that does not answer a simple question meanwhile hangs, and is silent from
then on. Until a probe succeeds, calls to it fail at once, so that its own pods wait and nobody else does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import json_format

from kubeqos.errors import RemoteError
from kubeqos.model.machine import Machine
from kubeqos.plugins.health import examine
from kubeqos.plugins.sockets import PluginCallError, ask, call, dial, insist, method
from kubeqos.qrm.answers import Nonsense
from kubeqos.qrm.asking import Served
from kubeqos.qrm.edge.capacity import Capacity
from kubeqos.qrm.edge.messages import read_capacity, read_options
from kubeqos.qrm.messages import METHODS, SERVICE
from kubeqos.qrm.metrics import Metrics
from kubeqos.qrm.proto import resourceplugin_pb2 as pb

PROBE_SECONDS = 1.0
DOUBT_SECONDS = 1.0
CAPACITY = "GetTopologyAwareAllocatableResources"
DEFAULT_OPTIONS = pb.ResourcePluginOptions(with_topology_alignment=True, need_reconcile=True)
"""For a plugin that registers without any."""


class Endpoint:
    """A plugin: connected, silent or stopped."""

    def __init__(
        self,
        name: str,
        socket: Path,
        metrics: Metrics,
        *,
        deadline: float | None,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when it can be asked from now on, or cannot."""
        self.name = name
        self.socket = socket
        self.options = DEFAULT_OPTIONS
        self.live = False
        self.served_once = False
        """Whether it has ever been in use here: only then are pods that ask for its resource to wait for it."""
        self.silent: str | None = None
        self.stopped_at: float | None = None
        self.capacity: dict[str, Capacity] = {}
        self.capacity_at = float("-inf")
        self.lacks: set[str] = set()
        """Optional calls that it does not know."""
        self.gifts = 0
        """Grows when an allocation is asked for and when that is over: hints of another count are outdated."""
        self._saved_options: tuple[pb.ResourcePluginOptions, dict[str, Any]] | None = None
        self._metrics = metrics
        self._deadline = deadline
        self._clock = clock
        self._changed = changed
        self._was_usable = False
        self._channel: grpc.aio.Channel | None = None
        self._stubs: dict[str, Any] = {}

    @property
    def usable(self) -> bool:
        return self.live and self.silent is None

    @property
    def trouble(self) -> str | None:
        """Why it cannot be asked now."""
        if not self.live:
            return "is not connected" if self.stopped_at is not None else "is being connected"
        return self.silent

    def served(self) -> Served:
        options = self.options
        extra, roles = tuple(options.extra_resources), frozenset(options.implicit_roles)
        return Served(self.name, options.implicit, options.with_topology_alignment, extra, roles)

    def saved_options(self) -> dict[str, Any]:
        """For the ledger, which is written often: a plugin that is away after a restart is still one to be asked."""
        if self._saved_options is None or self._saved_options[0] is not self.options:
            found = json_format.MessageToDict(self.options, preserving_proto_field_name=True)
            self._saved_options = self.options, dict(found)
        return self._saved_options[1]

    def connect(self) -> None:
        self._channel, self._stubs = dial(self.socket), {}
        self.silent = None

    async def stop(self) -> None:
        """Forget the connection; the entry stays, for what it still owes and is owed."""
        if self.stopped_at is None:
            self.stopped_at = self._clock()
        self.live = False
        self._show()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    def go_live(self) -> None:
        self.live, self.served_once, self.stopped_at, self.silent = True, True, None, None
        self._show()

    def _show(self) -> None:
        """Tell whether it can be asked, to whom it is news."""
        self._metrics.up.labels(self.name).set(int(self.usable))
        if self.usable != self._was_usable:
            self._was_usable = self.usable
            self._changed()

    async def call(self, name: str, request: Any, *, seconds: float | None = None, raw: bool = False) -> Any:
        """One call; `RemoteError` says who failed and why. `raw` gives the answer's bytes."""
        if self._channel is None or self.silent is not None:
            raise Unusable(self.name, self.trouble or "is not connected")
        asked, answer, deadline = METHODS[name]
        limit = seconds or self._deadline or deadline
        started, code = time.perf_counter(), "OK"
        sent = ask(self._stub(name, asked, _Bytes if raw else answer), name, request, seconds=limit)
        try:
            return await self._doubted(sent, name, limit)
        except PluginCallError as error:
            code = error.code.name
            if error.late and not await self.probe():
                self._fall_silent(f"did not answer {name} in {limit:g} s")
            raise PluginFailure(self.name, error) from error
        except Unusable:
            code = "SILENT"
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._metrics.calls.labels(self.name, name, code).observe(time.perf_counter() - started)

    def _stub(self, name: str, asked: type[Any], answer: type[Any]) -> Any:
        if name not in self._stubs:
            assert self._channel is not None
            self._stubs[name] = method(self._channel, f"/{SERVICE}/{name}", asked, answer)
        return self._stubs[name]

    async def _doubted(self, sent: Coroutine[Any, Any, Any], name: str, limit: float) -> Any:
        """The answer; or `Unusable`, long before the deadline, when the plugin answers nothing else either."""
        waiting = asyncio.ensure_future(sent)
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=DOUBT_SECONDS)
                if done:
                    return waiting.result()
                if self._channel is None or (limit > DOUBT_SECONDS and not await self.probe() and not waiting.done()):
                    self._fall_silent(f"hangs: no answer to {name}, nor to a probe")
                    raise Unusable(self.name, self.trouble or "hangs")
        finally:
            waiting.cancel()

    def _fall_silent(self, why: str) -> None:
        self.silent = why
        self._show()

    async def probe(self) -> bool:
        """Ask a silent plugin whether it is back, and well."""
        if self._channel is None:
            return False
        try:
            await insist(self._ask_options)
        except PluginCallError:
            return False
        if not await self.well():
            return False
        self.silent = None
        self._show()
        return True

    async def _ask_options(self) -> None:
        if self._channel is not None:
            path = f"/{SERVICE}/GetResourcePluginOptions"
            await call(self._channel, path, pb.Empty(), pb.ResourcePluginOptions, seconds=PROBE_SECONDS)

    async def well(self) -> bool:
        """What the plugin says of its own health; one that says that it is ill is as good as silent."""
        if self._channel is None:
            return False
        problem = await examine(self._channel, PROBE_SECONDS)
        if problem:
            self._fall_silent(f"is not well: {problem}")
        return not problem

    async def read_options(self) -> None:
        self.take_options(await self.call("GetResourcePluginOptions", pb.Empty()))

    def take_options(self, said: pb.ResourcePluginOptions) -> None:
        options = read_options(said)
        if isinstance(options, Nonsense):
            raise WrongAnswer(self.name, options)
        self.options = options

    async def read_capacity(self, machine: Machine | None) -> None:
        """Ask how much there is; `WrongAnswer` leaves what was known before."""
        self.capacity_at = self._clock()
        found = read_capacity(await self.call(CAPACITY, pb.GetTopologyAwareAllocatableResourcesRequest()), machine)
        if isinstance(found, Nonsense):
            raise WrongAnswer(self.name, found)
        self.capacity = found
        self.capacity_at = self._clock()

    @property
    def divides(self) -> bool:
        """Whether it has told how it divides a resource, which may change at any time."""
        return any(one.division is not None for one in self.capacity.values())


class Unusable(RemoteError):
    """The plugin is away or silent; nothing was sent."""

    def __init__(self, plugin: str, why: str) -> None:
        super().__init__(f"plugin {plugin} {why}")


class PluginFailure(RemoteError):
    """The plugin was asked and said no, or said nothing."""

    def __init__(self, plugin: str, error: PluginCallError) -> None:
        super().__init__(f"plugin {plugin}: {error.what}")
        self.unreachable = error.unreachable
        self.unimplemented = is_unimplemented(error)


class WrongAnswer(RemoteError):
    """The plugin answered, and the answer cannot be used."""

    def __init__(self, plugin: str, wrong: Nonsense) -> None:
        super().__init__(f"plugin {plugin} gave a wrong answer: {wrong}")
        self.wrong = wrong


def is_unimplemented(error: PluginCallError) -> bool:
    """Katalyst's plugins return a plain Go error for the calls of the protocol that they leave out."""
    plainly = error.code is grpc.StatusCode.UNKNOWN and error.details == "not implemented"
    return plainly or error.code is grpc.StatusCode.UNIMPLEMENTED


class _Bytes:
    """An answer that is kept as it came."""

    FromString = bytes


def options_from_json(saved: Any) -> pb.ResourcePluginOptions:
    if not isinstance(saved, dict):
        return DEFAULT_OPTIONS
    try:
        return json_format.ParseDict(saved, pb.ResourcePluginOptions(), ignore_unknown_fields=True)
    except json_format.ParseError:
        return DEFAULT_OPTIONS
