"""CCI: admission through a driver process on a 384-CPU machine, and whether a thousand of them leave a trace.

Targets: an admission (driver call, verification, durable store) takes at most 4 ms at p50 and 12 ms at p99; after
1,000 admissions and removals the store has the size it began with and the latency it began with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.machine import describe
from kubeqos.cci.drivers import PLUGIN_TYPE
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.cci.stateservice import SOCKET_NAME, serve_state
from kubeqos.model.hardware.named import big384
from kubeqos.model.objects import PodView
from kubeqos.node.updates.pending import PendingUpdates
from kubeqos.plugins.managers import AdmittedPod, Grant
from kubeqos.plugins.registration import Watcher
from kubeqos.rules.qos.podqos import effective_class
from kubeqos.topology.alignment.hints import ANYWHERE
from kubeqos.topology.claims.resolving import ResolvedClaim

DRIVER = "reference.cci.kubeqos.io"
ADMISSIONS = 1000
STANDARD_PODS = 100
P50_MS, P99_MS = 4.0, 12.0
CLAIM = json.dumps(
    {
        "cores": ["5", "20"],
        "mem attributes": ["NUMA-MEM-AFFINITY-BIND-REQUIRED", "NO-MEM-AFFINITY"],
        "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-PREFERRED"], ["SHARED"]],
    }
)


def pod(name: str, parameters: str = "") -> AdmittedPod:
    """A pod of one container, with the proposal's claim or without."""
    resources = {"requests": {"cpu": "25"}, "limits": {"cpu": "25"}, "claims": [{"name": "compute"}]}
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": resources if parameters else {}}]},
    }
    view = PodView.of(raw)
    claim = ResolvedClaim("compute", "default", name, f"claim-{name}", "cpus", DRIVER, parameters, "bench")
    return AdmittedPod(view, raw, effective_class(view), {"compute": claim} if parameters else {})


@contextlib.asynccontextmanager
async def node(folder: Path) -> AsyncIterator[CciManager]:
    """A manager with the reference driver as a process of its own."""
    manager = CciManager(big384(), folder, CciSettings())
    registry = folder / "r"
    program = [sys.executable, "-m", "kubeqos.cli.main", "driver", "reference", "--machine", "big384"]
    quiet = subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*program, "--registry", str(registry), stdout=quiet, stderr=quiet)
    watcher = asyncio.create_task(Watcher([registry], {PLUGIN_TYPE: manager.drivers}).run())
    try:
        async with manager.running(), serve_state(manager.store, folder / SOCKET_NAME):
            while DRIVER not in manager.drivers.table:  # noqa: ASYNC110 - another process appears
                await asyncio.sleep(0.05)
            yield manager
    finally:
        process.kill()
        await process.wait()
        watcher.cancel()
        await asyncio.wait([watcher])


async def admit(manager: CciManager, pending: PendingUpdates, wanted: AdmittedPod) -> float:
    """Milliseconds to admit a pod and to know what others have to be told."""
    [(ref, _)] = wanted.containers()
    start = time.perf_counter()
    answer = await manager.allocate(wanted, ref, ANYWHERE)
    pending.require(manager.grants())
    spent = (time.perf_counter() - start) * 1000
    assert isinstance(answer, Grant), answer
    for update, _ in pending.unrecorded():
        pending.has(update.key, update.grant)
    pending.has((wanted.uid, ref.name), answer)
    return spent


def driver_ms(manager: CciManager) -> float:
    """The mean time of `CCIAdmit`, as the manager's own metrics have it."""
    labels = {"driver": DRIVER, "method": "CCIAdmit"}
    total, count = (
        manager.metrics.registry.get_sample_value(f"cci_driver_call_duration_seconds_{part}", labels) or 0.0
        for part in ("sum", "count")
    )
    return total / max(count, 1) * 1000


def store_ms(manager: CciManager) -> float:
    """The disk's part: write, sync, rename, sync the folder."""
    times = []
    for _ in range(100):
        start = time.perf_counter()
        manager.store.save(manager.path)
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def quantiles(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def verdict(value: float, target: float) -> str:
    return f"target {target:g} ms {'met' if value <= target else 'MISSED'}"


async def measure(folder: Path) -> None:
    async with node(folder) as manager:
        pending = PendingUpdates(manager.machine.online)
        for number in range(STANDARD_PODS):
            await admit(manager, pending, pod(f"standard-{number}"))
        size = manager.path.stat().st_size
        times, removals = [], []
        for number in range(ADMISSIONS):
            wanted = pod(f"claim-{number}", CLAIM)
            times.append(await admit(manager, pending, wanted))
            start = time.perf_counter()
            await manager.release(wanted.uid)
            pending.removed(wanted.uid)
            removals.append((time.perf_counter() - start) * 1000)
        p50, p99 = quantiles(times)
        print(f"  admission of the proposal's claim, {STANDARD_PODS} standard pods beside it, 384 CPUs")
        print(f"    p50 {p50:7.2f} ms   {verdict(p50, P50_MS)}")
        print(f"    p99 {p99:7.2f} ms   {verdict(p99, P99_MS)}")
        print(
            f"    of that: driver call {driver_ms(manager):.2f} ms on average, "
            f"durable store {store_ms(manager):.2f} ms at p50"
        )
        print(f"  removal                p50 {quantiles(removals)[0]:7.2f} ms   p99 {quantiles(removals)[1]:7.2f} ms")
        first, last = statistics.median(times[:100]), statistics.median(times[-100:])
        print(f"  first 100 / last 100   p50 {first:7.2f} / {last:.2f} ms after {ADMISSIONS} admissions and removals")
        grown = manager.path.stat().st_size - size
        print(f"  store                  {size} bytes before, {size + grown} after")
        await packed(manager, pending)


async def packed(manager: CciManager, pending: PendingUpdates) -> None:
    """Fill the machine: latency as the store grows."""
    times = [await admit(manager, pending, pod(f"fill-{number}", CLAIM)) for number in range(60)]
    p50, p99 = quantiles(times)
    print(f"  60 claims side by side p50 {p50:7.2f} ms   p99 {p99:7.2f} ms (300 exclusive CPUs)")


def main() -> None:
    """Run and print."""
    with tempfile.TemporaryDirectory(prefix="cci-") as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    print(describe())
    main()
