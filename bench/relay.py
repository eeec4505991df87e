"""What the relay costs: the latency it adds to a unary call, and how many calls per second it sustains.

Targets: at most 0.8 ms more at p50 and 2 ms more at p99, and 3,000 calls/s. Runs in front of a containerd of its own
(or of any runtime: `--runtime unix:///run/containerd/containerd.sock`), each process its own, as on a node.
Latency is measured with a gRPC client, in rounds that alternate between the runtime and the relay so that both see the
same neighbours. Throughput is measured with frames prepared beforehand, so that the client is not what is measured.
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
from pathlib import Path

import grpc

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.relay.hpack import Headers
from kubeqos.cri.relay.http2 import Connection, Sink, Stream
from kubeqos.cri.relay.proxy import frame

P50_TARGET_MS, P99_TARGET_MS, CALLS_TARGET = 0.8, 2.0, 3000
ROUND = 100
CONCURRENCY = 64
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


@contextlib.contextmanager
def running(command: list[str], socket: Path) -> Iterator[None]:
    """A process that is ready when its socket answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            call = unary(channel, "Version")
            call(b"", timeout=30, wait_for_ready=True)
        yield
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


def latency(runtime: Path, relay: Path, calls: int) -> None:
    with grpc.insecure_channel(f"unix:{runtime}") as direct, grpc.insecure_channel(f"unix:{relay}") as relayed:
        for title, (method, request) in METHODS.items():
            pair = [unary(channel, method) for channel in (direct, relayed)]
            times: list[list[float]] = [[], []]
            for number in range(calls // ROUND + 1):
                for side in (0, 1):
                    found = measure(pair[side], request, ROUND)
                    times[side] += found if number else []  # the first round warms up
            (d50, d99), (r50, r99) = (percentiles(side) for side in times)
            print(
                f"{title:28} direct p50 {d50:.2f} p99 {d99:.2f} ms   relay p50 {r50:.2f} p99 {r99:.2f} ms   "
                f"added p50 {r50 - d50:+.2f} (target ≤ {P50_TARGET_MS}) "
                f"p99 {r99 - d99:+.2f} (target ≤ {P99_TARGET_MS:g})"
            )


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


def throughput(runtime: Path, relay: Path, seconds: float) -> None:
    for title, (method, request) in list(METHODS.items())[:2]:
        rates = [asyncio.run(Load(method, request).run(socket, seconds)) for socket in (runtime, relay)]
        print(
            f"{title:28} direct {rates[0]:,.0f} calls/s   relay {rates[1]:,.0f} calls/s (target ≥ {CALLS_TARGET:,})"
            f"   {CONCURRENCY} in flight on one connection"
        )


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
                stack.enter_context(running(["containerd", "-c", str(folder / "containerd.toml")], runtime))
            (folder / "classes.yaml").write_text(CLASSES)
            relay = folder / "cri.sock"
            command = [sys.executable, "-m", "kubeqos.cli.main", "relay", "--listen", f"unix://{relay}"]
            command += ["--runtime", f"unix://{runtime}", "--config", str(folder / "classes.yaml")]
            stack.enter_context(running([*command, "--state", str(folder / "relay.json")], relay))
            latency(runtime, relay, options.calls)
            throughput(runtime, relay, options.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
