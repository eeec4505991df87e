"""The processes of the day: one control plane, and for each node a runtime, an agent, and its plugins or driver.

Every process can be killed and started again, and its files removed meanwhile; the runtimes alone live all day, as
containers do. Where containerd can run, two nodes are this machine itself.
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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cri.containerd import CGROUPS, Containerd, running_containerd
from tests.shared import cgroups

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
SMALL_CPU_CONFIG = """
roles:
  pinned: {dedicated: true}
advisor: {policy: fixed}
"""
"""For two CPUs: one can be somebody's own, and all others share what is left."""
HERE = ""


@dataclass(frozen=True)
class NodeKind:
    """One node: who gives CPUs away there, on which machine, and how the agent is told."""

    profile: str
    machine: str
    """A simulated one by its name; `HERE` is the machine that this runs on, with containerd and its kernel."""
    flags: Mapping[str, str]
    plugins: Sequence[str] = ()
    cpu_config: str = CPU_CONFIG
    pools: Mapping[str, range] = field(default_factory=dict)
    """Sizes that pools are given, at random."""

    def words(self) -> tuple[str, ...]:
        return ("--machine", self.machine) if self.machine else ()


SIMULATED: Mapping[str, NodeKind] = {
    "qrm": NodeKind(
        "qrm",
        "kep80",
        {"profile": "qrm", "qos-resource-plugins": "cpu,memory"},
        ("cpu", "memory"),
        pools={"online": range(8, 25, 2), "offline": range(4, 13, 2)},
    ),
    "cci": NodeKind("cci", "kep80", {"profile": "cci", "reserved-cpus": "0-1"}),
    "static": NodeKind("static", "laptop8", {"cpu-manager-policy": "static", "reserved-cpus": "0"}),
}
REAL: Mapping[str, NodeKind] = {
    "real-qrm": NodeKind(
        "qrm",
        HERE,
        {"profile": "qrm", "qos-resource-plugins": "cpu"},
        ("cpu",),
        SMALL_CPU_CONFIG,
    ),
    "real-cci": NodeKind("cci", HERE, {"profile": "cci"}),
}
"""The same on containerd: what counts there is the cpuset in /sys/fs/cgroup."""
COMMON_FLAGS: Mapping[str, str] = {
    "cgroups-per-qos": "false",  # simulated containers have none, and the others' parents are containerd's to make
    "housekeeping-interval": "1h",  # and the pressure of this machine is not theirs
}
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
    nodes: dict[str, NodeKind] = field(default_factory=dict)
    runtimes: dict[str, Containerd] = field(default_factory=dict)
    """Those of real nodes."""
    parts: dict[str, Part] = field(default_factory=dict)

    def home(self, node: str) -> Path:
        return self.folder / node

    def runtime_socket(self, node: str) -> Path:
        known = self.runtimes.get(node)
        return known.socket if known else self.home(node) / "cri.sock"

    def script(self, node: str) -> Path:
        """What the driver of a node is to do wrong."""
        return self.home(node) / "script.json"

    def lie(self, node: str) -> Path:
        """What the CPU plugin of a node is to say wrong."""
        return self.home(node) / "lie"

    def cpu_socket(self, node: str) -> Path:
        return self.home(node) / "s" / "plugins_registry" / "cpu.sock"

    def of_profile(self, profile: str) -> list[str]:
        return [name for name, kind in self.nodes.items() if kind.profile == profile]

    def watcher(self) -> list[str]:
        """How a stranger is told where to look: sockets, cgroups, and which threads are of one core."""
        words = [sys.executable, "-I", "-S", str(ROOT / "tools" / "cpuwatch.py")]
        for name, kind in self.nodes.items():
            where = f",{CGROUPS}" if kind.machine == HERE else ""
            words += ["--node", f"{name}={self.runtime_socket(name)}{where}"]
            cores = ";".join(map(str, load_machine(kind.machine).cores.values())) if kind.machine else "this"
            words += ["--cores", f"{name}={cores}"]
        return words


def parts_of(house: House, node: str) -> list[Part]:
    """Runtime, agent, plugins and driver of a node, in the order in which they start."""
    kind, home = house.nodes[node], house.home(node)
    state, registry = home / "s", home / "s" / "plugins_registry"
    registry.mkdir(parents=True)
    (home / "cpu.yaml").write_text(kind.cpu_config)

    def part(name: str, *words: str, memory: tuple[Path, ...] = ()) -> Part:
        return Part(f"{node}-{name}", list(words), home / f"{name}.log", list(memory))

    socket = f"unix://{house.runtime_socket(node)}"
    flags = {**COMMON_FLAGS, **kind.flags, "node-name": node, "state-dir": state, "pod-logs-dir": home / "logs"}
    if node in house.runtimes:
        flags["cgroup-root"] = house.runtimes[node].cgroup_parent
    told = [f"{flag}={value}" for flag, value in flags.items()]
    agent = part("agent", "bench.exclusive.agent", str(house.kubeconfig), kind.machine, socket, *told, memory=(state,))
    simulated = part("runtime", "kubeqos.cli.main", "runtime", *kind.words(), "--listen", socket)
    found = [agent] if node in house.runtimes else [simulated, agent]
    common = (*kind.words(), "--registry", str(registry))
    for plugin in kind.plugins:
        kept = home / f"{plugin}.state"
        lying = ("bench.exclusive.lying", kind.machine, str(home / "cpu.yaml"), str(registry), str(house.lie(node)))
        honest = ("kubeqos.cli.main", "plugin", plugin, *common, "--state")
        found.append(part(plugin, *(lying if plugin == "cpu" else honest), str(kept), memory=(kept,)))
    if kind.profile == "cci":
        driver = ("kubeqos.cli.main", "driver", "test", "--script", str(house.script(node)), "--name", DRIVER)
        found.append(part("driver", *driver, *common))
    return found


@contextlib.contextmanager
def real_runtime() -> Iterator[Containerd]:
    """A containerd of the day's own; whatever groups it made for pods go with it."""
    with running_containerd(Path(tempfile.mkdtemp(prefix="kqx-"))) as runtime:
        try:
            yield runtime
        finally:
            runtime.remove_pods()
            cgroups.remove(f"{runtime.cgroup_parent}/kubepods")


@contextlib.asynccontextmanager
async def running_house(nodes: Mapping[str, NodeKind]) -> AsyncIterator[House]:
    """Everything, for the duration of a block; then nothing of it."""
    folder = Path(tempfile.mkdtemp(prefix="kqx-"))
    data_dir, config = folder / "up", folder / "cluster.yaml"
    config.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nnodes: []\n")
    house = House(folder, data_dir / "kubeconfig", dict(nodes))
    with contextlib.ExitStack() as runtimes:
        for node, kind in nodes.items():
            if kind.machine == HERE:
                house.runtimes[node] = runtimes.enter_context(real_runtime())
        try:
            kubeqos("up", "--config", str(config), "--data-dir", str(data_dir), "--port", "0", "--detach")
            for part in (part for node in nodes for part in parts_of(house, node)):
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
