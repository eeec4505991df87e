"""The relay in front of a real containerd while its configuration changes, with a vendor's package, and looked into."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from tests.cri.relay.processes import CLASSES, Pod, RelayProcess, connect, shown
from tests.cri.relay.test_containerd import refused
from tests.shared import cgroups

pytestmark = pytest.mark.containerd

SHELF = """  example.com/shelf: {provider: named, level: pod, mutable: true, default: lower, classes: [upper, lower]}
"""
NEW_TYPE = "  extra: {provider: named, mutable: true, default: plain, classes: [plain]}\n"
VENDOR = """
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, Edit, Level


class Turbo(ClassProvider):
    def __init__(self, config):
        self.config = config

    async def advertise(self):
        return [Advertisement("vendor.example/turbo", Level.CONTAINER, True, (ClassInfo("high"), ClassInfo("low")))]

    async def apply(self, subject, resource, class_name):
        return Edit(annotations={"turbo.example/megahertz": str(self.config[class_name])})

    async def enter(self, subject, place, resource, class_name):
        with open(self.config["log"], "a") as log:
            print("enter", subject.container_name, class_name, place.pid > 0, file=log)

    async def move(self, subject, place, resource, old, new):
        with open(self.config["log"], "a") as log:
            print("move", subject.container_name, old, new, file=log)
"""


class Caller(threading.Thread):
    """A client that creates, looks at and removes containers until it is told to stop."""

    def __init__(self, socket: Path, pod: Pod, number: int) -> None:
        super().__init__()
        self.socket = socket
        self.pod = pod
        self.number = number
        self.rounds = 0
        self.failures: list[str] = []
        self.told = threading.Event()

    def wait_for(self, rounds: int) -> None:
        deadline = time.monotonic() + 60
        while self.rounds < rounds and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.rounds >= rounds, "the calls stand still"

    def run(self) -> None:
        with connect(self.socket) as stub:
            pod = self.pod.through(stub)
            while not self.told.is_set():
                try:
                    stub.Status(cri.StatusRequest(), timeout=30)
                    container = pod.create(f"c{self.number}-{self.rounds}", cpu_class="silver")
                    assert pod.container_status(container)["cpu-class"] == "silver"
                    pod.remove(container)
                except (grpc.RpcError, AssertionError) as error:
                    self.failures.append(repr(error))
                self.rounds += 1


def test_no_call_is_dropped_while_the_configuration_changes(relay: RelayProcess, containerd):
    """New types, changed defaults and removed classes come and go under load; every call is answered as it should."""
    versions = [
        CLASSES + NEW_TYPE,
        CLASSES.replace("default: normal", "default: gold"),
        CLASSES.replace("        slower: [{Devices: [/dev/vda], ThrottleReadBps: 512Ki}]\n", "").replace(
            ", slower", ""
        ),
        CLASSES.replace("capacity: {gold: 2}", "capacity: {gold: 5, normal: 7}"),
        CLASSES,
    ]
    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        running = pod.start(pod.create("running"))
        callers = [Caller(relay.socket, pod, number) for number in range(2)]
        for caller in callers:
            caller.start()
        said = []
        for text in versions * 2:
            said.append(relay.configure(text))
            for caller in callers:
                caller.wait_for(caller.rounds + 1)
        for caller in callers:
            caller.told.set()
        for caller in callers:
            caller.join()
        assert [caller.failures for caller in callers] == [[], []]
        assert [text for text in said if "taken on" not in text] == []
        assert pod.container_status(running) == {"blockio": "", "cpu-class": "normal", "ulimits": ""}


def test_a_sandboxs_implicit_default_follows_the_configuration(relay: RelayProcess, containerd):
    """PodSandboxStatus shows a changed default and a new type while the pod runs (KEP-3008, Implicit defaults)."""
    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        assert pod.status() == {"network": "slow"}
        assert "taken on" in relay.configure(CLASSES + SHELF)
        assert pod.status() == {"example.com/shelf": "lower", "network": "slow"}
        assert "taken on" in relay.configure(CLASSES + SHELF.replace("default: lower", "default: upper"))
        assert pod.status() == {"example.com/shelf": "upper", "network": "slow"}
        changed = CLASSES.replace("default: slow", "default: fast")
        assert "taken on" in relay.configure(changed)
        assert pod.status() == {"network": "slow"}  # cannot be changed while the pod runs
        info = stub.Status(cri.StatusRequest(), timeout=10).status.resources
        assert [entry.name for entry in info.pod_qos_resources] == ["network"]


@pytest.fixture
def vendor(folder: Path) -> Path:
    """A vendor's distribution as pip would install it: a module and its entry point."""
    (folder / "site").mkdir()
    (folder / "site" / "turbo_vendor.py").write_text(VENDOR)
    metadata = folder / "site" / "turbo_vendor-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: turbo-vendor\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kubeqos.class_providers]\nturbo = turbo_vendor:Turbo\n")
    return folder / "site"


