"""Running a plugin: sockets, registration by either route, state file, health, metrics, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry, start_http_server

from kubeqos import logs
from kubeqos.checkpoint import Checkpoint
from kubeqos.errors import ConfigurationError, RemoteError
from kubeqos.plugins import DEFAULT_REGISTRY
from kubeqos.plugins.health import health_service
from kubeqos.plugins.registration import Introduction, keep_registered, retirement
from kubeqos.plugins.sockets import call, dial, stamp
from kubeqos.qrm.messages import PLUGIN_TYPE, REGISTRATION_SERVICE, SERVICE, VERSION
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk.servicer import Servicer

log = logs.logger("kubeqos.plugin")

STATE_FORMAT = "kubeqos.qrm.plugin"
REGISTER_SECONDS = 10.0
LOOK_SECONDS = 0.5
Install = Callable[[grpc.aio.Server], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Where a plugin lives. `legacy` is a manager's own socket, for managers that do not watch a folder."""

    registry: Path = DEFAULT_REGISTRY
    name: str = ""
    state: Path | None = None
    legacy: Path | None = None
    metrics: tuple[str, int] | None = None
    retires: bool = False
    """Whether its end is for good: the node is told that nobody is to wait for it. A restart is no such end."""

    def socket(self, resource: str) -> Path:
        return self.registry / f"{self.name or resource.replace('/', '_')}.sock"


@contextlib.asynccontextmanager
async def running(plugin: Any, options: Options, install: Install = lambda _server: None) -> AsyncIterator[Servicer]:
    """Serve a plugin for the duration of a block; `install` may add services of its own to the same socket."""
    if not getattr(plugin, "resource", "") or not hasattr(plugin, "allocate"):
        raise ConfigurationError(
            f"{type(plugin).__name__} is not a plugin", remedy="give it a `resource` name and a method `allocate`"
        )
    registry = CollectorRegistry()
    checkpoint = None
    if options.state is not None:
        options.state.parent.mkdir(parents=True, exist_ok=True)
        # No container outlives the machine, and what a manager still knows it asks for again: no power cut matters.
        checkpoint = Checkpoint(options.state, format=f"{STATE_FORMAT}.{plugin.resource}", version=1, sync=False)
    servicer = Servicer(plugin, checkpoint, registry)
    for damaged in servicer.restore():
        log.error("a damaged state file was set aside", file=damaged)
    servicer.save()
    if hasattr(plugin, "on_change"):  # for plugins whose state changes between calls
        plugin.on_change(servicer.save)
    if options.metrics is not None:
        start_http_server(options.metrics[1], options.metrics[0], registry)

    def both(server: grpc.aio.Server) -> None:
        health = health_service(getattr(plugin, "health", lambda: ""))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, servicer.handlers()), health))
        install(server)

    retirement(options.registry, servicer.resource).unlink(missing_ok=True)  # here it is again
    async with _tasks(servicer, options, both):
        yield servicer
    if options.retires:
        retirement(options.registry, servicer.resource).write_text(servicer.resource)


@contextlib.asynccontextmanager
async def _tasks(servicer: Servicer, options: Options, install: Install) -> AsyncIterator[None]:
    """What a plugin does besides answering; when some of it fails for good, so does the block."""
    introduction = Introduction(PLUGIN_TYPE, servicer.resource, (VERSION,))
    socket = options.socket(servicer.resource)
    ready = asyncio.Event()
    chores = [keep_registered(socket, introduction, install, _log_status, ready=ready)]
    if options.legacy is not None:
        chores.append(_push(servicer, options.legacy, socket))
    if hasattr(servicer.plugin, "run"):
        chores.append(servicer.plugin.run())
    block = asyncio.current_task()
    failures: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)
            if block is not None:
                block.cancel()

    tasks = [asyncio.create_task(chore) for chore in chores]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        await ready.wait()
        yield
    except asyncio.CancelledError:
        if failures and block is not None:
            block.uncancel()
            raise failures[0] from None
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_status(registered: bool, error: str) -> None:
    if registered:
        log.info("registered")
    else:
        log.error("the node refuses this plugin", reason=error)


async def _push(servicer: Servicer, manager: Path, socket: Path) -> None:
    """Call `Register` whenever the manager's socket is made anew, until it agrees."""
    seen: object = None
    while True:
        current = stamp(manager)
        if current is not None and current != seen and socket.exists():
            channel = dial(manager)
            try:
                request = pb.RegisterRequest(version=VERSION, endpoint=socket.name, resource_name=servicer.resource)
                path = f"/{REGISTRATION_SERVICE}/Register"
                await call(channel, path, request, pb.Empty, seconds=REGISTER_SECONDS)
                seen = current
                log.info("registered", manager=str(manager))
            except RemoteError as error:
                log.warning("registration failed", manager=str(manager), reason=error.what)
            finally:
                await channel.close(None)
        await asyncio.sleep(LOOK_SECONDS)


def serve(
    plugin: Any,
    registry: Path | str = DEFAULT_REGISTRY,
    *,
    name: str = "",
    state: Path | str | None = None,
    legacy: Path | str | None = None,
    metrics: tuple[str, int] | None = None,
    retires: bool = False,
    install: Install = lambda _server: None,
) -> None:
    """Run a plugin until SIGTERM or SIGINT."""
    kept, manager = Path(state) if state else None, Path(legacy) if legacy else None
    options = Options(Path(registry), name, kept, manager, metrics, retires)
    logs.to_stream(sys.stdout)
    asyncio.run(serve_forever(plugin, options, install))


async def serve_forever(plugin: Any, options: Options, install: Install = lambda _server: None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with running(plugin, options, install):
        log.info("plugin is ready", resource=plugin.resource, socket=str(options.socket(plugin.resource)))
        await ended.wait()
