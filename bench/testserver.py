"""An API server for other people's tests (`kubeqos.testing`): how long a test waits for one that knows its CRDs, the
first of a process and those after it, what importing it takes once, and how long until it is gone.

Each run is a new process with a new folder. The second figure is what the process itself took, which other work on the
machine hardly changes. Modules are compiled once before, as by whatever installed them.
"""

from __future__ import annotations

import compileall
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.machine import describe

ROOT = Path(__file__).parents[1]
REPEAT, SERVERS = 9, 4
STEPS = ("import", "first server", "later server", "its end")
Figure = tuple[float, float]
"""Seconds, and seconds of processors."""


def crd(kind: str) -> dict[str, Any]:
    """A definition as operators have them."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": {"every": {"type": "string"}, "keep": {"type": "integer", "default": 3}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ops.example.com"},
        "spec": {
            "group": "ops.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def measure() -> dict[str, list[Figure]]:
    """The steps of one process, which must not have imported the server yet."""
    found: dict[str, list[Figure]] = {step: [] for step in STEPS}
    last = time.perf_counter(), time.process_time()

    def done(step: str) -> None:
        nonlocal last
        now = time.perf_counter(), time.process_time()
        found[step].append((now[0] - last[0], now[1] - last[1]))
        last = now

    from kubeqos.testing import api_server

    done("import")
    definitions = [crd("Backup"), crd("Restore")]
    for number in range(SERVERS):
        with api_server(*definitions) as server:
            done("later server" if number else "first server")
            server.create({"apiVersion": "ops.example.com/v1", "kind": "Backup", "metadata": {"name": "daily"}})
            last = time.perf_counter(), time.process_time()
        done("its end")
    return found


def main() -> None:
    print(describe())
    compileall.compile_dir(ROOT / "src", quiet=1)
    found: dict[str, list[Figure]] = {step: [] for step in STEPS}
    script = "import json; from bench.testserver import measure; print(json.dumps(measure()))"
    for _ in range(REPEAT):
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
        for step, figures in json.loads(done.stdout).items():
            found[step] += figures
    print(f"median (best) of {REPEAT} processes with {SERVERS} servers each, two CRDs\n{'waited':>20}  {'CPU':>6}")
    for step, figures in found.items():
        waited, cpu = zip(*figures, strict=True)
        best = f"({min(waited) * 1000:.0f})"
        print(f"{statistics.median(waited) * 1000:8.0f} {best:>7} ms {statistics.median(cpu) * 1000:4.0f} ms  {step}")


if __name__ == "__main__":
    main()
