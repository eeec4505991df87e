"""What the relay costs: the latency it adds to a unary call, and how many calls per second it sustains.

Targets: at most 0.8 ms more at p50 and 2 ms more at p99, and 3,000 calls/s. Runs in front of a containerd of its own
(or of any runtime: `--runtime unix:///run/containerd/containerd.sock`), each process its own, as on a node.
Latency is measured with a gRPC client, in rounds that alternate between the runtime and the relay so that both see the
same neighbours. Throughput is measured with frames prepared beforehand, so that the client is not what is measured.
Beside it, because the relay speaks HTTP/2 itself: the same relay on python-hyper's `h2` (`bench.h2relay`), and the same
calls through a proxy made with grpcio (`bench.grpcproxy`).
`python -m bench.relay [--calls N] [--seconds S]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relay.hpack import Headers
from kubeqos.cri.relay.http2 import Connection, Sink, Stream
from kubeqos.cri.relay.proxy import frame

P50_TARGET_MS, P99_TARGET_MS, CALLS_TARGET = 0.8, 2.0, 3000
ROUND = 100
CONCURRENCY = 64
RELAY, ON_H2 = "relay", "relay on h2"
CLASSES = """
resources:
  cpu-class: {provider: cpu, default: normal, classes: {gold: {weight: 400}, normal: {weight: 100}}}
  network: {provider: network, classes: {fast: {priority: 9}}}
"""
CONTAINERD = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
"""
METHODS = {
    "Version (passes through)": ("Version", cri.VersionRequest(version="v1").SerializeToString()),
    "Status (classes added)": ("Status", cri.StatusRequest().SerializeToString()),
    "StopContainer (handled)": ("StopContainer", cri.StopContainerRequest(container_id="absent").SerializeToString()),
}


@dataclass(frozen=True, slots=True)
class Side:
    """One way to the runtime: its socket, and the process whose CPU time it costs."""

    name: str
    socket: Path
    process: subprocess.Popen[bytes] | None = None

    def cpu_seconds(self) -> float:
        """What the process has used so far."""
        if self.process is None:
            return 0.0
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(name: str, command: list[str], socket: Path) -> Iterator[Side]:
    """A process that is ready when its socket answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            call = unary(channel, "Version")
            call(b"", timeout=30, wait_for_ready=True)
        yield Side(name, socket, process)
    finally:
        process.terminate()
        process.wait()


def unary(channel: grpc.Channel, method: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    """A call whose messages are bytes."""
    return channel.unary_unary(f"/runtime.v1.RuntimeService/{method}", bytes, bytes)


def measure(call: grpc.UnaryUnaryMultiCallable[bytes, bytes], request: bytes, count: int) -> list[float]:
    """Milliseconds of each of `count` calls, one after the other."""
    out = []
    for _ in range(count):
        start = time.perf_counter()
        with contextlib.suppress(grpc.RpcError):
            call(request, timeout=10)
        out.append((time.perf_counter() - start) * 1000)
    return out


def latency(sides: list[Side], calls: int) -> None:
    """The first side is the runtime alone; the others are compared with it."""
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(f"unix:{side.socket}")) for side in sides]
        for title, (method, request) in METHODS.items():
            callables = [unary(channel, method) for channel in channels]
            times: list[list[float]] = [[] for _ in sides]
            for number in range(calls // ROUND + 1):
                for index, call in enumerate(callables):
                    found = measure(call, request, ROUND)
                    times[index] += found if number else []  # the first round warms up
            (d50, d99), *others = (percentiles(found) for found in times)
            print(f"{title:28} {sides[0].name} p50 {d50:.2f} p99 {d99:.2f} ms")
            for side, (p50, p99) in zip(sides[1:], others, strict=True):
                print(f"    {side.name:24} p50 {p50:.2f} p99 {p99:.2f} ms   added {_added(side, p50 - d50, p99 - d99)}")


def _added(side: Side, p50: float, p99: float) -> str:
    if side.name not in (RELAY, ON_H2):
        return f"p50 {p50:+.2f} p99 {p99:+.2f}"
    return f"p50 {p50:+.2f} (target ≤ {P50_TARGET_MS}) p99 {p99:+.2f} (target ≤ {P99_TARGET_MS:g})"


def percentiles(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[98]


class Load:
    """Keeps CONCURRENCY calls in flight on one connection and counts the answers."""

    def __init__(self, method: str, request: bytes) -> None:
        self.headers: Headers = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/runtime.v1.RuntimeService/{method}".encode()),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
        self.body = frame(request)
        self.done = self.failed = 0
        self.stopping = False
        self.connection: Connection | None = None

    def stream_opened(self, stream: Stream, headers: Headers) -> Sink:
        raise AssertionError("a server opens no stream")

    def going_away(self, connection: Connection) -> None:
        self.stopping = True

    def connection_ended(self, connection: Connection) -> None:
        self.stopping = True

    def next(self) -> None:
        assert self.connection is not None
        if not self.stopping:
            self.connection.open_stream(self.headers, LoadCall(self)).send_data(self.body, True)

    async def run(self, socket: Path, seconds: float) -> float:
        """Answers per second."""
        loop = asyncio.get_running_loop()
        _, self.connection = await loop.create_unix_connection(lambda: Connection(self, client=True), str(socket))
        for _ in range(CONCURRENCY):
            self.next()
        await asyncio.sleep(0.5)
        before, start = self.done, time.perf_counter()
        await asyncio.sleep(seconds)
        rate = (self.done - before) / (time.perf_counter() - start)
        self.stopping = True
        self.connection.close()
        if self.failed:
            raise SystemExit(f"{self.failed} calls failed under load")
        return rate


class LoadCall:
    """One call of the load; its end starts the next."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def headers(self, headers: Headers, end: bool) -> None:
        if end:
            self.load.failed += dict(headers).get(b"grpc-status") != b"0"
            self.load.done += 1
            self.load.next()

    def data(self, data: bytes, end: bool) -> None:
        """The answer's content is not looked at."""

    def reset(self, code: int) -> None:
        self.load.failed += not self.load.stopping


