"""The dashboard in Chromium: frame times and bytes per second while 60 nodes of 80 CPUs change 10 times a second, and
5,000 nodes once a second.

The API server and the dashboard run in a thread of this process, the browser in its own. A frame is the time between
two calls of `requestAnimationFrame`: 16.7 ms where the screen has 60 a second and nothing stands in the way.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.machine import describe
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import PatchType
from kubeqos.client.api import Submission
from kubeqos.client.resources import NODES
from kubeqos.dashboard.home import mounted
from kubeqos.dashboard.server import Dashboard
from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments, encode_machine
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.web.identity import MASTERS, Identity

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 10.0
ADMIN = Identity.authenticated("admin", [MASTERS])
FRAMES = """() => {
  const mine = window.frames_ = []; let last = performance.now();
  const next = (now) => {
    if (mine !== window.frames_) return;
    mine.push(now - last); last = now; requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""


@dataclass
class Served:
    """A server in a thread, and its dashboard."""

    server: ApiServer
    dashboard: Dashboard
    loop: asyncio.AbstractEventLoop

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(600)


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Start; stop when the block ends."""
    ready: list[Served] = []
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with ApiServer.start(Settings(folder, port=0, audit=False)) as server, mounted(server) as dashboard:
            ready.append(Served(server, dashboard, asyncio.get_running_loop()))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait(120)
    found = ready[0]
    try:
        yield found
    finally:
        found.loop.call_soon_threadsafe(stop.set)
        thread.join(60)


def node(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{number:04}",
            "annotations": {MACHINE_ANNOTATION: MACHINE, ASSIGNMENTS_ANNOTATION: placed(number)},
        },
        "status": {
            "allocatable": {"cpu": "79", "memory": "400Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


MACHINE = encode_machine(kep80())


def placed(step: int) -> str:
    """Ten to thirty containers with a CPU of their own, which move with every step."""
    held = {
        f"default/pod-{number}/main": Holding(CpuSet.parse(f"{(2 * number + step) % 78 + 1}"), exclusive=True)
        for number in range(10 + step % 20)
    }
    return encode_assignments(Assignments({"reserved": CpuSet.parse("0"), "shared": CpuSet.parse("1-79")}, held))


async def fill(served: Served, count: int) -> None:
    api = served.server.local()
    for start in range(0, count, 500):
        await api.submit(NODES, [Submission(node(number)) for number in range(start, min(count, start + 500))])
    feed = served.dashboard.answers.feed
    while len(feed.now().nodes) < count:
        await feed.changed(feed.revision, 1.0)


async def change(served: Served, count: int, a_second: float, seconds: float) -> int:
    """Move containers on one node after the other, so many times a second; how often it was done."""
    api, started, done = served.server.local(), time.monotonic(), 0
    while time.monotonic() < started + seconds:
        patch = {"metadata": {"annotations": {ASSIGNMENTS_ANNOTATION: placed(done + 1)}}}
        await api.patch(NODES, f"node-{done % count:04}", patch, type=PatchType.MERGE)
        done += 1
        await asyncio.sleep(max(0.0, started + done / a_second - time.monotonic()))
    return done


def watch(page: Page, served: Served, view: str, count: int, a_second: float) -> str:
    """Frame times and bytes of one view while the cluster changes."""
    received = 0

    def got(message: dict[str, Any]) -> None:
        nonlocal received
        if message["eventName"] == "change":  # not the first message, with everything
            received += len(message["data"])

    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    page.evaluate("view => { location.hash = view }", f"#/{view}")
    page.wait_for_function("view => document.body.dataset.drawn === view", arg=view, timeout=120_000)
    network.on("Network.eventSourceMessageReceived", got)
    page.wait_for_timeout(2000)  # drawing everything for the first time is not what is measured
    page.evaluate(FRAMES)
    changing = asyncio.run_coroutine_threadsafe(change(served, count, a_second, SECONDS), served.loop)
    page.wait_for_timeout(SECONDS * 1000)
    done = changing.result(60)
    frames = sorted(page.evaluate("window.frames_"))
    network.detach()
    late = statistics.quantiles(frames, n=100)[98]
    return (
        f"{count:5} nodes, {done / SECONDS:4.1f} changes/s, {view:15} "
        f"frame median {statistics.median(frames):5.1f} ms, p99 {late:6.1f} ms, longest {frames[-1]:6.1f} ms, "
        f"{len(frames) / SECONDS:4.0f} frames/s, {received / SECONDS / 1000:7.1f} kB/s"
    )


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no Chromium; Debian's package is called chromium")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for count, a_second, views in ((60, 10.0, ("cluster", "nodes/node-0000")), (5000, 1.0, ("cluster",))):
            with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "data") as running:
                running.run(fill(running, count))
                page = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 900}).new_page()
                page.goto(running.dashboard.link(ADMIN))
                page.get_by_role("heading", name="Cluster").wait_for(timeout=120_000)
                for view in views:
                    page.evaluate("location.hash = '#/whatif'")
                    page.get_by_role("heading", name="What if").wait_for()
                    print(watch(page, running, view, count, a_second), flush=True)
                page.context.close()
        browser.close()


if __name__ == "__main__":
    print(describe())
    main()
