"""systemd over D-Bus: starts slices, sets properties of units and stops them, and hears when it has been reloaded.

What the properties are is decided in `rules.qos.unitproperties`. Called by the node's keeper of cgroups, for its
slices, and by the relay, for the cgroups that its classes change. The address is a parameter: tests bring a bus of
their own.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kubeqos.cri.enforcing.host import V1, Host, cgroup_version, write_lines
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.rules.qos.unitproperties import Properties, translated, unit_of

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
BOOTED = Path("/run/systemd/system")
CALL_SECONDS = 10.0
NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = f"{NAME}.Manager"
EXISTS, ABSENT = f"{NAME}.UnitExists", f"{NAME}.NoSuchUnit"
ENDED_JOBS = 256
log = logger("kubeqos.systemd")
_ACCOUNTING = ("CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting")


class SystemdError(RemoteError):
    """systemd refused, or cannot be reached; `name` is the D-Bus name of the error."""

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__(what, where="systemd", remedy="see `systemctl status` and `journalctl -b -u init.scope`")
        self.name = name


class Systemd:
    """The system's manager of units. Connects when it is first asked something, and again after the bus went away."""

    def __init__(self, address: str = SYSTEM_BUS) -> None:
        self._address = address
        self._bus: Any = None
        self._connecting = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._ended: deque[tuple[str, str]] = deque(maxlen=ENDED_JOBS)
        self._version = 0
        self.reloaded = asyncio.Event()
        """Set when systemd has read its configuration again, and written its own values; cleared by who waits."""

    async def version(self) -> int:
        """The release, such as 252."""
        if not self._version:
            interface = "org.freedesktop.DBus.Properties"
            (said,) = await self._call("Get", "ss", [MANAGER, "Version"], interface=interface)
            digits = "".join(letter if letter.isdigit() else " " for letter in str(said.value)).split()
            self._version = int(digits[0]) if digits else 0
        return self._version

    async def start_slice(self, unit: str, properties: Properties) -> None:
        """Let a slice be, with these properties from its first moment on; one that is there already is changed."""
        always: Properties = dict.fromkeys(_ACCOUNTING, ("b", True))
        always |= {"Description": ("s", f"kubeqos {unit}"), "DefaultDependencies": ("b", False)}
        try:
            body = [unit, "replace", _variants(always | properties), []]
            await self._job(await self._call("StartTransientUnit", "ssa(sv)a(sa(sv))", body))
        except SystemdError as error:
            if error.name != EXISTS:
                raise
            await self.set_properties(unit, properties)
            await self._job(await self._call("StartUnit", "ss", [unit, "replace"]))

    async def set_properties(self, unit: str, properties: Properties) -> None:
        """Change a unit until the next boot."""
        if properties:
            await self._call("SetUnitProperties", "sba(sv)", [unit, True, _variants(properties)])

    async def stop(self, unit: str) -> None:
        """Let a unit and its cgroup go; one that is not there is gone."""
        try:
            await self._job(await self._call("StopUnit", "ss", [unit, "replace"]))
        except SystemdError as error:
            if error.name != ABSENT:
                raise

    def close(self) -> None:
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    # ---- The bus

    async def _call(self, member: str, signature: str, body: list[Any], interface: str = MANAGER) -> Sequence[Any]:
        from dbus_fast import DBusError, Message, MessageType  # only nodes with this driver pay for it

        message = Message(
            destination=NAME, path=PATH, interface=interface, member=member, signature=signature, body=body
        )
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reply = await (await self._connected()).call(message)
        except TimeoutError as error:
            raise SystemdError(f"systemd did not answer {member} within {CALL_SECONDS:g} s") from error
        except (OSError, EOFError, DBusError) as error:
            self.close()
            raise SystemdError(f"systemd cannot be reached at {self._address}: {error}") from error
        if reply.message_type is MessageType.ERROR:
            said = f": {reply.body[0]}" if reply.body else ""
            raise SystemdError(f"systemd refused {member} of {body[0]}{said}", reply.error_name)
        found: Sequence[Any] = reply.body
        return found

    async def _connected(self) -> Any:
        from dbus_fast import Message
        from dbus_fast.aio import MessageBus

        async with self._connecting:
            if self._bus is None or not self._bus.connected:
                bus = await MessageBus(bus_address=self._address).connect()
                bus.add_message_handler(self._heard)
                rule = f"type='signal',sender='{NAME}',interface='{MANAGER}'"
                own = "org.freedesktop.DBus"
                await bus.call(
                    Message(
                        destination=own,
                        path="/org/freedesktop/DBus",
                        interface=own,
                        member="AddMatch",
                        signature="s",
                        body=[rule],
                    )
                )
                await bus.call(Message(destination=NAME, path=PATH, interface=MANAGER, member="Subscribe"))
                self._bus = bus
            return self._bus

    def _heard(self, message: Any) -> None:
        if message.interface != MANAGER:
            return
        if message.member == "Reloading" and not message.body[0]:
            self.reloaded.set()
        elif message.member == "JobRemoved":
            _, job, _, result = message.body
            self._ended.append((job, result))
            if job in self._waiting and not self._waiting[job].done():
                self._waiting[job].set_result(result)

    async def _job(self, answer: Sequence[Any]) -> None:
        """Wait until systemd has done what it has only put into its queue; it may have been faster than its answer."""
        job = str(answer[0])
        result = dict(self._ended).get(job)
        if result is None:
            self._waiting[job] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    result = await self._waiting[job]
            except TimeoutError as error:
                raise SystemdError(f"systemd did not finish {job} within {CALL_SECONDS:g} s") from error
            finally:
                del self._waiting[job]
        if result != "done":
            raise SystemdError(f"systemd ended {job} with {result!r}", f"{NAME}.JobFailed")


