"""Over the wire: every component a process of its own, everything over TLS, as on a real cluster.

What a request through our client costs, how fast pods go from created to bound with API server and scheduler apart,
what short-lived connections cost the server, what an idle node agent and a fleet of a thousand take. With `--stock DIR`
(kube-apiserver, kube-scheduler and etcd in it) Kubernetes' own components do the same work in the same sitting.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.apiserver import CONNECTIONS, PODS, TOKEN, Server, cpu_seconds, resident_mb, server
from bench.machine import describe
from bench.pods import one_template
from bench.scheduler import pod
from bench.stock import PROGRAMS, kube_apiserver, kube_scheduler, part, programs
from kubeqos.codec import encode_json

REQUESTS, AT_ONCE = 10_000, 32
SHORT_RATE, SHORT_SECONDS = 200, 10
PODS_ON_NODE, AGENTS, FLEET_PODS, IDLE_SECONDS = 110, 1000, 2, 30
GATES = ("--feature-gates", "QOSResources=true")


@dataclass
class Size:
    """Of the cluster that pods are bound in."""

    nodes: int = 5000
    pods: int = 10_000


SIZE = Size()
Make = Callable[[str, int], object]

CREATE_SOME_LUA = """
local bodies = io.lines("%(bodies)s")
local headers = {["Authorization"] = "Bearer %(token)s", ["Content-Type"] = "application/json"}
local made = 0
function request()
  return wrk.format("POST", "%(path)s", headers, bodies())
end
function response()
  made = made + 1
  if made >= %(count)d then wrk.thread:stop() end
end
"""


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    return cpu_seconds(Path(f"/proc/{process.pid}/stat"))


def in_process(name: str, *words: str) -> dict[str, float]:
    """Run a part of `bench.wirework` in a process of its own; what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.wirework", name, *words], stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ---- Requests through the client


def report_requests(live: Server) -> None:
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    live.call("POST", PODS, one_template("one", 0))
    kubeconfig = str(live.directory / "data/kubeconfig")
    for verb in ("GET", "POST"):
        busy = live.cpu_seconds()
        found = in_process("requests", kubeconfig, verb, str(REQUESTS), str(AT_ONCE))
        theirs = 1e3 * (live.cpu_seconds() - busy) / REQUESTS
        print(
            f"{verb:4} through the client, {AT_ONCE} at once  {found['rate']:7.0f}/s  target ≥ 4000   "
            f"{found['cpu_ms']:.3f} ms CPU each  target ≤ 0.2   "
            f"{found['handshakes']:.0f} handshakes ({found['resumed']:.0f} resumed) for {REQUESTS} requests, "
            f"{found['connections']:.0f} connections; {theirs:.3f} ms of the server's CPU",
            flush=True,
        )


# ---- From created to bound


def with_class(name: str, number: int) -> object:
    """Every second pod asks for a class."""
    metadata = {"name": name, "labels": {"app": "bench"}}
    return {"apiVersion": "v1", "kind": "Pod", **pod(name, "10m", gold=number % 2 == 0), "metadata": metadata}


def with_extended(name: str, number: int) -> object:
    """Every second pod asks for an extended resource, which is what Kubernetes has in place of classes."""
    requests = {"cpu": "10m", "memory": "500Mi", **({"example.com/gold": "1"} if number % 2 == 0 else {})}
    resources = {"requests": requests, "limits": {key: "1" for key in requests if "/" in key}}
    spec = {"containers": [{"name": "c", "image": "pause", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}}, "spec": spec}


@contextlib.contextmanager
def creating(live: Server, count: int, make: Make) -> Iterator[None]:
    """So many pods through wrk, a few more at most, while the block runs; wrk itself knows only of times."""
    unique, bodies, script = f"{time.time_ns():x}", live.directory / "bodies.jsonl", live.directory / "create.lua"
    with bodies.open("wb") as file:
        for number in range(count + 1000):
            file.write(encode_json(make(f"{unique}-{number}", number)) + b"\n")
    script.write_text(CREATE_SOME_LUA % {"bodies": bodies, "path": PODS, "token": TOKEN, "count": count})
    with part(
        ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", "900s", "-s", str(script), live.url],
        live.directory / "wrk.log",
    ):
        yield


