"""A manager of units on a bus of its own, that keeps a tree of plain files as systemd keeps cgroups.

It writes a unit's own values when the unit is made, when one of them changes and when it is reloaded: whoever has
written to the files behind its back finds that out here as on a machine with systemd.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import ErrorType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from kubeqos.cri.enforcing.systemd import ABSENT, EXISTS, MANAGER, NAME, PATH, Systemd, kept_tree
from kubeqos.rules.qos.unitproperties import INFINITY, slice_path

V1_DEFAULTS = {"CPUShares": INFINITY, "MemoryLimit": INFINITY}
V1_FILES = {"CPUShares": "cpu/cpu.shares", "MemoryLimit": "memory/memory.limit_in_bytes"}
DEFAULTS = {"CPUWeight": INFINITY, "MemoryMin": 0, "MemoryLow": 0, "MemoryHigh": INFINITY, "MemoryMax": INFINITY}
FILES = {
    "CPUWeight": "cpu.weight",
    "MemoryMin": "memory.min",
    "MemoryLow": "memory.low",
    "MemoryHigh": "memory.high",
    "MemoryMax": "memory.max",
}


class SimulatedSystemd:
    """Units by name with their properties; `calls` are the methods and units it was asked for."""

    def __init__(self, root: Path, version: str = "252.39-1~deb12u1") -> None:
        self.root = root
        self.version = version
        self.v1 = False
        """Whether the tree is one of cgroup v1, with a hierarchy for each controller."""
        self.units: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.called = asyncio.Event()
        self.bus: MessageBus | None = None
        self._jobs = 0

    def handle(self, message: Message) -> Message | None:
        if message.message_type is not MessageType.METHOD_CALL or message.path != PATH:
            return None
        if message.member == "Subscribe":
            return Message.new_method_return(message)
        if message.member == "Get":
            return Message.new_method_return(message, "v", [Variant("s", self.version)])
        unit = message.body[0]
        self.calls.append((message.member, unit))
        self.called.set()
        there = unit in self.units
        match message.member:
            case "StartTransientUnit":
                if there:
                    return Message.new_error(message, EXISTS, f"Unit {unit} was already loaded")
                self._set(unit, message.body[2])
            case "StartUnit":
                pass
            case "SetUnitProperties":
                if not there:
                    return Message.new_error(message, ABSENT, f"Unit {unit} not loaded")
                self._set(unit, message.body[2])
                return Message.new_method_return(message)
            case "StopUnit":
                if not there:
                    return Message.new_error(message, ABSENT, f"Unit {unit} not loaded")
                del self.units[unit]
                shutil.rmtree(kept_tree(self.root) / slice_path(unit).strip("/"))
            case _:
                return Message.new_error(message, ErrorType.UNKNOWN_METHOD, message.member)
        return self._queued(message, unit)

    def _queued(self, message: Message, unit: str) -> Message:
        """The job is done before the caller hears that there is one, as with slices it often is."""
        assert self.bus is not None
        self._jobs += 1
        job = f"{PATH}/job/{self._jobs}"
        self.bus.send(Message.new_signal(PATH, MANAGER, "JobRemoved", "uoss", [self._jobs, job, unit, "done"]))
        return Message.new_method_return(message, "o", [job])

    def _set(self, unit: str, properties: list[Any]) -> None:
        known = self.units.setdefault(unit, V1_DEFAULTS | DEFAULTS)
        known.update({name: variant.value for name, variant in properties})
        if self.v1:
            self._write_v1(unit, known)
            return
        folder = self.root / slice_path(unit).strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in FILES.items():
            value = known[name]
            (folder / file).write_text(("100" if name == "CPUWeight" else "max") if value == INFINITY else str(value))

    def _write_v1(self, unit: str, known: dict[str, Any]) -> None:
        (self.root / "systemd" / slice_path(unit).strip("/")).mkdir(parents=True, exist_ok=True)
        for name, file in V1_FILES.items():
            controller, _, own = file.partition("/")
            folder = self.root / controller / slice_path(unit).strip("/")
            folder.mkdir(parents=True, exist_ok=True)
            normal = "1024" if name == "CPUShares" else "-1"
            (folder / own).write_text(normal if known[name] == INFINITY else str(known[name]))

    def reload(self) -> None:
        """`systemctl daemon-reload`: every unit's own values are written again."""
        assert self.bus is not None
        self.bus.send(Message.new_signal(PATH, MANAGER, "Reloading", "b", [True]))
        for unit in self.units:
            self._set(unit, [])
        self.bus.send(Message.new_signal(PATH, MANAGER, "Reloading", "b", [False]))


@contextlib.asynccontextmanager
async def simulated_systemd(root: Path) -> AsyncIterator[tuple[SimulatedSystemd, Systemd]]:
    """The simulated systemd on a real message bus, and our side of it."""
    daemon = shutil.which("dbus-daemon")
    if daemon is None:
        pytest.skip("dbus-daemon is not installed (Debian package dbus-daemon)")
    address = f"unix:path={root}/bus"
    words = [daemon, "--session", "--nofork", "--nopidfile", "--nosyslog", f"--address={address}", "--print-address"]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        await process.stdout.readline()  # it listens now
        peer = SimulatedSystemd(root / "cgroup")
        peer.bus = await MessageBus(bus_address=address).connect()
        peer.bus.add_message_handler(peer.handle)
        await peer.bus.request_name(NAME)
        systemd = Systemd(address)
        yield peer, systemd
        systemd.close()
        peer.bus.disconnect()
    finally:
        process.kill()
        await process.wait()