def test_an_installed_vendor_package_is_a_provider(vendor: Path, containerd, folder: Path):
    log = folder / "turbo.log"
    config = f"resources:\n  turbo: {{provider: turbo, config: {{high: 3800, low: 1200, log: {log}}}}}\n"
    relay = RelayProcess(folder, containerd.socket, config)
    relay.environment = {"PYTHONPATH": f"{Path(__file__).parents[3] / 'src'}:{vendor}"}
    relay.start()
    try:
        with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
            asked = [cri.ContainerQOSResource(**{"name": "vendor.example/turbo", "class": "high"})]
            container = pod.start(pod.create_with("main", asked))
            with connect(containerd.socket) as direct:
                request = cri.ContainerStatusRequest(container_id=container)
                status = direct.ContainerStatus(request, timeout=10).status
            assert status.annotations["turbo.example/megahertz"] == "3800"
            update = cri.UpdateContainerResourcesRequest(container_id=container)
            update.qos_resources.add(**{"name": "vendor.example/turbo", "class": "low"})
            stub.UpdateContainerResources(update, timeout=10)
            assert pod.container_status(container) == {"vendor.example/turbo": "low"}
            assert log.read_text().splitlines() == ["enter main high True", "move main high low"]
    finally:
        relay.stop()


def test_a_refused_create_leaves_nothing_anywhere(relay: RelayProcess, containerd):
    """Neither a container nor a snapshot, a cgroup, a place in the class, or a word in the relay's memory."""

    def left() -> tuple[list[str], list[str], list[str], str]:
        ctr = ["ctr", "--address", str(containerd.socket), "--namespace", "k8s.io"]
        run = lambda *words: subprocess.run([*ctr, *words], capture_output=True, text=True, check=True).stdout  # noqa: E731
        snapshots = run("snapshots", "--snapshotter", "native", "ls").splitlines()
        groups = sorted(map(str, cgroups.below(containerd.cgroup_parent)))
        saved = json.loads(relay.state.read_text()) if relay.state.exists() else {}
        return sorted(run("containers", "ls", "-q").split()), sorted(snapshots), groups, json.dumps(saved)

    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        before = left()
        for number in range(5):
            assert "unavailable class 'golden'" in refused(pod.create, f"c{number}", cpu_class="golden").details()
            assert "warp" in refused(pod.create, f"d{number}", cpu_class="gold", blockio="warp").details()
        assert left() == before
        assert pod.create("a", cpu_class="gold") and pod.create("b", cpu_class="gold")
        assert "capacity 2, in use 2" in refused(pod.create, "c", cpu_class="gold").details()


def test_the_command_line_looks_into_containerd_and_its_classes(relay: RelayProcess, containerd):
    def kubeqos(*words: str) -> str:
        command = [sys.executable, "-m", "kubeqos.cli.main", "runtime", *words, "--endpoint", f"unix://{relay.socket}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with connect(relay.socket) as stub, Pod(stub, containerd.cgroup_parent) as pod:
        container = pod.start(pod.create("main", cpu_class="gold"))
        assert container[:13] in kubeqos("ps")
        rows = {(row["resource"], row["class"]): row for row in json.loads(kubeqos("classes", "-o", "json"))}
        assert {("cpu-class", "gold"), ("blockio", "slow"), ("network", "fast")} <= set(rows)
        found = json.loads(kubeqos("inspect", container, "-o", "json"))
        text = json.dumps(found)
        assert '"gold"' in text and container in text
        request = cri.ContainerStatusRequest(container_id=container)
        assert shown(stub.ContainerStatus(request, timeout=10).status.resources.qos_resources)["cpu-class"] == "gold"
