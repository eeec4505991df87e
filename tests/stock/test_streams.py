"""Our node agent on containerd 2 behind a real kube-apiserver and behind ours: every stream that kubectl opens.

A kube-apiserver 1.37 comes by WebSocket, because the Node says that it may, and with a certificate as kubeadm makes it:
the agent asks whether its group may do that. To a node that says nothing it comes by SPDY, and as a 1.35 to every node,
here with a certificate that names no organization. Its own metrics tell which way it went. A kubectl that speaks SPDY
is passed on as it is, whatever the Node says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from kubeqos.model.annotations.wellknown import WEBSOCKETS_FEATURE
from tests.apiserver.live import live_server
from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS, running_containerd2
from tests.stock.kube_apiserver import ADMINISTRATORS, KUBELET_CLIENT, free_ports, kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.streams import BY_SPDY, NOTHING, forwarded, run, typed

pytestmark = [*needs_stock("kube-apiserver", "etcd", *PROGRAMS, root=True), pytest.mark.kubectl]
Server = Callable[[Path], AbstractContextManager[Path]]


@contextmanager
def ours(folder: Path) -> Iterator[Path]:
    with live_server(folder / "data") as live:
        yield live.kubeconfig


@contextmanager
def stock(folder: Path) -> Iterator[Path]:
    with kube_apiserver(folder) as kubeconfig:
        kubectl(kubeconfig, "create", "clusterrolebinding", "admins", "--clusterrole=cluster-admin", GROUP)
        yield kubeconfig


@contextmanager
def silent(folder: Path) -> Iterator[Path]:
    """Nodes declare nothing there: a policy of the cluster takes it from them."""
    declaring = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "any"},
        "status": {"declaredFeatures": ["Any"]},
    }
    with stock(folder) as kubeconfig:
        for manifest in (POLICY, POLICY_BINDING):
            kubectl(kubeconfig, "create", "-f", "-", manifest=manifest)
        deadline = time.monotonic() + 60
        while "Any" in kubectl(kubeconfig, "create", "--dry-run=server", "-o", "json", "-f", "-", manifest=declaring):
            assert time.monotonic() < deadline, "the policy is not in force"
            time.sleep(0.3)
        yield kubeconfig


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes", "nodes/status"]}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "silent"},
    "spec": {
        "matchConstraints": {"resourceRules": [{**RULE, "operations": ["CREATE", "UPDATE"]}]},
        "matchConditions": [{"name": "declares", "expression": "has(object.status.declaredFeatures)"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/status/declaredFeatures"}]'},
            }
        ],
    },
}
POLICY_BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicyBinding",
    "metadata": {"name": "silent"},
    "spec": {"policyName": "silent"},
}


@contextmanager
def older(folder: Path) -> Iterator[Path]:
    with kube_apiserver(folder, flags=["--emulated-version=1.35"], organizations=()) as kubeconfig:
        words = ["create", "clusterrolebinding", "nodes", "--clusterrole=system:kubelet-api-admin"]
        kubectl(kubeconfig, *words, f"--user={KUBELET_CLIENT}")
        yield kubeconfig


GROUP = f"--group={ADMINISTRATORS}"
CARRIED: dict[Server, str] = {
    stock: "proxied_to_kubelet",
    silent: "translated_at_apiserver",
    older: "translated_at_apiserver",
}
"""What each kube-apiserver says of the WebSockets of clients: passed on as they are, or translated to SPDY."""
SIZE = 33, 111


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


@pytest.mark.parametrize("server", [ours, stock, silent, older])
def test_every_stream_of_kubectl(server: Server, tmp_path: Path) -> None:
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
        server(tmp_path) as kubeconfig,
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
        assert_streams(kubeconfig, port)
        assert_debugged(kubeconfig)
        declared = kubectl(kubeconfig, "get", "node", "real", "-o", "jsonpath={.status.declaredFeatures}")
        assert (WEBSOCKETS_FEATURE in declared) == (server is not silent)
        if server in CARRIED:
            ways = {"attach": CARRIED[server], "exec": CARRIED[server], "portforward": CARRIED[server]}
            assert carried(kubeconfig) == ways
            assert_streams(kubeconfig, port, BY_SPDY)
        assert kubectl(kubeconfig, "exec", "web", "--", "cat", "/tokens/token").count(".") == 2


def assert_streams(kubeconfig: Path, port: int, more: Mapping[str, str] = NOTHING) -> None:
    """A command with something to read, one on a terminal, a container's own process, a port."""
    assert run(kubeconfig, "exec", "-i", "web", "--", "cat", stdin="there and back", more=more) == "there and back"
    script = f'until [ "$(stty size)" = "{SIZE[0]} {SIZE[1]}" ]; do sleep 0.1; done; read word; echo got $word'
    shown = typed(kubeconfig, "exec", "-it", "web", "--", "sh", "-c", script, keys="keys\n", size=SIZE, more=more)
    assert "got keys\r\n" in shown
    assert "got words" in run(kubeconfig, "attach", "-i", "web", stdin="words\n", until="got words\n", more=more)
    with forwarded(kubeconfig, "web", port, more) as local:
        page = urllib.request.urlopen(f"http://127.0.0.1:{local}/index.html").read()
    assert page == b"hi\n"


def carried(kubeconfig: Path) -> dict[str, str]:
    """Which way a kube-apiserver sent streams of each kind; one that went both ways is an error."""
    told = kubectl(kubeconfig, "get", "--raw", "/metrics")
    pattern = r'^apiserver_websocket_streaming_requests_total{proxy_type="(\w+)",subresource="(\w+)"}'
    found = re.findall(pattern, told, re.MULTILINE)
    ways = {subresource: way for way, subresource in found}
    assert len(ways) == len(found), found
    return ways


def assert_debugged(kubeconfig: Path) -> None:
    """`kubectl debug`: a container of its own kind comes into a pod that runs, and sees another's processes."""
    words = ["debug", "web", "--profile=general", f"--image={BUSYBOX_IMAGE}", "--target=c", "-c", "debugger", "-i"]
    script = "while read line; do ps; echo got $line; done"
    said = run(kubeconfig, *words, "--", "sh", "-c", script, stdin="typed\n", until="got typed\n")
    assert "httpd -p" in said
    path = "{.status.ephemeralContainerStatuses[0].state}"
    assert kubectl(kubeconfig, "get", "pod", "web", "-o", f"jsonpath={path}")
    assert kubectl(kubeconfig, "wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
