"""The node agent: admission on a large machine, an idle node with 110 pods, pod starts through a real API server.

Targets: admission p99 5 ms (CPU, memory and classes on 384 CPUs in 8 NUMA nodes, no plugins); 110 pods idle under 1 %
of a core and 120 MB; admitted → Running reported p99 150 ms at 20 pods/s. `python -m bench.node`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe
from kubeqos.client.errors import Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.cluster.fleet import Fleet, NodeShape
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import big384
from kubeqos.model.machine import Machine
from kubeqos.node.admission.ledger import FileLedger, LocalLedger
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.runtime.executor import Executor
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.topology.alignment.hints import Policy
from kubeqos.web.garbage import freeze_loaded

ADMISSION_TARGET_MS, START_TARGET_MS = 5.0, 150.0
IDLE_TARGET_PERCENT, IDLE_TARGET_MB = 1.0, 120
PODS_ON_NODE, PODS_PER_SECOND, STARTED = 110, 20, 200
IDLE_SECONDS = 20.0
OFFERS = (
    Advertisement("rdt", Level.CONTAINER, False, (ClassInfo("gold", 500), ClassInfo("silver"))),
    Advertisement("network", Level.POD, False, (ClassInfo("fast", 500), ClassInfo("slow"))),
)
GATES = FeatureGates.parse("QOSResources=true")


def pod(name: str, cpu: str = "2", *, node: str = "n1", classes: bool = True) -> dict[str, Any]:
    """A Guaranteed pod with whole CPUs, memory and classes."""
    resources: dict[str, Any] = {side: {"cpu": cpu, "memory": "1Gi"} for side in ("requests", "limits")}
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "web:1", "resources": resources}],
    }
    if classes:
        resources["qosResources"] = [{"name": "rdt", "class": "gold"}]
        spec["qosResources"] = [{"name": "network", "class": "fast"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def admitted(raw: dict[str, Any], uid: str) -> AdmittedPod:
    raw["metadata"]["uid"] = uid
    return AdmittedPod.of(raw)


def settings(folder: Path, policy: Policy = Policy.RESTRICTED) -> NodeSettings:
    return NodeSettings(
        "n1",
        folder / "state",
        log_dir=folder / "logs",
        max_pods=1000,
        cpu_manager_policy="static",
        memory_manager_policy="static",
        reserved_cpus=CpuSet.of(0, 1),
        topology_policy=policy,
        gates=GATES,
    )


def p99(samples: Sequence[float]) -> float:
    return statistics.quantiles(samples, n=100)[98]


async def admission(folder: Path) -> None:
    """The decision alone, and with the ledger written and synced, as it is in use."""
    machine = big384()
    runtime = SimulatedRuntime(machine, OFFERS, logs=False)
    pods = [admitted(pod(f"web-{n}", str(1 + n % 4)), f"uid-{n}") for n in range(400)]
    for what, ledger in (("decided", LocalLedger()), ("and on disk", FileLedger(folder / "state"))):
        agent = NodeAgent(assemble(settings(folder), runtime, machine, Hosting(ledger=ledger)))
        await agent.refresh_runtime()
        freeze_loaded()
        samples = await _admit_all(agent, pods)
        print(
            f"  admission, 384 CPUs, 8 NUMA nodes, {what}: p50 {statistics.median(samples):.2f} ms,"
            f" p99 {p99(samples):.2f} ms (target {ADMISSION_TARGET_MS:g} ms)"
        )


async def _admit_all(agent: NodeAgent, pods: Sequence[AdmittedPod]) -> list[float]:
    """Milliseconds of each admission on a node that fills to 110 pods and goes on."""
    samples = []
    for number, one in enumerate(pods):
        if number >= PODS_ON_NODE:
            await agent.admission.release(pods[number - PODS_ON_NODE].uid)
        began = time.perf_counter()
        refusal = await agent.admission.admit(one)
        samples.append((time.perf_counter() - began) * 1000)
        assert refusal is None, refusal
    return samples


@contextlib.asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[HttpApi]:
    """An API server in a process of its own."""
    words = [sys.executable, "-m", "kubeqos.cli.main", "apiserver", "--data-dir", str(folder), "--port", "0"]
    with (folder.parent / "apiserver.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=subprocess.STDOUT)
    try:
        kubeconfig = folder / "kubeconfig"
        for _ in range(300):
            if kubeconfig.exists():
                break
            await asyncio.sleep(0.1)
        api = HttpApi.from_kubeconfig(kubeconfig)
        for _ in range(100):
            with contextlib.suppress(Unreachable):
                await api.list(NODES)
                break
            await asyncio.sleep(0.1)
        yield api
        await api.close()
    finally:
        process.terminate()
        await process.wait()


class Stopwatch:
    """When pods were admitted and when Running was on record."""

    def __init__(self) -> None:
        self.admitted: dict[str, float] = {}
        self.took_ms: list[float] = []

    def hold_to(self, executor: Executor) -> None:
        """Note from now on when a pod is admitted."""
        perform = executor.perform

        async def timed(pod: PodRecord, effect: fx.Effect) -> fx.Result:
            result = await perform(pod, effect)
            if isinstance(effect, fx.Admit):
                self.admitted[effect.uid] = time.perf_counter()
            return result

        executor.perform = timed  # type: ignore[method-assign]


class TimedApi(HttpApi):
    """Notes when a status that says Running has been acknowledged."""

    stopwatch: Stopwatch

    async def patch(self, *args: Any, **more: Any) -> Any:
        answer = await super().patch(*args, **more)
        status, uid = answer.get("status") or {}, answer["metadata"]["uid"]
        if status.get("phase") == "Running" and uid in self.stopwatch.admitted:
            self.stopwatch.took_ms.append((time.perf_counter() - self.stopwatch.admitted.pop(uid)) * 1000)
        return answer


async def starts_and_idle(folder: Path) -> None:
    async with api_server(folder / "api") as plain:
        watch = Stopwatch()
        timed = TimedApi.from_kubeconfig(folder / "api" / "kubeconfig")
        assert isinstance(timed, TimedApi)
        timed.stopwatch = watch
        machine = big384()
        runtime = SimulatedRuntime(machine, OFFERS, logs=False)
        agent = NodeAgent(assemble(settings(folder, Policy.NONE), runtime, machine, Hosting(timed)))
        watch.hold_to(agent.executor)
        running = asyncio.create_task(agent.run())
        await agent.ready.wait()
        freeze_loaded()
        began = time.perf_counter()
        for number in range(STARTED):
            await asyncio.sleep(max(0.0, began + number / PODS_PER_SECOND - time.perf_counter()))
            await plain.create(PODS, pod(f"web-{number}", "1", classes=False))
        for _ in range(300):
            if len(watch.took_ms) == STARTED:
                break
            await asyncio.sleep(0.1)
        print(
            f"  pod start, admitted → Running reported, {PODS_PER_SECOND} pods/s: p50"
            f" {statistics.median(watch.took_ms):.1f} ms, p99 {p99(watch.took_ms):.1f} ms"
            f" (target {START_TARGET_MS:g} ms), {len(watch.took_ms)} of {STARTED} pods"
        )
        for number in range(PODS_ON_NODE, STARTED):
            await plain.delete(PODS, f"web-{number}", "default", grace_seconds=1)
        for _ in range(150):
            if len(agent.core.pods) == PODS_ON_NODE:
                break
            await asyncio.sleep(0.2)
        await _idle(agent)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await timed.close()


async def _idle(agent: NodeAgent) -> None:
    await asyncio.sleep(3)
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    share = (time.process_time() - cpu) / (time.perf_counter() - began) * 100
    megabytes = _resident_bytes() / 1e6
    print(
        f"  {len(agent.core.pods)} pods idle: {share:.2f} % of a core (target {IDLE_TARGET_PERCENT:g} %),"
        f" {megabytes:.0f} MB resident (target {IDLE_TARGET_MB} MB)"
    )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def fleet(folder: Path, machine: Machine, nodes: int = 1000, pods: int = 10) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    async with Fleet(folder) as many:
        made = await many.add([f"n{number}" for number in range(nodes)], NodeShape(machine))
        ready = time.perf_counter()
        for node in made:
            for number in range(pods):
                raw = pod(f"p{number}", "1", node=node.agent.settings.node_name, classes=False)
                raw["metadata"]["uid"] = f"{node.agent.settings.node_name}-{number}"
                assert isinstance(node.pods, LocalPods)
                node.pods.set(raw)
        await many.advance(5)
        up = sum(phase == "Running" for node in made for phase in node.phases().values())
        started = time.perf_counter()
        await many.advance(3600)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"  fleet: {nodes} nodes in {ready - began:.1f} s, {up} pods Running in {started - ready:.1f} s, an idle"
            f" hour of virtual time in {time.perf_counter() - started:.1f} s, {(after - before) / 1024:.0f} MB"
        )


def main() -> None:
    """Print every figure next to its target."""
    for work in (admission, starts_and_idle):
        with tempfile.TemporaryDirectory(prefix="kubeqos-") as name:
            asyncio.run(work(Path(name)))
    with tempfile.TemporaryDirectory(prefix="kubeqos-") as name:
        asyncio.run(fleet(Path(name), big384()))


if __name__ == "__main__":
    print(describe())
    main()
