"""A simulated runtime as a process of its own: settings from files, a socket, signals.

Called by `kubeqos runtime`. A changed class table is taken on, at once with SIGHUP; SIGINT and SIGTERM end it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.server import serving
from kubeqos.cri.simulated.classes import read_classes
from kubeqos.cri.simulated.faults import parse_faults
from kubeqos.cri.simulated.runtime import SimulatedRuntime
from kubeqos.errors import InputError, KubeqosError
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.machine import Machine
from kubeqos.plugins.sockets import stamp

LOOK_SECONDS = 1.0


class ClassFile:
    """A class table that is followed, here and by `kubeqos node`; a mistake in it leaves the old one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = stamp(path)

    def offers(self) -> tuple[Advertisement, ...]:
        """What the file says now."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise InputError(f"cannot read {self.path}: {reason}") from error
        return read_classes(text, str(self.path))

    def follow(self, runtime: SimulatedRuntime, tell: Callable[[str], None], *, forced: bool = False) -> bool:
        """Offer what the file says, if it has changed or is asked for; whether the runtime offers something new."""
        seen = stamp(self.path)
        if seen == self._seen and not forced:
            return False
        self._seen = seen
        try:
            runtime.set_offers(self.offers())
        except KubeqosError as error:
            tell("\n".join(["Error: " + error.lines()[0], *error.lines()[1:], "  the old class table stays in use"]))
            return False
        tell(f"class table read again from {self.path}")
        return True


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says; without a machine (a name or a file), the one that this runs on."""

    listen: str
    machine_file: str | None = None
    classes_file: str | None = None
    cgroup_root: Path | None = None
    name: str = "simulated"
    latency: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    seed: int = 0

    def class_file(self) -> ClassFile | None:
        return None if self.classes_file is None else ClassFile(Path(self.classes_file))


async def serve(settings: Settings, tell: Callable[[str], None]) -> None:
    """Serve until a signal says to end; `tell` is given what a user wants to know."""
    machine, classes = load_machine(settings.machine_file), settings.class_file()
    offers = classes.offers() if classes else ()
    faults = parse_faults(settings.latency, settings.fault, settings.seed)
    runtime = SimulatedRuntime(machine, offers, name=settings.name, cgroup_root=settings.cgroup_root, faults=faults)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: classes and classes.follow(runtime, tell, forced=True))
    async with serving(runtime, settings.listen):
        tell(_banner(machine, offers, settings.listen))
        while not stop.is_set():
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await stop.wait()
            except TimeoutError:
                runtime.refresh_usage()
                if classes:
                    classes.follow(runtime, tell)
    await runtime.close()


def _banner(machine: Machine, offers: tuple[Advertisement, ...], listen: str) -> str:
    cpus, numa = len(machine.online), len(machine.numa)
    classes = ", ".join(f"{offer.name} ({offer.level.value})" for offer in offers) or "none"
    return f"simulated runtime on {listen}: {cpus} CPUs, {numa} NUMA node(s); QoS-class resources: {classes}"
