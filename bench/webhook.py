"""The admission webhooks of a stock cluster at 500 requests a second with 20 class quotas: how long a server waits.

Run with `python -m bench.webhook`. The controller is a process of its own, on our API server and, where `make stock`
has built it, on a real kube-apiserver with etcd. Every second pod asks for a class, which is a conditional write to the
quota of its namespace: a request that is *counted* waits for it. Requests come at fixed times, over kept connections.

- *Asked directly*: the load generator asks 500 times a second, twice about each pod, as an API server does, and stores
  nothing. That is the worst case: as if somebody else had refused every pod afterwards, a quota keeps all reservations
  of two minutes. Where the target is missed, it is tried again with new quotas and fewer requests, until it is met.
- *Asked by the API server*: pods are created there, and it asks about each of them twice. Its questions are timed in
  between, by the load generator, which adds a hop that is part of the time. Afterwards every quota must have counted
  what was stored, and nothing else. That is 50 pods a second: 250 of them took more than two processors on a busy
  machine of two, by the way through API server, store and load generator.

The same requests go to a server that only answers (`bench.answering`), and as many writes go to the disk: what is above
that is ours. Where everything shares two cores, everybody waits for a processor, too: the processor time of a request,
in each process, and what the controller says of its own time and of its writes, depend less on the machine. How busy
others kept it just before is printed. `BENCH_RATES` and `BENCH_SERVER_RATE` are other rates, `BENCH_SECONDS` is another
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench import stock
from bench.apiserver import Server, cpu_seconds, free_ports, server
from bench.machine import describe
from bench.webhookload import QUOTAS, Asking, Took, asked, between, created, namespace, pod, review
from kubeqos.codec import decode_json
from kubeqos.stock.control.certificates import Certificates
from kubeqos.web.pki import Pki
from kubeqos.web.tls import server_context

RATES = [int(one) for one in os.environ.get("BENCH_RATES", "500,400,300,200,100").split(",")]
SERVER_RATE = int(os.environ.get("BENCH_SERVER_RATE", "100"))
READY_SECONDS = 60.0
STATUS_BYTES = 8 << 10
"""Of a quota in the middle of such a run."""
TARGET_MS = 10
TARGET = f"target: 99 of 100 in {TARGET_MS} ms or less"
OURS = "/apis/kubeqos.io/v1alpha1"
QUOTA = {
    "apiVersion": "kubeqos.io/v1alpha1",
    "kind": "QOSClassQuota",
    "metadata": {"name": "q"},
    "spec": {"qosResources": {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 100_000}]}]}},
}
REQUESTS, WRITES = "kubeqos_webhook_request_duration_seconds", "kubeqos_class_quota_write_duration_seconds"


def install(live: Server) -> None:
    """Our kinds and accounts; nobody runs what is deployed with them."""
    program = [sys.executable, "-m", "kubeqos.cli.main"]
    environment = {**os.environ, "KUBECONFIG": str(live.directory / "data/kubeconfig")}
    subprocess.run([*program, "install", "--image", "x"], env=environment, check=True, stdout=subprocess.DEVNULL)


def prepare(live: Server) -> None:
    """Our kinds, a class, and a quota in each of as many namespaces."""
    install(live)
    bodies: list[tuple[str, dict[str, Any]]] = []
    spec = {"resource": "rdt", "class": "gold", "level": "container"}
    bodies.append((f"{OURS}/qosclasses", {"kind": "QOSClass", "metadata": {"name": "rdt.gold"}, "spec": spec}))
    for number in range(QUOTAS):
        name = f"bench-{number}"
        bodies.append(("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        bodies.append((f"{OURS}/namespaces/{name}/qosclassquotas", QUOTA))
    for path, body in bodies:
        body.setdefault("apiVersion", "kubeqos.io/v1alpha1")
        deadline = time.monotonic() + READY_SECONDS
        while (answer := live.call("POST", path, body))[0] not in (201, 409):
            if time.monotonic() > deadline:
                sys.exit(f"{path} was refused: {answer}")
            time.sleep(0.2)  # kinds are served a moment after they were defined


def renew(live: Server) -> None:
    """Quotas that have nothing noted, counted by the controller."""
    for number in range(QUOTAS):
        path = f"{OURS}/namespaces/bench-{number}/qosclassquotas"
        live.call("DELETE", f"{path}/q")
        live.call("POST", path, QUOTA)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        quotas = decode_json(live.call("GET", f"{OURS}/qosclassquotas")[1])["items"]
        if len(quotas) == QUOTAS and all("observedGeneration" in (one.get("status") or {}) for one in quotas):
            return
        time.sleep(0.2)
    sys.exit("the quotas were not counted")


@dataclass(frozen=True)
class Controller:
    """A running one: where its webhooks answer, where API servers are told that they do, where its metrics are."""

    port: int
    told: int
    metrics: int
    stat: Path
    """What the kernel says of it."""


@contextlib.contextmanager
def controller(live: Server) -> Iterator[Controller]:
    """One whose webhooks answer. API servers are sent to a port where nobody listens yet."""
    port, announced, metrics = free_ports(3)
    words = [sys.executable, "-m", "kubeqos.cli.main", "controller", "--port", str(metrics)]
    words += ["--kubeconfig", str(live.directory / "data/kubeconfig"), "--webhook-bind-address", "127.0.0.1"]
    words += ["--webhook-port", str(port), "--webhook-url", f"https://127.0.0.1:{announced}"]
    with stock.part(words, live.directory / "controller.log") as process:
        asyncio.run(_until_ready(port, live.directory / "controller.log"))
        yield Controller(port, announced, metrics, Path(f"/proc/{process.pid}/stat"))


@contextlib.contextmanager
def answering(live: Server) -> Iterator[tuple[int, Path]]:
    """The port of a server that only answers, with the API server's certificate, and what the kernel says of it."""
    [port] = free_ports(1)
    files = map(str, Pki(live.directory / "data/pki").server_files())
    log = live.directory / "answering.log"
    words = [sys.executable, "-m", "bench.answering", *files, str(port)]
    with stock.part(words, log, folder=Path.cwd()) as process:
        asyncio.run(_until_ready(port, log))
        yield port, Path(f"/proc/{process.pid}/stat")


