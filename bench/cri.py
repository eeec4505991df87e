"""The runtime side: a fleet of simulated nodes in one process, and the latency of client calls over a socket.

Targets: 5,000 nodes × 30 pods started in under 60 s. `python -m bench.cri [--nodes N] [--pods N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import tempfile
import time
from pathlib import Path

from bench.machine import describe
from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.model.hardware.named import split80
from kubeqos.model.machine import Machine

FLEET_TARGET_SECONDS = 60
CALLS = 3000


def sandbox(node: int, pod: int) -> cri.PodSandboxConfig:
    """A pod as a node agent describes it."""
    uid = f"{node:06d}-{pod:04d}"
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=f"web-{uid}", uid=uid, namespace="default"),
        hostname=f"web-{uid}",
        labels={"io.kubernetes.pod.name": f"web-{uid}", "io.kubernetes.pod.uid": uid, "app": "web"},
        annotations={"simulate.kubeqos.io/load": "cpu=250m memory=64Mi"},
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"/kubepods/burstable/pod{uid}"),
    )


def main_container() -> cri.ContainerConfig:
    resources = cri.LinuxContainerResources(cpu_shares=256, memory_limit_in_bytes=128 << 20, cpuset_cpus="0-79")
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="web"),
        image=cri.ImageSpec(image="registry.example/web:1"),
        command=["/web"],
        labels={"io.kubernetes.container.name": "web"},
        linux=cri.LinuxContainerConfig(resources=resources),
    )


async def start_pods(runtime: Runtime, node: int, pods: int) -> None:
    """What a node agent does to start pods: sandbox, container, start, and a look at the status."""
    container = main_container()
    for pod in range(pods):
        config = sandbox(node, pod)
        sandbox_id = await runtime.run_pod_sandbox(config)
        container_id = await runtime.create_container(sandbox_id, container, config)
        await runtime.start_container(container_id)
        status = (await runtime.container_status(container_id)).status
        assert status.state == cri.CONTAINER_RUNNING


async def fleet(machine: Machine, nodes: int, pods: int) -> tuple[float, float]:
    """Seconds to start everything, and MiB of memory for it."""
    clock = VirtualClock()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    runtimes = [SimulatedRuntime(machine, name=f"node-{n}", clock=clock, logs=False) for n in range(nodes)]
    for number, runtime in enumerate(runtimes):
        await start_pods(runtime, number, pods)
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


async def latency(machine: Machine) -> tuple[float, float, float]:
    """Milliseconds per ContainerStatus over a socket (p50, p99), and calls per second with 32 callers."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-") as folder:
        runtime = SimulatedRuntime(machine, logs=False)
        endpoint = f"unix://{Path(folder)}/cri.sock"
        async with serving(runtime, endpoint), CriClient(endpoint) as client:
            config = sandbox(0, 0)
            sandbox_id = await client.run_pod_sandbox(config)
            container_id = await client.create_container(sandbox_id, main_container(), config)
            times = []
            for _ in range(CALLS):
                start = time.perf_counter()
                await client.container_status(container_id)
                times.append((time.perf_counter() - start) * 1000)
            numbers = iter(range(CALLS))

            async def caller() -> None:
                for _ in numbers:
                    await client.container_status(container_id)

            start = time.perf_counter()
            await asyncio.gather(*(caller() for _ in range(32)))
            rate = CALLS / (time.perf_counter() - start)
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98], rate


async def measure(nodes: int, pods: int) -> None:
    machine = split80()
    p50, p99, rate = await latency(machine)
    print(f"client call (client and server in one process): p50 {p50:.2f} ms, p99 {p99:.2f} ms, {rate:,.0f} calls/s")
    gc.collect()
    gc.freeze()
    seconds, mib = await fleet(machine, nodes, pods)
    started = nodes * pods
    print(
        f"fleet of {nodes:,} nodes × {pods} pods: {seconds:.1f} s (target < {FLEET_TARGET_SECONDS} s), "
        f"{started / seconds:,.0f} pods/s, {mib:,.0f} MiB"
    )


def main(nodes: int = 5000, pods: int = 30) -> None:
    """Measure and print."""
    asyncio.run(measure(nodes, pods))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.cri", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=30)
    print(describe())
    main(**vars(parser.parse_args()))
