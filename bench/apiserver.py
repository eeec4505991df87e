"""The API server over TLS, loaded by wrk: durable creates with full admission and a quota, reads, lists, memory.

Run with `python -m bench.apiserver`. The server runs in a process of its own, as `kubeqos apiserver` does.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe
from kubeqos.codec import encode_json

TOKEN = "bench-token"
PODS = "/api/v1/namespaces/bench/pods"
CONNECTIONS = 16
LISTED = 20_000

CREATE_LUA = """
local head = '%(head)s'
local middle = '%(middle)s'
local tail = '%(tail)s'
local id = "%(id)s"
local vary = %(vary)s
local count = 0
function request()
  count = count + 1
  return wrk.format("POST", "%(path)s", {["Authorization"] = "Bearer %(token)s",
    ["Content-Type"] = "application/json"},
    head .. id .. "-" .. count .. middle .. (vary and count or 1) .. tail)
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
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="kubeqos-bench-") as name:
        directory = Path(name)
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        tokens.chmod(0o600)
        arguments = ["--data-dir", str(directory / "data"), "--port", "0", "--token-auth-file", str(tokens)]
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.apiserver", *arguments], stdout=subprocess.PIPE, env=os.environ
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            port = int(line.split()[1].rpartition(":")[2])
            yield Server(process, port, directory)
        finally:
            process.terminate()
            process.wait(10)


def pod(name: str, tag: str = "1") -> dict[str, object]:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    container = {"name": "c", "image": f"registry.example/app:{tag}", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


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


def creates(live: Server, seconds: int, *, vary: bool = False) -> float:
    """Pods of one template, as a ReplicaSet makes them; with `vary` no two have the same image."""
    head, middle, tail = re.split("NAME|TAG", encode_json(pod("NAME", "TAG")).decode())
    values = {
        "head": head, "middle": middle, "tail": tail, "path": PODS, "token": TOKEN, "id": f"{time.time_ns():x}",
        "vary": str(vary).lower(),
    }  # fmt: skip
    return wrk(CREATE_LUA % values, live.url, seconds)


def report_creates(live: Server, seconds: int) -> None:
    for vary, what in ((False, "one template"), (True, "all different")):
        busy = live.cpu_seconds()
        rate = creates(live, seconds, vary=vary)
        cost = (live.cpu_seconds() - busy) / (rate * seconds) * 1e6
        target = "target ≥ 4000" if not vary else ""
        print(f"durable pod creates, {what:14}   {rate:8.0f}/s   {cost:4.0f} µs of server CPU each   {target}")


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
        live.call("POST", PODS, pod("one"))
        rate = wrk(GET_LUA % {"token": TOKEN}, f"{live.url}{PODS}/one", seconds)
        print(f"GET one pod                          {rate:8.0f}/s   target ≥ 10000")
        count = sum(1 for _ in re.finditer(b'"creationTimestamp"', live.call("GET", PODS)[1]))
        while count < LISTED:
            creates(live, 1)
            count = sum(1 for _ in re.finditer(b'"creationTimestamp"', live.call("GET", PODS)[1]))
        started = time.perf_counter()
        size = len(live.call("GET", f"{PODS}?limit={LISTED}")[1])
        took = time.perf_counter() - started
        print(f"LIST {LISTED} pods ({size >> 20} MB)           {took:8.3f} s   target ≤ 0.25 s")
        print(f"resident with {count} pods          {live.resident_mb():8.0f} MB  target ≤ 300 MB (20,000 pods)")


if __name__ == "__main__":
    print(describe())
    main()