def told(port: int) -> Counter[str]:
    """What a controller has counted: requests and writes, and the seconds they took."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: Counter[str] = Counter()
    for sample in (one for family in families for one in family.samples):
        if sample.name.startswith((REQUESTS, WRITES)) and sample.name.endswith(("_sum", "_count")):
            what = sample.labels.get("path") or sample.labels.get("result", "")
            found[f"{what} {sample.name.rpartition('_')[2]}"] += sample.value  # type: ignore[assignment]  # seconds
    return found


async def _until_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asking = await Asking.open(port)
            _, answer = await asking.ask(review("/mutate", pod(0)))
            asking.close()
            if b'"allowed":true' in answer:
                return
        await asyncio.sleep(0.3)
    sys.exit(f"the webhooks did not answer:\n{log.read_text()[-2000:]}")


def others(seconds: float = 2.0) -> str:
    """How busy the machine is while nothing of ours works."""

    def read() -> list[int]:
        return [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    before = read()
    time.sleep(seconds)
    spent = [now - then for now, then in zip(read(), before, strict=True)]
    total, nice, idle = sum(spent), spent[1], spent[3] + spent[4]
    polite, others = (round(100 * part / total) for part in (nice, total - nice - idle))
    return f"others took {others} % of the processors just before, and {polite} % at a lower priority"


def report(where: str, rate: int, rows: Took, seconds: int, busy: str) -> None:
    print(f"{where}: {rate} requests/s, {QUOTAS} quotas, {seconds} s; {TARGET}; {busy}")
    for kind, values in rows.items():
        values.sort()
        middle, most = values[len(values) // 2], values[len(values) * 99 // 100]
        print(f"  {kind:26} {len(values):6}   half in {middle:6.2f} ms   99 of 100 in {most:6.2f} ms")


def with_all(took: Took) -> Took:
    return {"all": [one for each in took.values() for one in each], **dict(sorted(took.items()))}


def report_inside(counted: Counter[str], pods: int, seconds: int) -> None:
    """What the controller itself says: time from a request that was read to its answer, and of writes to quotas."""
    writes = counted["written count"]
    mean = {
        what: 1000 * counted[f"{what} sum"] / (counted[f"{what} count"] or 1)
        for what in ("/mutate", "/validate", "written")
    }
    print(
        f"  {writes / seconds:.0f} writes/s to quotas for {pods / seconds:.0f} counted pods/s,"
        f" {counted['conflict count']:.0f} conflicts; {mean['written']:.2f} ms each, as the controller waits for them"
    )
    # Half of what is validated asks for nothing and waits for no write, and no pod waits for writes that only take out
    # what is noted of others. What is left has the wait for a turn in it.
    own = mean["/validate"] - mean["written"] * min(writes, pods) / (counted["/validate count"] or 1)
    print(
        f"  in the controller, on average: {mean['/mutate']:.2f} ms to complete, {own:.2f} ms to validate beside writes"
    )


def syncs(folder: Path, seconds: int) -> list[float]:
    """Milliseconds of as many writes to the disk as there are counted pods: nothing is durable any faster."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(seconds * RATES[0] // 4):
            began = time.perf_counter()
            file.write(bytes(STATUS_BYTES))
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(max(0.0, 4 / RATES[0] - took[-1] / 1000))
    return took


