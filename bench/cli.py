"""Time to the first output of every subcommand: a new process each time, in a pipe as a script waits for it and on a
terminal as a person does. The third column is what the whole process cost, which other work hardly changes.

Commands that need a cluster talk to one started here by `kubeqos up`, over TLS on loopback. `python -X importtime -m
kubeqos.cli.main COMMAND` tells where the time of one of them goes. Modules are compiled once before, as by `make up`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.machine import describe
from kubeqos.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
TARGET_MS = 200
REPEAT = 7
SIMULATE = "examples/simulate"
POLICIES = f"--policy {SIMULATE}/spread.yaml --policy {SIMULATE}/pack.yaml"
OFFLINE = (
    "",
    "--help",
    "--version",
    *(f"{name} --help" for name in COMMANDS),
    "classfy",
    "classify --no-such-flag",
    "classify -f no/such/file.yaml",
    "completion bash",
    "bench --list",
    "cci check tests/scenarios/claim.json",
    "classify -f examples/pod-qos/pods.yaml",
    "check -f examples/quota-scoping/scenario-1.yaml -f examples/quota-scoping/pods.yaml",
    "map --machine kep80",
    f"simulate fit -f {SIMULATE}/deployment.yaml --nodes {SIMULATE}/nodes.yaml",
    f"simulate run {SIMULATE}/scenario.yaml",
    f"simulate run {SIMULATE}/scenario.yaml -o json",
    f"simulate compare {SIMULATE}/scenario.yaml {POLICIES}",
    f"simulate compare {SIMULATE}/scenario.yaml {POLICIES} -o json",
    "down --data-dir FOLDER/none",
    "status --data-dir FOLDER/none",
)
ONLINE = (
    "up --data-dir FOLDER/cluster",
    "status --data-dir FOLDER/cluster",
    "demo --data-dir FOLDER/cluster",
    "classes",
    "quota -A",
    "describe node qrm",
    "describe pod bench",
    "describe quota bench",
    "why bench",
    "why nobody",
    "map qrm",
    "top classes",
    "top nodes",
    "top pods",
    f"simulate fit -f {SIMULATE}/deployment.yaml",
    f"simulate scale-up --node-group {SIMULATE}/groups.yaml",
    "plugin cpu pools --socket SOCKETS/qrm/plugins_registry/cpu.sock",
)
STARTING = ("up --data-dir FOLDER/other --port 0",)
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {name: bench, namespace: default}
spec: {containers: [{name: c, image: app, resources: {requests: {cpu: 1}}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: bench, namespace: default}
spec: {hard: {pods: "500"}}
"""


def main() -> None:
    print(describe())
    print(
        f"first output, median of {REPEAT} (best); target ≤ {TARGET_MS} ms\n{'pipe':>14}  {'terminal':>14}  {'CPU':>6}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        report(OFFLINE, {"FOLDER": name}, environment)
        with cluster(folder, environment) as sockets:
            environment["KUBECONFIG"] = f"{folder}/cluster/kubeconfig"
            report(ONLINE, {"FOLDER": name, "SOCKETS": sockets}, environment)
        report(STARTING, {"FOLDER": name}, environment)


def report(commands: tuple[str, ...], places: Mapping[str, str], environment: dict[str, str]) -> None:
    for command in commands:
        words = command.split()
        for place, path in places.items():
            words = [word.replace(place, path) for word in words]
        first_output(words, environment, os.pipe)
        figures = []
        for opened in (os.pipe, os.openpty):
            runs = [first_output(words, environment, opened) for _ in range(REPEAT)]
            took = sorted(first for first, _ in runs)
            figures.append(f"{took[REPEAT // 2]:4.0f} ({took[0]:.0f}) ms")
        cost = min(cost for _, cost in runs)
        print(f"{figures[0]:>14}  {figures[1]:>14}  {cost:3.0f} ms  kubeqos {command}", flush=True)


def first_output(
    words: list[str], environment: dict[str, str], opened: Callable[[], tuple[int, int]]
) -> tuple[float, float]:
    """Milliseconds from the start of a process to its first byte, and of CPU to its end.

    One that would go on is told to end.
    """
    ours, theirs = opened()
    try:
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.main", *words],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            os.read(ours, 1)
            took = (time.perf_counter() - started) * 1000
            if words[:1] in (["up"], ["demo"]):
                os.kill(process.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
                while os.read(ours, 65536):
                    pass
            _, process.returncode, used = os.wait4(process.pid, 0)
    finally:
        os.close(ours)
    return took, (used.ru_utime + used.ru_stime) * 1000


@contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The default cluster with a pod and a quota; where its nodes' sockets are."""
    from kubeqos.cluster.instance import Instance

    manifests = folder / "objects.yaml"
    manifests.write_text(OBJECTS)
    plan = folder / "cluster.yaml"
    plan.write_text(
        "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes: "
        "[{name: qrm, machine: kep80, profile: qrm}, {name: cci, machine: kep80, profile: cci}]\n"
        "manifests: [objects.yaml]\n"
    )
    kubeqos = [sys.executable, "-m", "kubeqos.cli.main"]
    here = ["--data-dir", f"{folder}/cluster"]
    subprocess.run(
        [*kubeqos, "up", "--detach", "--port", "0", "--config", plan, *here],
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    try:
        found = Instance(folder / "cluster").running()
        assert found is not None
        yield str(found.sockets)
    finally:
        subprocess.run([*kubeqos, "down", *here], env=environment, check=True, capture_output=True)


if __name__ == "__main__":
    main()
