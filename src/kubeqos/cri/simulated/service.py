"""A simulated runtime as a process of its own: settings from files, a socket, signals.

Called by `kubeqos runtime`. SIGHUP reads the class table again, SIGINT and SIGTERM end it.
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

REFRESH_SECONDS = 1.0


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

    def offers(self) -> tuple[Advertisement, ...]:
        return () if self.classes_file is None else read_classes(_read(self.classes_file), self.classes_file)


async def serve(settings: Settings, tell: Callable[[str], None]) -> None:
    """Serve until a signal says to end; `tell` is given what a user wants to know."""
    machine, offers = load_machine(settings.machine_file), settings.offers()
    faults = parse_faults(settings.latency, settings.fault, settings.seed)
    runtime = SimulatedRuntime(machine, offers, name=settings.name, cgroup_root=settings.cgroup_root, faults=faults)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, runtime, settings, tell)
    async with serving(runtime, settings.listen):
        tell(_banner(machine, offers, settings.listen))
        while not stop.is_set():
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await stop.wait()
            except TimeoutError:
                runtime.refresh_usage()
    await runtime.close()


def _reload(runtime: SimulatedRuntime, settings: Settings, tell: Callable[[str], None]) -> None:
    """Offer what the file says now; with a mistake in it, go on with what was offered before."""
    try:
        runtime.set_offers(settings.offers())
        tell(f"class table read again from {settings.classes_file}")
    except KubeqosError as error:
        tell("\n".join(["Error: " + error.lines()[0], *error.lines()[1:], "  the old class table stays in use"]))


def _banner(machine: Machine, offers: tuple[Advertisement, ...], listen: str) -> str:
    cpus, numa = len(machine.online), len(machine.numa)
    classes = ", ".join(f"{offer.name} ({offer.level.value})" for offer in offers) or "none"
    return f"simulated runtime on {listen}: {cpus} CPUs, {numa} NUMA node(s); QoS-class resources: {classes}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
