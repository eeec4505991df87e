"""Both ends of the `pluginregistration` protocol.

`Watcher` is the node's end: it looks at the registry folders twice a second, asks each socket who it is, hands the
plugin to the handler for its type, tells it the outcome, and notices when it dies or is replaced. `serve_registration`
is the plugin's end, used by the SDKs. Each socket has one task of its own, so a hung plugin holds up nobody else; only
plugins of one type and name are handled one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import grpc
import grpc.aio

from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.plugins.proto import pluginregistration_pb2 as pb
from kubeqos.plugins.sockets import Stamp, call, dial, insist, listening, services, stamp
from kubeqos.supervision import Supervisor

SERVICE = "pluginregistration.Registration"
RETIRED = ".retired"
SCAN_SECONDS = 0.5
CONNECT_SECONDS = 10.0
INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
PROBE_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
RECONNECT_SECONDS = 1.0
MOST_CHARACTERS = 512
MOST_VERSIONS = 64

log = logger("kubeqos.plugins")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as it introduced itself. `endpoint` is the socket that serves its own protocol."""

    type: str
    name: str
    endpoint: Path
    versions: tuple[str, ...]
    socket: Path


@dataclass(frozen=True, slots=True)
class Health:
    """Where one socket stands: registered or not, answering or not, and why."""

    socket: Path
    plugin: Plugin | None = None
    registered: bool = False
    answering: bool = False
    message: str = ""


class Handler(Protocol):
    """What a manager does with plugins of its type."""

    def validate(self, plugin: Plugin) -> str | None:
        """Why this plugin cannot be taken (version, name, a contradiction), or None."""

    async def register(self, plugin: Plugin) -> str | None:
        """Start to use the plugin; the text of a refusal, or None. It is asked again later after a refusal."""

    async def deregister(self, plugin: Plugin) -> None:
        """Stop using it: the socket is gone, was replaced, or nobody listens behind it."""


@runtime_checkable
class Retires(Protocol):
    """A handler whose plugins can leave for good."""

    async def retire(self, name: str) -> bool:
        """Forget a plugin that is not coming back; False if it serves. Asked again and again."""


def retirement(registry: Path, name: str) -> Path:
    """The file that says that a plugin is not coming back; its content is the plugin's name."""
    return registry / f"{name.replace('/', '_')}{RETIRED}"


