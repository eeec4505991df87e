"""Time to the first output of every subcommand, as a person waits for it: a new process each time, on a terminal.

Commands that need a cluster talk to an API server started here, over TLS on loopback. `python -X importtime -m
kubeqos.cli.main COMMAND` tells where the time of one of them goes. Modules are compiled once before, as after an
installation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import describe
from kubeqos.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
TARGET_MS = 200
REPEAT = 7
SIMULATE = "examples/simulate"
OFFLINE = {
    "classify": "classify -f examples/pod-qos/pods.yaml",
    "check": "check -f examples/quota-scoping/scenario-1.yaml -f examples/quota-scoping/pods.yaml",
    "map": "map --machine kep80",
    "simulate fit": f"simulate fit -f {SIMULATE}/deployment.yaml --nodes {SIMULATE}/nodes.yaml",
    "simulate run": f"simulate run {SIMULATE}/scenario.yaml",
}
ONLINE = {
    "classes": "classes",
    "quota": "quota",
    "describe node": "describe node n",
    "describe pod": "describe pod p",
    "why": "why p",
    "top classes": "top classes",
    "top nodes": "top nodes",
    "scale-up": f"simulate scale-up --node-group {SIMULATE}/groups.yaml",
}


def main() -> None:
    print(describe())
    helps = {f"{name} --help": f"{name} --help" for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        report({"(nothing)": "", "--help": "--help", **helps, **OFFLINE}, environment)
        with api_server(Path(folder) / "data") as kubeconfig:
            report(ONLINE, {**environment, "KUBECONFIG": str(kubeconfig)})


def report(commands: dict[str, str], environment: dict[str, str]) -> None:
    for name, words in commands.items():
        first_output_ms(words.split(), environment)
        took = sorted(first_output_ms(words.split(), environment) for _ in range(REPEAT))
        print(f"{name:24} {took[REPEAT // 2]:6.0f} ms (best {took[0]:.0f})  target ≤ {TARGET_MS}")


def first_output_ms(words: list[str], environment: dict[str, str]) -> float:
    """From the start of the process to its first byte on the terminal."""
    ours, theirs = os.openpty()
    try:
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.main", *words],
            env=environment,
            cwd=ROOT,
            stdout=theirs,
            stderr=theirs,
        ):
            os.close(theirs)
            os.read(ours, 1)
            took = (time.perf_counter() - started) * 1000
            with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
                while os.read(ours, 65536):
                    pass
    finally:
        os.close(ours)
    return took


@contextmanager
def api_server(folder: Path) -> Iterator[Path]:
    """A real API server with a node, a pod and a quota."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubeqos.cli.main", "apiserver", "--data-dir", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        asyncio.run(_fill(folder / "kubeconfig"))
        yield folder / "kubeconfig"
    finally:
        process.terminate()
        process.wait()


async def _fill(kubeconfig: Path) -> None:
    from kubeqos.client.http import HttpApi
    from kubeqos.client.resources import NODES, PODS, RESOURCE_QUOTAS

    api = HttpApi.from_kubeconfig(kubeconfig)
    await api.create(NODES, {"metadata": {"name": "n"}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "app"}]}}
    await api.create(PODS, pod, "default")
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}, "default")
    await api.close()


if __name__ == "__main__":
    main()
