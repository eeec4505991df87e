"""Debian's Chromium on a cluster that `kubeqos up` started: pages, pictures and what a browser complains of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from playwright.sync_api import Browser, Page, sync_playwright

from tests.dashboard.apart import own_network

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
WRITES = os.environ.get("KUBEQOS_PICTURES") == "write"
"""Whether the pictures of the documentation are made anew."""
PATIENCE_MS = 60_000
CLUSTER = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
nodes:
- {name: qrm, machine: kep80, profile: qrm, classes: &classes {
    rdt: {provider: named, mutable: true, default: silver, capacity: {gold: 2}, classes: [gold, silver, bronze]},
    network: {provider: named, level: pod, default: normal, capacity: {fast: 2}, classes: [fast, normal]}}}
- {name: cci, machine: kep80, profile: cci, reservedCPUs: 0-1, classes: *classes}
- {name: big, machine: big384, reservedCPUs: "0", classes: *classes}
"""


class Cluster:
    """A running one: its commands, and links to its dashboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "cluster"
        self.kubeconfig = self.data_dir / "kubeconfig"

    def kubeqos(self, *words: str) -> str:
        return _run([sys.executable, "-m", "kubeqos.cli.main", *words], self.environment)

    def kubectl(self, *words: str, manifest: str = "") -> str:
        return _run([str(shutil.which("kubectl")), *words], self.environment, manifest)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBEQOS_DATA_DIR": str(self.data_dir)}

    def link(self, user: str = "") -> str:
        """A link as the administrator, or as somebody else."""
        if not user:
            return self.kubeqos("dashboard", "--link").strip()
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"]["as"] = user
        other = self.folder / f"{user}.kubeconfig"
        other.write_text(yaml.safe_dump(config))
        return self.kubeqos("dashboard", "--link", "--kubeconfig", str(other)).strip()


def _run(words: list[str], environment: dict[str, str], given: str = "") -> str:
    done = subprocess.run(words, env=environment, input=given, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster with pools, claims, and a machine of 384 CPUs."""
    config = folder / "cluster.yaml"
    config.write_text(CLUSTER)
    cluster = Cluster(folder)
    cluster.kubeqos("up", "--config", str(config), "--port", "0", "--detach")
    try:
        yield cluster
    finally:
        cluster.kubeqos("down")


@contextmanager
def chromium() -> Iterator[Browser]:
    with (
        TemporaryDirectory() as folder,
        own_network(str(CHROMIUM), Path(folder)) as (program, way_out),
        sync_playwright() as driver,
    ):
        # Root may not have a sandbox; pages here are our own. Loopback, too, is reached by the way out.
        proxy: Any = {"server": way_out, "bypass": "<-loopback>"} if way_out else None
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], proxy=proxy)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page and everything that the browser complained of."""

    def __init__(self, browser: Browser, **settings: Any) -> None:
        settings = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light", **settings}
        self.context = browser.new_context(ignore_https_errors=True, **settings)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def log_in(self, link: str) -> Page:
        self.page.goto(link)
        self.page.get_by_role("heading", name="Cluster").wait_for()
        return self.page

    def show(self, view: str) -> Page:
        """Another view, drawn with its data."""
        if self.page.url.endswith(f"#/{view}"):
            return self.page
        self.page.evaluate("view => { location.hash = `#/${view}` }", view)
        if view not in ("pods", "whatif"):
            self.page.wait_for_function("view => document.body.dataset.drawn === view", arg=view)
        return self.page

    def until(self, true: str, argument: Any = None) -> None:
        """Wait for an expression of JavaScript."""
        self.page.wait_for_function(true, arg=argument)

    def close(self) -> None:
        self.context.close()


OWNED = "owner => document.querySelector('.map')?.querySelectorAll(`[data-cpu][data-owner='${owner}']`).length ?? 0"
"""How many CPUs an owner has on the first map of the page; a plan to defragment has maps of its own."""
