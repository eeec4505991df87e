"""`kubeqos node` as a process: its configuration file, refusal of contradictions, and a pod that kubectl reads."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server

HEAD = "apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\n"
PROGRAM = [sys.executable, "-m", "kubeqos.cli.main", "node"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api"), FeatureGates.parse("QOSResources=true")) as live:
        yield live


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        (
            "featureGates: {QoSResourceManager: true}\ntopologyManagerPolicy: none\n",
            [],
            'Error: node configuration: QoSResourceManager is on, but topologyManagerPolicy is "none"\n'
            "  at  {file}:4  topologyManagerPolicy: none\n"
            "  set topologyManagerPolicy to best-effort, restricted or single-numa-node, "
            "or turn QoSResourceManager off\n",
        ),
        (
            "maxpods: 10\n",
            [],
            "Error: maxpods: unknown key\n  at  {file}:3  maxpods\n  did you mean 'maxPods'?\n",
        ),
        (
            "simulatedMachine: kep80\n",
            ["--reserved-cpus", "79-80"],
            "Error: node configuration: reservedSystemCPUs names CPUs that this machine does not have online: 80\n"
            "  at  --reserved-cpus=79-80\n"
            "  use CPUs out of 0-79\n",
        ),
        (
            "maxPods: 5\n",
            [],
            "Error: node configuration: say where containers run\n"
            "  set containerRuntimeEndpoint (--runtime-endpoint) or simulatedMachine (--simulated), one of them\n",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(tmp_path: Path, text: str, flags: list[str], told: str) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(HEAD + text)
    done = subprocess.run([*PROGRAM, "--config", str(file), *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == told.format(file=file)


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: talk, annotations: {simulate.kubeqos.io/load: cpu=100m memory=64Mi}}
spec:
  nodeName: alone
  containers: [{name: main, image: example.org/app:1, command: [sh, -c, echo hello; sleep 3600]}]
"""


@pytest.mark.kubectl
def test_a_node_of_its_own_is_reached_through_the_api_server(
    server: LiveServer, tmp_path: Path, short_path: Path
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(
        HEAD + "nodeName: alone\nsimulatedMachine: laptop8\nport: 0\nhousekeepingInterval: 200ms\nmaxPods: 7\n"
    )
    flags = ["--config", str(file), "--kubeconfig", str(server.kubeconfig), "--max-pods", "9"]
    folders = ["--state-dir", str(short_path), "--log-dir", str(tmp_path / "logs")]
    agent = subprocess.Popen([*PROGRAM, *flags, *folders], stderr=subprocess.DEVNULL)
    try:
        assert until(server, ["get", "node", "alone", "-o", "jsonpath={.status.capacity.pods}"], "9")
        (tmp_path / "pod.yaml").write_text(POD)
        kubectl(server, "apply", "-f", str(tmp_path / "pod.yaml"))
        assert until(server, ["get", "pod", "talk", "-o", "jsonpath={.status.phase}"], "Running")
        assert until(server, ["logs", "talk"], "hello")
        assert kubectl(server, "exec", "talk", "--", "echo", "inside") == "inside"
        assert until(server, ["top", "pod", "talk", "--no-headers"], "talk   100m   64Mi")
        assert (short_path / "pod-resources" / "kubelet.sock").is_socket()
    finally:
        agent.terminate()
        agent.wait(60)


@pytest.mark.kubectl
def test_a_node_that_knows_no_authority_says_what_it_does_not_serve(
    server: LiveServer, tmp_path: Path, short_path: Path
) -> None:
    """Pods run; whoever would come to look into them could be anybody, and finds no door."""
    told = yaml.safe_load(server.kubeconfig.read_text())
    [cluster] = told["clusters"]
    for name in ("certificate-authority", "certificate-authority-data"):
        cluster["cluster"].pop(name, None)
    cluster["cluster"]["insecure-skip-tls-verify"] = True
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "node.yaml"
    kubeconfig.write_text(yaml.safe_dump(told))
    file.write_text(HEAD + "nodeName: shut\nsimulatedMachine: laptop8\nport: 10250\nhousekeepingInterval: 200ms\n")
    flags = ["--config", str(file), "--kubeconfig", str(kubeconfig), "--state-dir", str(short_path)]
    agent = subprocess.Popen([*PROGRAM, *flags, "--log-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        (tmp_path / "pod.yaml").write_text(POD.replace("talk", "mute").replace("alone", "shut"))
        assert until(server, ["get", "node", "shut", "-o", "name"], "node/shut")
        kubectl(server, "apply", "-f", str(tmp_path / "pod.yaml"))
        assert until(server, ["get", "pod", "mute", "-o", "jsonpath={.status.phase}"], "Running")
        assert kubectl(server, "get", "node", "shut", "-o", "jsonpath={.status.daemonEndpoints..Port}") == "0"
        assert server.call("GET", "/api/v1/namespaces/default/pods/mute/log").code == 400
    finally:
        agent.terminate()
        said = agent.communicate(timeout=60)[1]
    assert (
        "the kubeconfig names no certificate authority: logs, exec, port-forward and metrics are not served, "
        "because nobody who asks for them could be known\n" in said
    )


CLASSES = "resources: {rdt: {provider: named, capacity: {gold: %d}, classes: [gold, silver]}}\n"
OFFERED = ["get", "node", "classy", "-o", "jsonpath={.status.qosResources.containerQoSResources[0].classes[0]}"]


@pytest.mark.kubectl
def test_a_simulated_node_follows_its_class_file(server: LiveServer, tmp_path: Path, short_path: Path) -> None:
    file, classes = tmp_path / "node.yaml", tmp_path / "classes.yaml"
    classes.write_text(CLASSES % 2)
    file.write_text(
        HEAD + f"nodeName: classy\nsimulatedMachine: laptop8\nport: 0\nclassesFile: {classes}\n"
        "featureGates: {QOSResources: true}\nnodeStatusUpdateFrequency: 10m\n"
    )
    flags = ["--config", str(file), "--kubeconfig", str(server.kubeconfig), "--state-dir", str(short_path)]
    agent = subprocess.Popen([*PROGRAM, *flags, "--log-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        assert until(server, OFFERED, '{"capacity":2,"name":"gold"}')
        classes.write_text(CLASSES % 3)
        assert until(server, OFFERED, '{"capacity":3,"name":"gold"}')
        agent.send_signal(signal.SIGHUP)
        classes.write_text("resources: [broken]\n")
        time.sleep(2)
        assert agent.poll() is None
        classes.write_text(CLASSES % 4)
        assert until(server, OFFERED, '{"capacity":4,"name":"gold"}')
    finally:
        agent.terminate()
        told = agent.communicate(timeout=60)[1]
    assert "the old class table stays in use" in told


def kubectl(server: LiveServer, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(server.kubeconfig), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


def until(server: LiveServer, words: list[str], wanted: str, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while (said := kubectl(server, *words)) != wanted:
        assert time.monotonic() < deadline, f"{words}: {said!r}, not {wanted!r}"
        time.sleep(0.2)
    return True
