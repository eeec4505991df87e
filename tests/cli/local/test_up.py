"""`kubeqos up`, `status` and `down` as processes, the way a newcomer meets them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from kubeqos.client.light import LightApi
from kubeqos.codec import decode_json
from tests.shared import commands

T = TypeVar("T", str, bytes)


def kubeqos(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = commands.run(*words)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def processes_of(folder: Path) -> list[int]:
    """What runs for a cluster in a folder: it, its plugins and its drivers have the folder among their words."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it may end while we look
            if entry.name.isdigit() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Whatever a test did or failed to do, no cluster outlives it.

    `down` ends what has written itself down. One that is given up on while it starts has not, nor has one in front
    whose test failed before it was stopped.
    """
    yield
    left = processes_of(tmp_path)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == [], "a cluster was left behind"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A place for a cluster, which is stopped whatever happens."""
    yield tmp_path / "cluster"
    kubeqos("down", "--data-dir", str(tmp_path / "cluster"))


def start(data_dir: Path, *words: str) -> str:
    return kubeqos("up", "--data-dir", str(data_dir), "--port", "0", "--detach", *words).stdout


def test_up_status_pods_second_up_and_down(data_dir: Path) -> None:
    said = start(data_dir)
    assert f"export KUBECONFIG={data_dir}/kubeconfig" in said
    assert oct(data_dir.joinpath("kubeconfig").stat().st_mode)[-3:] == "600"
    status = kubeqos("status", "--data-dir", str(data_dir)).stdout
    assert [line.split()[:3] for line in status.splitlines() if line.startswith(("cci", "hybrid", "qrm"))] == [
        ["cci", "Ready", "cci"],
        ["hybrid", "Ready", "default"],
        ["qrm", "Ready", "qrm"],
    ]
    told = decode_json(kubeqos("status", "--data-dir", str(data_dir), "-o", "json").stdout.encode())
    assert told["nodes"][2] == {"node": "qrm", "status": "Ready", "profile": "qrm", "pods": 0}
    assert Path(told["sockets"], "qrm", "plugins_registry", "cpu.sock").is_socket()
    assert "already running" in start(data_dir)
    assert kubeqos("down", "--data-dir", str(data_dir)).stdout == "stopped\n"
    assert kubeqos("status", "--data-dir", str(data_dir), check=False).returncode == 1


def test_objects_survive_a_restart(data_dir: Path) -> None:
    start(data_dir)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    environment = {**os.environ, "KUBECONFIG": str(data_dir / "kubeconfig"), "HOME": str(data_dir)}
    subprocess.run([kubectl, "create", "configmap", "kept", "--from-literal=a=b"], env=environment, check=True)
    kubeqos("down", "--data-dir", str(data_dir))
    start(data_dir)
    api = LightApi.from_kubeconfig(data_dir / "kubeconfig")
    assert api.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"a": "b"}