class Watcher:
    """Finds plugins in registry folders and keeps them registered while they live."""

    def __init__(
        self,
        folders: Sequence[Path],
        handlers: Mapping[str, Handler],
        *,
        scan_seconds: float = SCAN_SECONDS,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.folders = tuple(folders)
        self.handlers = handlers
        self.scan_seconds = scan_seconds
        self._supervisor = supervisor or Supervisor()
        self._tasks: dict[Path, tuple[Stamp, asyncio.Task[None]]] = {}
        self._health: dict[Path, Health] = {}
        self._serial: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def health(self) -> list[Health]:
        """Every socket that is there, by path."""
        return [self._health[path] for path in sorted(self._health)]

    async def run(self) -> None:
        """Watch until cancelled; then every plugin is deregistered."""
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            while True:
                await self.scan()
                await asyncio.sleep(self.scan_seconds)
        finally:
            for path in list(self._tasks):
                await self._dismiss(path)

    async def scan(self) -> None:
        """Look once: attend to new sockets, dismiss those that are gone or were replaced."""
        found = {path: mark for folder in self.folders for path, mark in sockets_in(folder).items()}
        for path in [path for path, (mark, _) in self._tasks.items() if found.get(path) != mark]:
            await self._dismiss(path)
        for path, mark in found.items():
            if path not in self._tasks:
                self._health[path] = Health(path, message="found")
                work = self._supervisor.keep(f"plugin {path.name}", partial(self._attend, path))
                self._tasks[path] = mark, asyncio.create_task(work)
        for folder in self.folders:
            for path in folder.glob(f"*{RETIRED}"):
                await self._retire(path)

    async def _retire(self, path: Path) -> None:
        """Somebody left word that a plugin is not coming back, which holds, also over restarts, until it does."""
        try:
            name = path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return
        handlers = [one for one in self.handlers.values() if isinstance(one, Retires)]
        if not all([await one.retire(name) for one in handlers]):
            path.unlink(missing_ok=True)

    async def _dismiss(self, path: Path) -> None:
        _, task = self._tasks.pop(path)
        task.cancel()
        await asyncio.wait([task])
        self._health.pop(path, None)

    async def _attend(self, path: Path) -> None:
        """Keep one socket registered; a failure is told to the plugin and tried again, ever more slowly."""
        pause = FIRST_RETRY_SECONDS
        while True:
            channel = dial(path)
            try:
                async with self._registered(path, channel):
                    pause = FIRST_RETRY_SECONDS
                    await self._guard(path, channel)
            except KubeqosError as error:
                known = self._health[path].message == error.what
                self._note(path, registered=False, message=error.what)
                if not known:
                    log.warning("plugin is not registered", socket=str(path), reason=error.what)
            except Exception as error:  # a manager's mistake with one plugin must not lose the plugin for good
                log.exception("plugin is not registered", socket=str(path))
                self._note(path, registered=False, message=f"{type(error).__name__}: {error}")
            finally:
                await channel.close(None)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    @contextlib.asynccontextmanager
    async def _registered(self, path: Path, channel: grpc.aio.Channel) -> AsyncIterator[None]:
        await _connected(channel)
        plugin = await ask_info(path, channel)
        self._note(path, plugin=plugin, answering=True)
        lock = self._serial[plugin.type, plugin.name]
        handler = self.handlers.get(plugin.type)
        async with lock:
            refusal = await self._register(handler, plugin)
        if refusal is not None or handler is None:
            with contextlib.suppress(RemoteError):  # it may be of a kind that does not listen
                await notify(channel, refusal or "")
            raise RemoteError(f"{plugin.type} {plugin.name}: {refusal}", where=str(path))
        try:
            await notify(channel, None)
            self._note(path, registered=True, message="registered")
            log.info("plugin is registered", type=plugin.type, name=plugin.name, socket=str(path))
            yield
        finally:
            async with lock:
                await handler.deregister(plugin)
            log.info("plugin is gone", type=plugin.type, name=plugin.name, socket=str(path))

    async def _register(self, handler: Handler | None, plugin: Plugin) -> str | None:
        if handler is None:
            known = ", ".join(sorted(self.handlers)) or "none"
            return f"no handler registered for plugin type: {plugin.type} (known: {known})"
        return handler.validate(plugin) or await handler.register(plugin)

    async def _guard(self, path: Path, channel: grpc.aio.Channel) -> None:
        """Returns when nobody listens any more; a plugin that listens and does not answer stays, and is marked."""
        while True:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                await _connected(channel, RECONNECT_SECONDS)
            except TimeoutError:
                await self._probe(path, channel)

    async def _probe(self, path: Path, channel: grpc.aio.Channel) -> None:
        try:
            await ask_info(path, channel)
            self._note(path, answering=True, message="registered")
        except RemoteError as error:
            self._note(path, answering=False, message=error.what)

    def _note(self, path: Path, **facts: Any) -> None:
        self._health[path] = replace(self._health.get(path, Health(path)), **facts)


def sockets_in(folder: Path) -> dict[Path, Stamp]:
    """The sockets under a folder, at any depth, with what tells one from its successor; dot names are not looked at."""
    found: dict[Path, Stamp] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            found |= sockets_in(path)
        elif stat.S_ISSOCK(mode) and (mark := stamp(path)) is not None:
            found[path] = mark
    return found


def info_wrong(info: pb.PluginInfo) -> str:
    """Why nobody who introduces itself like this can be taken; empty if it can. Handlers judge names and versions."""
    texts = {"type": info.type, "name": info.name, "endpoint": info.endpoint}
    for what, text in (*texts.items(), *(("version", one) for one in info.supported_versions)):
        if len(text) > MOST_CHARACTERS or not text.isprintable():
            return f"its {what} {text[:80]!r} is not one: at most {MOST_CHARACTERS} printable characters are taken"
    if len(info.supported_versions) > MOST_VERSIONS:
        return f"it speaks {len(info.supported_versions)} versions, at most {MOST_VERSIONS} are taken"
    for what in ("type", "name"):
        if not texts[what]:
            return f"it gave no {what}"
    return ""


async def ask_info(socket: Path, channel: grpc.aio.Channel) -> Plugin:
    """Who listens on this socket."""
    info: pb.PluginInfo = await insist(
        lambda: call(channel, f"/{SERVICE}/GetInfo", pb.InfoRequest(), pb.PluginInfo, seconds=INFO_SECONDS)
    )
    if wrong := info_wrong(info):
        raise RemoteError(f"the plugin at {socket.name} introduces itself wrongly: {wrong}", where=str(socket))
    endpoint = Path(info.endpoint.removeprefix("unix://")) if info.endpoint else socket
    return Plugin(info.type, info.name, socket.parent / endpoint, tuple(info.supported_versions), socket)


async def notify(channel: grpc.aio.Channel, refusal: str | None) -> None:
    """Tell a plugin whether it is taken, or why not."""
    status = pb.RegistrationStatus(plugin_registered=refusal is None, error=refusal or "")
    path = f"/{SERVICE}/NotifyRegistrationStatus"
    await call(channel, path, status, pb.RegistrationStatusResponse, seconds=NOTIFY_SECONDS)


async def _connected(channel: grpc.aio.Channel, seconds: float = CONNECT_SECONDS) -> None:
    """Wait until somebody listens; the first failed attempt is enough, on one machine there is no weather."""
    try:
        async with asyncio.timeout(seconds):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise RemoteError("nobody listens on the socket")
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        raise RemoteError(f"no connection within {seconds:g} s") from None


# ---- The plugin's end


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a plugin says about itself. An empty endpoint means the registration socket itself."""

    type: str
    name: str
    versions: tuple[str, ...]
    endpoint: str = ""


StatusSink = Callable[[bool, str], None]


@contextlib.asynccontextmanager
async def serve_registration(
    socket: Path,
    introduction: Introduction,
    install: Callable[[grpc.aio.Server], None] = lambda _server: None,
    on_status: StatusSink = lambda _registered, _error: None,
) -> AsyncIterator[grpc.aio.Server]:
    """Serve a plugin in a registry folder for the duration of a block; `install` adds the plugin's own services."""

    def both(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((services(SERVICE, _Servicer(introduction, on_status), METHODS),))
        install(server)

    async with listening(socket, both) as server:
        yield server


async def keep_registered(
    socket: Path,
    introduction: Introduction,
    install: Callable[[grpc.aio.Server], None],
    on_status: StatusSink,
    *,
    ready: asyncio.Event | None = None,
) -> None:
    """Serve until cancelled, and listen anew whenever the socket was removed or taken, as a node's restart may do."""
    while True:
        async with serve_registration(socket, introduction, install, on_status):
            mine = stamp(socket)
            if ready is not None:
                ready.set()
            while stamp(socket) == mine:  # noqa: ASYNC110 - another process removes it
                await asyncio.sleep(SCAN_SECONDS)
            if stamp(socket) is not None:
                raise RemoteError(f"another plugin has taken {socket}", remedy="run one plugin for each socket name")
        log.info("the socket was removed, listening again", socket=str(socket))


METHODS: tuple[tuple[str, type[Any], type[Any]], ...] = (
    ("GetInfo", pb.InfoRequest, pb.PluginInfo),
    ("NotifyRegistrationStatus", pb.RegistrationStatus, pb.RegistrationStatusResponse),
)


class _Servicer:
    def __init__(self, introduction: Introduction, on_status: StatusSink) -> None:
        self.introduction = introduction
        self.on_status = on_status

    async def GetInfo(self, request: pb.InfoRequest, context: Any) -> pb.PluginInfo:
        said = self.introduction
        return pb.PluginInfo(
            type=said.type, name=said.name, endpoint=said.endpoint, supported_versions=list(said.versions)
        )

    async def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: Any
    ) -> pb.RegistrationStatusResponse:
        self.on_status(request.plugin_registered, request.error)
        return pb.RegistrationStatusResponse()
