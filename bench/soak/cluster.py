"""The cluster that is soaked: `kubeqos up` in a process of its own, in a folder that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from kubeqos.cluster.clusterfile import API_VERSION, DEFAULT_CLASSES, KIND
from kubeqos.cluster.instance import Instance

SOURCES = Path(__file__).parents[2] / "src"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster and its files."""

    data_dir: Path
    pid: int
    nodes: int

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    @property
    def database(self) -> Path:
        return self.data_dir / "kubeqos.db"

    def logs(self) -> Iterator[Path]:
        """What the cluster and the plugins beside its nodes wrote; the audit log is not about troubles."""
        yield self.data_dir / "up.log"
        yield from sorted(self.data_dir.glob("nodes/*/*.log"))

    def processes(self) -> list[int]:
        """The cluster's process and the plugins and drivers that it started."""
        found = [self.pid]
        for parent in found:
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
        return found


def plan(nodes: int) -> str:
    """A fleet of small nodes, one with resource plugins and one with a compute driver."""
    classes = yaml.safe_load(DEFAULT_CLASSES)["resources"]
    small = {"name": "node", "machine": "laptop8", "count": nodes - 2, "reservedCPUs": "0", "classes": classes}
    qrm = {"name": "qrm", "machine": "kep80", "profile": "qrm", "classes": classes}
    cci = {"name": "cci", "machine": "kep80", "profile": "cci", "reservedCPUs": "0-1", "classes": classes}
    return yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, "nodes": [small, qrm, cci]})


@contextmanager
def cluster(nodes: int, port: int) -> Iterator[Cluster]:
    """Runs for the duration of a block; what it wrote is there until the block ends."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-soak-") as name:
        config, data_dir = Path(name) / "cluster.yaml", Path(name) / "data"
        config.write_text(plan(nodes))
        try:
            print(kubeqos("up", "--config", str(config), "--data-dir", str(data_dir), "--port", str(port), "--detach"))
            running = Instance(data_dir).running()
            assert running is not None
            yield Cluster(data_dir, running.pid, nodes)
        finally:
            stop(data_dir)


def stop(data_dir: Path) -> None:
    """Stop the cluster, if it still runs."""
    if Instance(data_dir).running() is not None:
        kubeqos("down", "--data-dir", str(data_dir))


def kubeqos(*words: str) -> str:
    """The first line that a command says."""
    done = subprocess.run(
        [sys.executable, "-m", "kubeqos.cli.main", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"kubeqos {' '.join(words)}: {done.stderr}")
    return done.stdout.partition("\n")[0]