def wait_until_scheduled(live: Server, make: Make, seconds: float = 120) -> None:
    """A first pod is bound: the scheduler has read everything."""
    live.call("POST", PODS, make("first", 1))
    deadline = time.monotonic() + seconds
    while not json.loads(live.call("GET", f"{PODS}/first")[1])["spec"].get("nodeName"):
        if time.monotonic() > deadline:
            sys.exit("the first pod was not bound; see the scheduler's log")
        time.sleep(0.2)


def bound(live: Server, scheduler: subprocess.Popen[bytes], label: str, make: Make, target: str = "") -> None:
    """Create pods and watch them being bound; print the rate and what it cost each component."""
    wait_until_scheduled(live, make)
    kubeconfig = str(live.directory / "data/kubeconfig")
    watcher = subprocess.Popen(
        [sys.executable, "-m", "bench.wirework", "watch", kubeconfig, str(SIZE.pods)], stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    watcher.stdout.readline()
    server_busy, scheduler_busy = live.cpu_seconds(), cpu_of(scheduler)
    with creating(live, SIZE.pods, make):
        started = time.time()
        found = json.loads(watcher.communicate(timeout=900)[0].strip().splitlines()[-1])
    count = max(int(found["bound"]), 1)
    theirs, ours = live.cpu_seconds() - server_busy, cpu_of(scheduler) - scheduler_busy
    print(
        f"{label:46} {count / max(found['last'] - started, 0.001):7.0f}/s{target}   ({count} pods; "
        f"CPU per pod: API server {1e3 * theirs / count:.2f} ms, scheduler {1e3 * ours / count:.2f} ms)",
        flush=True,
    )


def our_scheduler(directory: Path) -> list[str]:
    kubeconfig = str(directory / "data/kubeconfig")
    return [sys.executable, "-m", "kubeqos.cli.main", "scheduler", "--kubeconfig", kubeconfig, "--port", "0"]


def report_bound() -> None:
    with server(*GATES, "--no-audit") as live:
        live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        kubeconfig = str(live.directory / "data/kubeconfig")
        made = in_process("nodes", kubeconfig, str(SIZE.nodes), "classes")
        print(f"{SIZE.nodes} nodes created over the wire at {made['rate']:.0f} requests/s", flush=True)
        with part([*our_scheduler(live.directory), *GATES], live.directory / "scheduler.log") as scheduler:
            bound(live, scheduler, "created → bound, own processes, half with class", with_class, "  target ≥ 1500")


def report_stock(found: dict[str, Path]) -> None:
    """The same work on a real API server, by our scheduler and by theirs."""
    for name in ("kubeqos", "kube-scheduler"):
        with kube_apiserver(found) as live:
            live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
            in_process("nodes", str(live.directory / "data/kubeconfig"), str(SIZE.nodes), "extended")
            ours = name == "kubeqos"
            words = our_scheduler(live.directory) if ours else kube_scheduler(found, live.directory)
            with part(words, live.directory / "scheduler.log") as scheduler:
                label = "our scheduler" if ours else name
                bound(live, scheduler, f"created → bound, kube-apiserver + {label}", with_extended)


# ---- Short-lived connections


def short_connections(live: Server, *, resume: bool) -> tuple[float, int, float]:
    """So many connections a second, each for one request: the server's CPU for one in ms, how many were resumed, and
    how long one took in ms, the middle of all."""
    context = ssl.create_default_context(cafile=str(live.directory / "data/pki/ca.crt"))
    certificate = live.directory / "data/pki"
    context.load_cert_chain(certificate / "admin.crt", certificate / "admin.key")
    request = b"GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\n\r\n"
    session: ssl.SSLSession | None = None
    took, resumed, busy, started = list[float](), 0, live.cpu_seconds(), time.perf_counter()
    for number in range(SHORT_RATE * SHORT_SECONDS):
        time.sleep(max(0.0, started + number / SHORT_RATE - time.perf_counter()))
        began = time.perf_counter()
        with (
            socket.create_connection(("127.0.0.1", live.port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as connection,
        ):
            connection.sendall(request)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200"), "refused"
            resumed += connection.session_reused or False
            session = connection.session if resume else None
        took.append(1e3 * (time.perf_counter() - began))
    return 1e3 * (live.cpu_seconds() - busy) / len(took), resumed, sorted(took)[len(took) // 2]


def report_short(live: Server) -> None:
    for resume, what in ((False, "no session kept"), (True, "session kept")):
        cpu, resumed, middle = short_connections(live, resume=resume)
        print(
            f"{SHORT_RATE} connections/s, one request each, {what:15}  {cpu:.2f} ms of the server's CPU each, "
            f"{resumed} of {SHORT_RATE * SHORT_SECONDS} resumed, p50 {middle:.1f} ms",
            flush=True,
        )


# ---- Node agents


def report_agent(live: Server) -> None:
    """One agent as a process, with as many pods as a node takes, and nothing to do."""
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    state = live.directory / "node"
    words = [sys.executable, "-m", "kubeqos.cli.main", "node", "--node-name", "n1", "--simulated", "laptop8"]
    words += ["--state-dir", str(state), "--kubeconfig", str(live.directory / "data/kubeconfig"), "--port", "0"]
    with part(words, live.directory / "node.log") as agent:
        for number in range(PODS_ON_NODE):
            raw = one_template(f"p{number}", number)
            raw["spec"] |= {"nodeName": "n1", "terminationGracePeriodSeconds": 0}
            raw["spec"]["containers"][0]["resources"] = {}
            live.call("POST", PODS, raw)
        running = 0
        for _ in range(120):
            time.sleep(1)
            running = live.call("GET", PODS)[1].count(b'"phase":"Running"')
            if running == PODS_ON_NODE:
                break
        time.sleep(5)
        busy, began = cpu_of(agent), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        share = 100 * (cpu_of(agent) - busy) / (time.perf_counter() - began)
        print(
            f"idle node agent, {running} pods on a simulated runtime  {share:.1f} % of a core  target ≤ 1   "
            f"{resident_mb(agent.pid):.0f} MB  target ≤ 90",
            flush=True,
        )


def report_fleet(live: Server) -> None:
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    kubeconfig = str(live.directory / "data/kubeconfig")
    found = in_process("fleet", kubeconfig, str(AGENTS), str(FLEET_PODS), str(IDLE_SECONDS))
    print(
        f"{AGENTS} node agents in one process, {found['running']:.0f} pods: {100 * found['core']:.0f} % of a core, "
        f"{found['connections']:.0f} connections, {found['requests']:.0f} requests/s, {found['resident_mb']:.0f} MB; "
        f"API server {live.resident_mb():.0f} MB",
        flush=True,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Print each figure with its form."""
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description=__doc__)
    parser.add_argument("--only", choices=[*SECTIONS, "stock"], action="append", help="these parts only")
    parser.add_argument(
        "--stock", type=Path, metavar="DIR", help=f"where {', '.join(PROGRAMS)} are; else `make stock`'s"
    )
    parser.add_argument("--nodes", type=int, default=SIZE.nodes, help="that pods are bound to")
    parser.add_argument("--pods", type=int, default=SIZE.pods, help="that are bound")
    asked = parser.parse_args(arguments)
    SIZE.nodes, SIZE.pods = asked.nodes, asked.pods
    print("own processes, over TLS")
    for name, run in SECTIONS.items():
        if not asked.only or name in asked.only:
            run()
    if not asked.only or "stock" in asked.only:
        found = programs(asked.stock)
        if found is None:
            print("not measured: Kubernetes' own components are not there (`make stock`, or --stock DIR)")
        else:
            report_stock(found)


def _with_server(report: Callable[[Server], None]) -> Callable[[], None]:
    def run() -> None:
        with server("--no-audit") as live:
            report(live)

    return run


SECTIONS: dict[str, Callable[[], None]] = {
    "requests": _with_server(report_requests),
    "bound": report_bound,
    "short": _with_server(report_short),
    "agent": _with_server(report_agent),
    "fleet": _with_server(report_fleet),
}


if __name__ == "__main__":
    print(describe())
    main(sys.argv[1:])
