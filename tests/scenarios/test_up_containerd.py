"""`kubeqos up --node-runtime`: this machine as a node, with real containers, through the real kubectl."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.codec import encode_json
from tests.cri.containerd import missing, running_containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.scenarios.cluster import needs_kubectl
from tests.shared import cgroups

why = missing()
pytestmark = [
    pytest.mark.containerd,
    pytest.mark.kubectl,
    needs_kubectl,
    pytest.mark.skipif(why is not None, reason=why or ""),
]
CONTAINER = {
    "name": "c",
    "image": BUSYBOX_IMAGE,
    "imagePullPolicy": "Never",
    "command": ["sh", "-c", "echo hello; sleep 3600"],
    "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
}


@contextlib.contextmanager
def clean_cgroups() -> Iterator[None]:
    """Remove the tiers, which outlive agents, if this node made them. Pods' cgroups are the node's own to remove."""
    before = set(cgroups.folders("kubepods"))
    yield
    for root in set(cgroups.folders("kubepods")) - before:
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)


def pod_groups(uid: str) -> list[Path]:
    """Where a pod's cgroup stands, in whichever tier."""
    return [*cgroups.folders(f"kubepods/pod{uid}"), *cgroups.folders(f"kubepods/*/pod{uid}")]


def run(*words: str, text: str | None = None, **environment: str) -> str:
    done = subprocess.run(
        words, input=text, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def top(**environment: str) -> list[str]:
    """CPU and memory of the pod, once it was measured twice: a rate is a difference."""
    words = ("kubectl", "top", "pod", "real", "--no-headers")
    for _ in range(40):
        done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split()[1:]
        time.sleep(0.5)
    raise AssertionError(done.stderr)


def test_a_real_container_runs_talks_and_goes() -> None:
    kubeqos = (sys.executable, "-m", "kubeqos.cli.main")
    node = socket.gethostname().lower()
    spec = {"hostNetwork": True, "nodeSelector": {"kubernetes.io/hostname": node}, "containers": [CONTAINER]}
    spec["tolerations"] = [{"key": "kubeqos.io/real-machine", "operator": "Exists"}]
    said = encode_json(spec["tolerations"]).decode()
    pod = encode_json({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "real"}, "spec": spec}).decode()
    with (
        tempfile.TemporaryDirectory(prefix="kq-") as name,
        clean_cgroups(),
        running_containerd(Path(name) / "c") as containerd,
    ):
        data = str(Path(name) / "up")
        run(
            *kubeqos,
            "up",
            "--data-dir",
            data,
            "--port",
            "0",
            "--nodes",
            "1",
            "--node-runtime",
            containerd.endpoint,
            "--detach",
        )
        try:
            kube = {"KUBECONFIG": f"{data}/kubeconfig", "HOME": name}
            run("kubectl", "apply", "-f", "-", text=pod, **kube)
            run("kubectl", "wait", "--for=condition=Ready", "pod/real", "--timeout=60s", **kube)
            uid = run("kubectl", "get", "pod", "real", "-o", "jsonpath={.metadata.uid}", **kube)
            assert pod_groups(uid), "as `kubeqos node` keeps them"
            assert cgroups.value(f"kubepods/burstable/pod{uid}", "memory.limit") == str(64 << 20)
            assert cgroups.value(f"kubepods/burstable/pod{uid}", "cpu.shares") in ("102", cgroups.scaled(102, 100))
            # Who does not say that the real machine is meant stays off it, wherever it is sent.
            run("kubectl", "apply", "-f", "-", text=pod.replace('"real"', '"unsaid"').replace(said, "[]"), **kube)
            run("kubectl", "wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "pod/unsaid",
                "--timeout=60s", **kube)  # fmt: skip
            assert "untolerated taint" in run("kubectl", "get", "pod", "unsaid", "-o", "yaml", **kube)
            deadline = time.monotonic() + 60
            while "hello" not in run("kubectl", "logs", "real", **kube):
                assert time.monotonic() < deadline, "the container never spoke"
                time.sleep(0.2)
            score = int(run("kubectl", "exec", "real", "--", "cat", "/proc/self/oom_score_adj", **kube))
            assert 3 <= score <= 999  # Burstable
            follow = ("kubectl", "logs", "-f", "real", "--tail=1", "--request-timeout=60s")
            with subprocess.Popen(follow, env={**os.environ, **kube}, stdout=subprocess.PIPE, text=True) as followed:
                assert followed.stdout is not None and followed.stdout.readline() == "hello\n"
                run("kubectl", "exec", "real", "--", "sh", "-c", "echo and again > /proc/1/fd/1", **kube)
                assert followed.stdout.readline() == "and again\n"
                cpu, memory = top(**kube)
                assert cpu.endswith("m") and memory.endswith("Mi")
                run("kubectl", "delete", "pod", "real", "--now", **kube)
                assert followed.stdout.readline() == ""  # the log ends with its container
            deadline = time.monotonic() + 60
            while pod_groups(uid):
                assert time.monotonic() < deadline, f"left behind: {pod_groups(uid)}"
                time.sleep(0.2)
        finally:
            run(*kubeqos, "down", "--data-dir", data)
