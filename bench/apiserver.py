"""The API server over TLS, loaded by wrk: durable creates with full admission and a quota, reads, lists, memory.

Run with `python -m bench.apiserver`. The server runs in a process of its own, as `kubeqos apiserver` does.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe
from bench.pods import different, one_template
from kubeqos.codec import encode_json

TOKEN = "bench-token"
PODS = "/api/v1/namespaces/bench/pods"
CONNECTIONS = 16
LISTED = 20_000
LISTS = 5
MOST_CREATES = 10_000  # a second, for which bodies are made

CREATE_LUA = """
local bodies = io.lines("%(bodies)s")
local headers = {["Authorization"] = "Bearer %(token)s", ["Content-Type"] = "application/json"}
function request()
  return wrk.format("POST", "%(path)s", headers, bodies())
end
"""
GET_LUA = """
wrk.headers["Authorization"] = "Bearer %(token)s"
"""


@dataclass
class Server:
    """A running server process and how to talk to it."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(self.directory / "data/pki/ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=120)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, encode_json(body) if body is not None else None, headers)
        response = connection.getresponse()
        try:
            return response.status, response.read()
        finally:
            connection.close()

    def cpu_seconds(self) -> float:
        """Of all threads."""
        return cpu_seconds(Path(f"/proc/{self.process.pid}/stat"))

    def loop_seconds(self) -> float:
        """Of the event loop, which is the process's first thread."""
        return cpu_seconds(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/stat"))

    def resident_mb(self) -> float:
        return resident_mb(self.process.pid)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(*more: str) -> Iterator[Server]:
    """The API server alone; `more` are further words of its command line."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as name:
        directory = Path(name)
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        tokens.chmod(0o600)
        arguments = ["--data-dir", str(directory / "data"), "--port", "0", "--token-auth-file", str(tokens), *more]
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.parts.apiserver", *arguments], stdout=subprocess.PIPE, env=os.environ
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            port = int(line.split()[1].rpartition(":")[2])
            yield Server(process, port, directory)
        finally:
            process.terminate()
            process.wait(10)


def wrk(script: str, url: str, seconds: int, connections: int = CONNECTIONS) -> float:
    """Requests per second as wrk counts them."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", file.name, url],
            capture_output=True,
            text=True,
            check=True,
        )
    if "Non-2xx" in done.stdout:
        sys.exit(f"wrk saw refused requests:\n{done.stdout}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    return float(found[1]) if found else 0.0


def creates(live: Server, seconds: int, make: Callable[[str, int], object] = one_template) -> float:
    """New pods, as many as the server takes; the bodies are made before the clock starts."""
    unique = f"{time.time_ns():x}"
    with tempfile.NamedTemporaryFile("wb", suffix=".jsonl") as file:
        for number in range(seconds * MOST_CREATES):
            file.write(encode_json(make(f"{unique}-{number}", number)) + b"\n")
        file.flush()
        return wrk(CREATE_LUA % {"bodies": file.name, "path": PODS, "token": TOKEN}, live.url, seconds)


def report_creates(live: Server, seconds: int) -> None:
    for make, what in ((one_template, "one template"), (different, "all different")):
        busy, loop = live.cpu_seconds(), live.loop_seconds()
        rate = creates(live, seconds, make)
        made = rate * seconds / 1e6
        cost, on_loop = (live.cpu_seconds() - busy) / made, (live.loop_seconds() - loop) / made
        print(
            f"durable pod creates, {what:14}   {rate:8.0f}/s   target ≥ 4000"
            f"   ({cost:.0f} µs of server CPU each, {on_loop:.0f} on the event loop)"
        )


def main() -> None:
    if shutil.which("wrk") is None:
        print("not measured: there is no wrk on this machine (apt-get install wrk)")
        return
    seconds = int(os.environ.get("BENCH_SECONDS", "5"))
    with server() as live:
        live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        hard = {"pods": "1000000", "requests.cpu": "1000000", "limits.memory": "1000Ti"}
        quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        live.call("POST", "/api/v1/namespaces/bench/resourcequotas", quota)
        print(f"{CONNECTIONS} connections")
        report_creates(live, seconds)
        live.call("POST", PODS, one_template("one", 0))
        busy = live.cpu_seconds()
        rate = wrk(GET_LUA % {"token": TOKEN}, f"{live.url}{PODS}/one", seconds)
        cost = (live.cpu_seconds() - busy) / (rate * seconds / 1e6)
        print(
            f"GET one pod                          {rate:8.0f}/s   target ≥ 10000   ({cost:.0f} µs of server CPU each)"
        )
        count = sum(1 for _ in re.finditer(b'"creationTimestamp"', live.call("GET", PODS)[1]))
        while count < LISTED:
            creates(live, 1)
            count = sum(1 for _ in re.finditer(b'"creationTimestamp"', live.call("GET", PODS)[1]))
        busy, took, size = live.cpu_seconds(), 1e9, 0
        for _ in range(LISTS):
            started = time.perf_counter()
            size = len(live.call("GET", f"{PODS}?limit={LISTED}")[1])
            took = min(took, time.perf_counter() - started)
        cost = (live.cpu_seconds() - busy) / LISTS
        print(
            f"LIST {LISTED} pods ({size >> 20} MB)           {took:8.3f} s   target ≤ 0.25 s"
            f"   ({cost:.3f} s of server CPU each; the quickest of {LISTS})"
        )
        print(f"resident with {count} pods          {live.resident_mb():8.0f} MB  target ≤ 300 MB (20,000 pods)")


if __name__ == "__main__":
    print(describe())
    main()
