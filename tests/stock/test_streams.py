"""Our node agent on containerd 2 behind a real kube-apiserver and behind ours: every stream that kubectl opens.

A kube-apiserver 1.37 comes by WebSocket, because the Node says that it may, and with a certificate as kubeadm makes it:
the agent asks whether its group may do that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apiserver.live import live_server
from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS, running_containerd2
from tests.stock.kube_apiserver import ADMINISTRATORS, free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.streams import forwarded, run

pytestmark = [*needs_stock("kube-apiserver", "etcd", *PROGRAMS, root=True), pytest.mark.kubectl]


@contextmanager
def ours(folder: Path) -> Iterator[Path]:
    with live_server(folder / "data") as live:
        yield live.kubeconfig


@contextmanager
def stock(folder: Path) -> Iterator[Path]:
    with kube_apiserver(folder) as kubeconfig:
        kubectl(kubeconfig, "create", "clusterrolebinding", "admins", "--clusterrole=cluster-admin", GROUP)
        yield kubeconfig


GROUP = f"--group={ADMINISTRATORS}"


def kubectl(kubeconfig: Path, *words: str, manifest: object = None, code: int = 0) -> str:
    text = None if manifest is None else json.dumps(manifest)
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@contextmanager
def agent(kubeconfig: Path, folder: Path, endpoint: str) -> Iterator[None]:
    root = f"kubeqos-test-{uuid.uuid4().hex[:8]}"
    config = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeConfiguration", "nodeName": "real", "port": 0}
    config |= {"containerRuntimeEndpoint": endpoint, "cgroupRoot": f"/{root}"}
    (folder / "node.yaml").write_text(json.dumps(config))
    words = [sys.executable, "-m", "kubeqos.cli.main", "node", "--kubeconfig", str(kubeconfig)]
    words += ["--config", str(folder / "node.yaml"), "--state-dir", str(folder / "state")]
    try:
        with process(words, folder, "node"):
            yield
            kubectl(kubeconfig, "delete", "pod", "web", "--now", "--timeout=60s")
    finally:
        cgroups.remove(root)


@pytest.mark.parametrize("server", [ours, stock])
def test_every_stream_of_kubectl(server: object, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    serve = f"echo started; echo hi > /tmp/index.html; busybox httpd -p 127.0.0.1:{port} -h /tmp; "
    script = f"trap 'exit 0' TERM; {serve} while true; do read line && echo got $line; done"
    container = {"name": "c", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script], "stdin": True}
    container["volumeMounts"] = [{"name": "tokens", "mountPath": "/tokens"}]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    spec = {"nodeName": "real", "hostNetwork": True, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    spec |= {"serviceAccountName": "default", "volumes": [{"name": "tokens", "projected": {"sources": [token]}}]}
    with (
        running_containerd2(tmp_path / "containerd") as runtime,
        server(tmp_path) as kubeconfig,  # type: ignore[operator]
        agent(kubeconfig, tmp_path, runtime.endpoint),
    ):
        deadline = time.monotonic() + 60
        while "real" not in kubectl(kubeconfig, "get", "nodes", "-o", "name"):
            assert time.monotonic() < deadline, (tmp_path / "node.log").read_text()
            time.sleep(0.3)
        # It warns of what is deprecated, such as this machine's cgroups, by a condition that nothing depends on.
        said = runtime.conditions()
        assert said["RuntimeReady"] and said["NetworkReady"]
        assert cgroups.VERSION == 2 or not all(said.values()), said
        kubectl(kubeconfig, "wait", "node/real", "--for=condition=Ready", "--timeout=60s")
        if "default" not in kubectl(kubeconfig, "get", "serviceaccounts", "-o", "name"):  # a controller's work
            kubectl(kubeconfig, "create", "serviceaccount", "default")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
        kubectl(kubeconfig, "create", "-f", "-", manifest=pod)
        kubectl(kubeconfig, "wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
        assert kubectl(kubeconfig, "logs", "web") == "started\n"
        assert kubectl(kubeconfig, "exec", "web", "--", "sh", "-c", "echo out; exit 3", code=3) == "out\n"
        assert run(kubeconfig, "exec", "-i", "web", "--", "cat", stdin="there and back") == "there and back"
        assert "got words" in run(kubeconfig, "attach", "-i", "web", stdin="words\n", until="got words\n")
        with forwarded(kubeconfig, "web", port) as local:
            page = urllib.request.urlopen(f"http://127.0.0.1:{local}/index.html").read()
        assert page == b"hi\n"
        assert_debugged(kubeconfig)
        assert kubectl(kubeconfig, "exec", "web", "--", "cat", "/tokens/token").count(".") == 2


def assert_debugged(kubeconfig: Path) -> None:
    """`kubectl debug`: a container of its own kind comes into a pod that runs, and sees another's processes."""
    words = ["debug", "web", "--profile=general", f"--image={BUSYBOX_IMAGE}", "--target=c", "-c", "debugger", "-i"]
    script = "while read line; do ps; echo got $line; done"
    said = run(kubeconfig, *words, "--", "sh", "-c", script, stdin="typed\n", until="got typed\n")
    assert "httpd -p" in said
    path = "{.status.ephemeralContainerStatuses[0].state}"
    assert kubectl(kubeconfig, "get", "pod", "web", "-o", f"jsonpath={path}")
    assert kubectl(kubeconfig, "wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