async def keep_informed(host: Host, again: Callable[[], Awaitable[None]]) -> None:
    """Let systemd, where it has the cgroups, know what classes set in its units; `again` sets it after a reload."""
    if is_systemds(host.cgroup_root):
        units = UnitValues(Systemd(), host.cgroup_root)
        host.on_written(units.note)
        await units.run(again)


class UnitValues:
    """Tells systemd what was written to the cgroups of its units, so that it does not go back to its own values.

    Whoever writes does not wait: the value is in force already. `run` is the other end.
    """

    def __init__(self, systemd: Systemd, root: Path) -> None:
        self._systemd = systemd
        self._root = root
        self._written: dict[str, dict[str, str]] = {}
        self._some = asyncio.Event()

    def note(self, cgroup: str, file: str, value: str) -> None:
        """A value was written. Lines of several devices add up."""
        if unit_of(cgroup):
            files = self._written.setdefault(cgroup, {})
            files[file] = f"{files[file]}\n{value}" if file in files and ":" in value else value
            self._some.set()

    async def run(self, again: Callable[[], Awaitable[None]]) -> None:
        """Tell what was noted; after a reload, let `again` write what systemd has no property for."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tell())
                tasks.create_task(self._follow(again))
        finally:
            self._systemd.close()

    async def _tell(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            written, self._written = self._written, {}
            for cgroup, files in written.items():
                try:
                    wanted = translated(files, await self._systemd.version())
                    await self._systemd.set_properties(unit_of(cgroup), wanted.properties)
                    for name in wanted.beside:  # systemd derives some from a property, such as bfq's weight
                        write_lines(_file(self._root, cgroup, name), files[name])
                except RemoteError as error:
                    if getattr(error, "name", "") != ABSENT and (kept_tree(self._root) / cgroup.strip("/")).is_dir():
                        log.warning("systemd may take back what a class has set", cgroup=cgroup, error=error.what)

    async def _follow(self, again: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._systemd.reloaded.wait()
            self._systemd.reloaded.clear()
            await again()


def _variants(properties: Properties) -> list[list[Any]]:
    from dbus_fast import Variant

    return [[name, Variant(signature, value)] for name, (signature, value) in properties.items()]


def is_systemds(root: Path) -> bool:
    """Whether the cgroups under a root are kept by a systemd that runs here."""
    own = kept_tree(root)
    return BOOTED.is_dir() and (own / "cgroup.procs").exists() and os.path.ismount(own)


def kept_tree(root: Path) -> Path:
    """Where systemd has a folder for every unit: the one tree of version 2, its own hierarchy of version 1."""
    return root / "systemd" if cgroup_version(root) == V1 else root


def _file(root: Path, cgroup: str, name: str) -> Path:
    controller = name.partition(".")[0] if cgroup_version(root) == V1 else ""
    return root / controller / cgroup.strip("/") / name
