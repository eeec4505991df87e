"""The processes of the day: one control plane, and for each node a runtime, an agent, and its plugins or driver.

Every process can be killed and started again, and its files removed meanwhile; the runtimes alone live all day, as
containers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak.cluster import kubeqos, stop
from kubeqos.cluster.clusterfile import API_VERSION, KIND
from kubeqos.model.hardware.loading import load_machine

ROOT = Path(__file__).parents[2]
DRIVER = "test.cci.kubeqos.io"
CPU_CONFIG = """
reserved: "0-1,40-41"
pools:
  online: {size: 16}
  offline: {size: 8, floor: 2}
roles:
  web: {pool: online}
  etl: {pool: offline}
  pinned: {dedicated: true, fullCores: true}
  storage: {dedicated: true, numa: bind}
advisor: {policy: fixed}
"""
MACHINES: Mapping[str, str] = {"qrm": "kep80", "cci": "kep80", "static": "laptop8"}
COMMON_FLAGS: Mapping[str, str] = {
    "cgroups-per-qos": "false",  # simulated containers have none
    "housekeeping-interval": "1h",  # and the pressure of this machine is not theirs
}
FLAGS: Mapping[str, Mapping[str, str]] = {
    "qrm": {"profile": "qrm", "qos-resource-plugins": "cpu,memory"},
    "cci": {"profile": "cci", "reserved-cpus": "0-1"},
    "static": {"cpu-manager-policy": "static", "reserved-cpus": "0"},
}
"""What each agent is told."""
PATIENCE_SECONDS = 60.0


@dataclass
class Part:
    """One process, its words, and what it remembers."""

    name: str
    words: list[str]
    log: Path
    memory: list[Path] = field(default_factory=list)
    """Files and folders that are its state."""
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self.words),
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(how)
            await self.process.wait()
            self.process = None

    def forget(self) -> None:
        """Lose the state; sockets stay, for they are no memory."""
        for path in self.memory:
            if path.is_dir():
                for entry in path.iterdir():
                    if entry.is_file() and not entry.is_socket():
                        entry.unlink(missing_ok=True)
            else:
                path.unlink(missing_ok=True)


@dataclass
class House:
    """Everything that runs, by name."""

    folder: Path
    kubeconfig: Path
    parts: dict[str, Part] = field(default_factory=dict)

    def home(self, node: str) -> Path:
        return self.folder / node

    def runtime_socket(self, node: str) -> Path:
        return self.home(node) / "cri.sock"

    @property
    def script(self) -> Path:
        """What the driver is to do wrong."""
        return self.home("cci") / "script.json"

    @property
    def lie(self) -> Path:
        """What the CPU plugin is to say wrong."""
        return self.home("qrm") / "lie"

    @property
    def cpu_socket(self) -> Path:
        return self.home("qrm") / "s" / "plugins_registry" / "cpu.sock"

    def watcher(self) -> list[str]:
        """How a stranger is told where to look: sockets, and which threads are of one core."""
        words = [sys.executable, "-I", "-S", str(ROOT / "tools" / "cpuwatch.py")]
        for node, machine in MACHINES.items():
            words += ["--node", f"{node}={self.runtime_socket(node)}"]
            cores = load_machine(machine).cores
            words += ["--cores", f"{node}=" + ";".join(str(core) for core in cores.values())]
        return words


def parts_of(house: House) -> list[Part]:
    """Runtimes, agents, plugins and the driver, in the order in which they start."""
    found = []
    for node, machine in MACHINES.items():
        home = house.home(node)
        state, registry = home / "s", home / "s" / "plugins_registry"
        registry.mkdir(parents=True)
        (home / "cpu.yaml").write_text(CPU_CONFIG)

        def part(name: str, *words: str, home: Path = home, memory: tuple[Path, ...] = ()) -> Part:
            return Part(name, list(words), home / f"{name}.log", list(memory))

        socket = f"unix://{house.runtime_socket(node)}"
        found.append(part(f"{node}-runtime", "kubeqos.cli.main", "runtime", "--machine", machine, "--listen", socket))
        flags = [f"{flag}={value}" for flag, value in {**COMMON_FLAGS, **FLAGS[node]}.items()]
        flags += [f"node-name={node}", f"state-dir={state}", f"pod-logs-dir={home / 'logs'}"]
        agent = ["bench.exclusive.agent", str(house.kubeconfig), machine, socket, *flags]
        found.append(part(f"{node}-agent", *agent, memory=(state,)))
        common = ("--machine", machine, "--registry", str(registry))
        if node == "qrm":
            lying = ("bench.exclusive.lying", machine, str(home / "cpu.yaml"), str(registry), str(house.lie))
            kept = home / "cpu.state"
            found.append(part("cpu-plugin", *lying, str(kept), memory=(kept,)))
            kept = home / "memory.state"
            found.append(
                part(
                    "memory-plugin",
                    *("kubeqos.cli.main", "plugin", "memory"),
                    *common,
                    "--state",
                    str(kept),
                    memory=(kept,),
                )
            )
        if node == "cci":
            words = ("kubeqos.cli.main", "driver", "test", "--script", str(house.script), "--name", DRIVER)
            found.append(part("driver", *words, *common))
    return found


@contextlib.asynccontextmanager
async def running_house() -> AsyncIterator[House]:
    """Everything, for the duration of a block; then nothing of it."""
    folder = Path(tempfile.mkdtemp(prefix="kqx-"))
    data_dir, config = folder / "up", folder / "cluster.yaml"
    config.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nnodes: []\n")
    house = House(folder, data_dir / "kubeconfig")
    try:
        kubeqos("up", "--config", str(config), "--data-dir", str(data_dir), "--port", "0", "--detach")
        for part in parts_of(house):
            house.parts[part.name] = part
            await part.start()
            if part.name.endswith("-runtime"):
                await appears(house.runtime_socket(part.name.removesuffix("-runtime")))
        yield house
    finally:
        for part in reversed(house.parts.values()):
            await part.end()
        stop(data_dir)
        if os.environ.get("KUBEQOS_KEEP"):
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def appears(path: Path) -> None:
    """Wait for a socket of somebody else's making."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not path.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.05)