def test_a_cluster_of_ones_own(data_dir: Path, tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(
        "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes:\n"
        "- name: small\n  machine: tiny2\n  count: 2\n  labels: {tier: gold}\n"
        "  classes: {rdt: {provider: named, capacity: {gold: 2}, classes: [gold, silver]}}\n"
    )
    start(data_dir, "--config", str(config))
    nodes = LightApi.from_kubeconfig(data_dir / "kubeconfig").items("/api/v1/nodes")
    assert [(node["metadata"]["name"], node["metadata"]["labels"]["tier"]) for node in nodes] == [
        ("small-1", "gold"),
        ("small-2", "gold"),
    ]
    assert {node["status"]["capacity"]["cpu"] for node in nodes} == {"2"}
    offers = [node["status"]["qosResources"]["containerQoSResources"] for node in nodes]
    gold, silver = {"name": "gold", "capacity": 2}, {"name": "silver"}
    assert offers == [[{"name": "rdt", "classes": [gold, silver]}]] * 2


def test_nodes_that_another_start_had_are_gone(data_dir: Path) -> None:
    start(data_dir, "--nodes", "3")
    kubeqos("down", "--data-dir", str(data_dir))
    start(data_dir, "--nodes", "2")
    nodes = LightApi.from_kubeconfig(data_dir / "kubeconfig").items("/api/v1/nodes")
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
    assert not (data_dir / "nodes" / "node-3").exists()


_OWN = "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes: [{name: a, machine: tiny2}]\n"


class TestWhatCanBeWrong:
    def refused(self, *words: str) -> str:
        done = kubeqos("up", *words, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        progress, error, message = done.stderr.rpartition("Error: ")
        assert len(progress.splitlines()) <= 1  # nothing was begun
        return error + message

    def test_a_taken_port(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            assert "Address already in use" in self.refused("--data-dir", str(tmp_path / "c"), "--port", port)

    def test_a_directory_of_somebody_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("precious")
        said = self.refused("--data-dir", str(tmp_path), "--port", "0")
        assert "the data directory holds something else (thesis.tex)" in said
        assert (tmp_path / "thesis.tex").read_text() == "precious"

    def test_a_runtime_that_is_not_there(self, tmp_path: Path) -> None:
        said = self.refused("--data-dir", str(tmp_path / "c"), "--port", "0", "--node-runtime", f"unix://{tmp_path}/no")
        assert said.startswith("Error: no container runtime answers: No such file or directory\n")
        assert not (tmp_path / "c").exists()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("nodes: [", "cluster.yaml"),
            ("apiVersion: v1\nkind: Pod\nnodes: []", "'v1' is not kubeqos.io/v1alpha1"),
            (
                "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes: [{name: a, machin: tiny2}]",
                "did you mean",
            ),
            (
                "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes: [{name: a, machine: cray}]",
                "no machine 'cray'",
            ),
            (
                "apiVersion: kubeqos.io/v1alpha1\nkind: ClusterConfiguration\nnodes:\n"
                "- {name: a, machine: tiny2, classes: {rdt: {provider: nmaed, classes: [gold]}}}",
                "did you mean 'named'?",
            ),
            (_OWN + "featureGates: {QOSResource: true}", "unrecognized feature gate: QOSResource"),
            (_OWN + "featureGates: {QOSResources: maybe}", "featureGates.QOSResources"),
            (_OWN + "scheduler: {profiles: [{weights: {clases: 1}}]}", "did you mean 'classes'?"),
            (_OWN + "settings: {evictionHard: {memory.availabel: 10%}}", "evictionHard"),
            (_OWN + "settings: {cpuManagerPolicy: static}", "cpuManagerPolicy"),
            (
                _OWN + "settings: {featureGates: {QoSResourceManager: true}, topologyManagerPolicy: none}",
                "topologyManagerPolicy",
            ),
            (_OWN + "settings: {nodeName: b}", "`kubeqos up` is told this elsewhere"),
            (_OWN + "manifests: [nowhere.yaml]", "cannot read"),
            (_OWN + "manifests: [cluster.yaml]", "no matches for kind"),
        ],
    )
    def test_a_wrong_configuration(self, tmp_path: Path, text: str, message: str) -> None:
        config = tmp_path / "cluster.yaml"
        config.write_text(text)
        said = self.refused("--data-dir", str(tmp_path / "c"), "--port", "0", "--config", str(config))
        assert message in said
        assert len(said.splitlines()) <= 3
        assert not (tmp_path / "c").exists(), "a bad file leaves nothing behind"
        self.refused("--data-dir", str(tmp_path / "c"), "--port", "0", "--config", str(config), "--detach")
        assert not (tmp_path / "c").exists()


@contextlib.contextmanager
def ended(process: subprocess.Popen[T]) -> Iterator[subprocess.Popen[T]]:
    """A process that does not outlive a test that fails; `with` alone would wait for it without end."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kubeqos.cli.main", "up", "--data-dir", str(tmp_path / "c"), "--port", "0"]
    record = tmp_path / "c" / "up.json"
    with ended(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)) as process:
        deadline = time.monotonic() + 60
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert decode_json(record.read_bytes())["pid"] == process.pid
        process.send_signal(2)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "ready in" in output
    assert not record.exists()


def test_plugins_do_not_outlive_a_cluster_that_is_killed(data_dir: Path) -> None:
    start(data_dir)
    record = decode_json((data_dir / "up.json").read_bytes())
    assert len(processes_of(data_dir / "nodes")) == 4
    os.kill(record["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while processes_of(data_dir) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(data_dir) == []
    assert Path(record["sockets"]).exists()
    assert kubeqos("status", "--data-dir", str(data_dir), check=False).stdout.startswith("not running")
    assert not Path(record["sockets"]).exists()


def test_at_a_terminal_ctrl_c_reaches_the_cluster_alone(tmp_path: Path) -> None:
    """A terminal sends the signal to every process of the group, and stopping is no reason for a warning."""
    ours, theirs = os.openpty()
    words = ["up", "--data-dir", str(tmp_path / "c"), "--port", "0"]
    up = subprocess.Popen(
        [sys.executable, "-m", "kubeqos.cli.main", *words], stdout=theirs, stderr=theirs, start_new_session=True
    )
    with ended(up) as process:
        os.close(theirs)
        said = b""
        while b"export KUBECONFIG" not in said:
            said += os.read(ours, 4096)
        os.killpg(process.pid, signal.SIGINT)
        said = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
            while more := os.read(ours, 4096):
                said += more
        process.wait(60)
    os.close(ours)
    assert process.returncode == 0
    assert said.decode().split()[-1] == "stopping"
    assert "warning" not in said.decode()


def test_what_to_try_next_works_on_the_nodes_there_are(data_dir: Path) -> None:
    said = start(data_dir, "--nodes", "2")
    assert "kubeqos top nodes\n" in said
    assert "demo" not in said
    refused = kubeqos("demo", "--data-dir", str(data_dir), check=False)
    assert refused.stderr.startswith(
        "Error: the stories are played on the nodes cci, hybrid, qrm, and this cluster has"
    )


def test_a_failure_in_the_background_is_told_as_one_in_front(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = kubeqos("up", "--data-dir", str(tmp_path / "c"), "--port", str(port), "--detach", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        "Error: cannot listen: Address already in use",
        f"  at  127.0.0.1:{port}",
        "  choose another port with --port; 0 takes one that is free",
    ]


def test_who_gives_up_waiting_leaves_nothing_in_the_background(tmp_path: Path) -> None:
    words = ["up", "--data-dir", str(tmp_path / "c"), "--port", "0", "--detach"]
    waiting = subprocess.Popen(
        [sys.executable, "-m", "kubeqos.cli.main", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A shell that runs the tests in the background has them ignore interruptions.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with ended(waiting) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"starting in the background")
        deadline = time.monotonic() + 60
        while len(processes_of(tmp_path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