def throughput(sides: list[Side], seconds: float) -> None:
    for title, (method, request) in list(METHODS.items())[:2]:
        print(f"{title:28} {CONCURRENCY} in flight on one connection")
        for side in sides:
            before = side.cpu_seconds()
            load = Load(method, request)
            rate = asyncio.run(load.run(side.socket, seconds))
            cpu = (side.cpu_seconds() - before) / load.done * 1e6
            target = f" (target ≥ {CALLS_TARGET:,})" if side.name in (RELAY, ON_H2) else ""
            cost = f"   {cpu:,.0f} µs of its CPU per call" if side.process else ""
            print(f"    {side.name:24} {rate:,.0f} calls/s{target}{cost}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--runtime", help="measure in front of this runtime instead of a containerd of our own")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}, Python {platform.python_version()}")
    folder = Path(tempfile.mkdtemp(prefix="kq-bench-"))
    try:
        with contextlib.ExitStack() as stack:
            runtime = Path((options.runtime or f"unix://{folder}/containerd.sock").removeprefix("unix://"))
            if options.runtime is None:
                if shutil.which("containerd") is None:
                    raise SystemExit("containerd is not installed: install it, or name a runtime with --runtime")
                (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder))
                stack.enter_context(running("runtime", ["containerd", "-c", str(folder / "containerd.toml")], runtime))
            (folder / "classes.yaml").write_text(CLASSES)
            relay = folder / "cri.sock"
            sides = [Side("direct", runtime)]
            for name, module in ((RELAY, "kubeqos.cli.main"), (ON_H2, "bench.h2relay")):
                relay = folder / f"{module}.sock"
                command = [sys.executable, "-m", module, "relay", "--listen", f"unix://{relay}"]
                command += ["--runtime", f"unix://{runtime}", "--config", str(folder / "classes.yaml")]
                command += ["--state", str(folder / f"{module}.json")]
                sides.append(stack.enter_context(running(name, command, relay)))
            for name, flags in (("grpcio, any call", []), ("grpcio, unary only", ["--unary"])):
                proxy = folder / f"proxy{len(flags)}.sock"
                command = [sys.executable, "-m", "bench.grpcproxy", str(proxy), str(runtime), *flags]
                sides.append(stack.enter_context(running(name, command, proxy)))
            latency(sides, options.calls)
            throughput(sides, options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