def calm(live: Server) -> None:
    """Wait until a server that has just learned kinds has done with them: it works on, for seconds."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        before = live.cpu_seconds()
        time.sleep(2.0)
        if live.cpu_seconds() - before < 0.2:
            return


class Spending:
    """Processor time and counts of everybody, from now on."""

    def __init__(self, live: Server, running: Controller) -> None:
        self._live, self._running = live, running
        self._before, self._told = self._now(), told(running.metrics)

    def _now(self) -> dict[str, float]:
        found = {"the controller": cpu_seconds(self._running.stat), "the load generator": time.process_time()}
        store = self._live.store if isinstance(self._live, stock.StockServer) else None
        etcd = cpu_seconds(Path(f"/proc/{store.pid}/stat")) if store is not None else 0.0
        found["the API server"] = self._live.cpu_seconds() - etcd
        return found | ({"etcd": etcd} if store is not None else {})

    def report(self, took: Took, seconds: int) -> None:
        now, requests = self._now(), sum(map(len, took.values()))
        parts = (f"{(now[name] - self._before[name]) * 1000 / requests:.2f} ms of {name}" for name in sorted(now))
        print(f"  processor time of a request: {', '.join(parts)}")
        report_inside(told(self._running.metrics) - self._told, len(took["counted"]), seconds)


def check_counts(live: Server) -> None:
    """That quotas have counted what is stored, and have nothing noted of it any more."""
    wrong, stored, deadline = 1, 0, time.monotonic() + READY_SECONDS
    while wrong and time.monotonic() < deadline:
        time.sleep(1.0)
        quotas = decode_json(live.call("GET", f"{OURS}/qosclassquotas")[1])["items"]
        pods = decode_json(live.call("GET", "/api/v1/pods")[1])["items"]
        kept = Counter(one["metadata"]["namespace"] for one in pods if one["metadata"].get("annotations"))
        counts = {one["metadata"]["namespace"]: counted_by(one) for one in quotas}
        wrong, stored = sum(counts[name] != (kept[name], 0) for name in counts), kept.total()
    print(f"  {stored} pods with a class are stored; {len(counts) - wrong} of {len(counts)} quotas say so exactly")


def counted_by(quota: dict[str, Any]) -> tuple[int, int]:
    [usage] = quota["status"]["qosResourcesUsage"]["container"]
    return usage["classes"][0].get("capacity", 0), len(quota["status"].get("reserved") or {})


async def by_server(live: Server, running: Controller, seconds: int) -> tuple[Took, Took, Spending]:
    """What the API server waits for, and how long who creates pods there waits."""
    [secret] = [
        one
        for one in decode_json(live.call("GET", "/api/v1/secrets")[1])["items"]
        if one["metadata"]["name"] == "kubeqos-webhook"
    ]
    kept = Certificates.of(secret["data"])
    assert kept is not None
    files = live.directory / "between.crt", live.directory / "between.key"
    for path, content in zip(files, (kept.serving.certificate, kept.serving.key), strict=True):
        path.write_bytes(content)
    async with between(running.told, running.port, server_context(*files, None)) as took:
        await asyncio.to_thread(until_asked, live)
        await created(live.port, SERVER_RATE / 2, 2, first=0)
        took.clear()
        spending = Spending(live, running)
        made = await created(live.port, SERVER_RATE / 2, seconds, first=SERVER_RATE * 2)
        return took, made, spending


def until_asked(live: Server) -> None:
    """An API server hears of webhooks a moment after they were registered."""
    probe = pod(1)
    probe["metadata"] |= {"name": "probe", "annotations": {"qos.kubeqos.io/container.main": "rdt=nonsense"}}
    deadline = time.monotonic() + READY_SECONDS
    path = f"/api/v1/namespaces/{namespace(1)}/pods?dryRun=All"
    while (answer := live.call("POST", path, probe))[0] != 403:
        if time.monotonic() > deadline:
            sys.exit(f"the webhooks are not asked: {answer}")
        time.sleep(0.3)


def measure(live: Server, where: str, seconds: int) -> None:
    prepare(live)
    with answering(live) as (port, process):
        before = cpu_seconds(process)
        nothing = [one for each in uvloop.run(asked(port, RATES[0], seconds)).values() for one in each]
        least = (cpu_seconds(process) - before) * 1000 / len(nothing)
    print(f"only answering takes {least:.2f} ms of a processor for each request")
    beside = {"a server that only answers": nothing, "a write to the disk alone": syncs(live.directory, seconds)}
    with controller(live) as running:
        calm(live)
        busy = others()
        took, made, spending = uvloop.run(by_server(live, running, seconds))
        report(f"asked by {where}", SERVER_RATE, {**with_all(took), **dict(sorted(made.items()))}, seconds, busy)
        spending.report(took, seconds)
        check_counts(live)
        for rate in RATES:
            renew(live)
            if directly(live, running, where, rate, seconds, beside):
                return


def directly(live: Server, running: Controller, where: str, rate: int, seconds: int, beside: Took) -> bool:
    """Ask at this rate; whether the target is met, by all and by those that are counted."""
    busy = others()
    uvloop.run(asked(running.port, rate, 2))
    spending = Spending(live, running)
    took = uvloop.run(asked(running.port, rate, seconds))
    rows = with_all(took)
    report(f"asked directly, beside {where}", rate, {**beside, **rows}, seconds, busy)
    spending.report(took, seconds)
    return all(rows[kind][len(rows[kind]) * 99 // 100] <= TARGET_MS for kind in ("all", "counted"))


def main() -> None:
    seconds = int(os.environ.get("BENCH_SECONDS", "10"))
    with server() as live:
        measure(live, "our API server", seconds)
    if (found := stock.programs(None)) is not None:
        with stock.kube_apiserver(found) as real:
            measure(real, "kube-apiserver and etcd", seconds)


if __name__ == "__main__":
    print(describe())
    main()
