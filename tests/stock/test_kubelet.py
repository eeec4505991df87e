"""An unmodified kubelet on our API server, with our scheduler and controllers: real containers on containerd 2.

Probes, volumes, logs, exec, attach, port-forward, drain, a static pod, and a node that restarts, all with real kubectl.
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cli.main import application
from tests.apiserver.live import live_server
from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS
from tests.stock.kube_apiserver import free_ports, process
from tests.stock.kubelet import NODE, Kubelet, prepared_kubelet
from tests.stock.needs import needs_stock
from tests.stock.parts import Cluster
from tests.stock.streams import forwarded, run

pytestmark = [*needs_stock("kubelet", *PROGRAMS, root=True), pytest.mark.kubectl]
SLEEP = "sleep 1000000 & wait"


class Node(Cluster):
    kubelet: Kubelet
    life: ExitStack
    """The running kubelet; it ends with this."""


def busybox(script: str, **more: Any) -> Any:
    trap = "trap 'exit 0' TERM; "
    return {"name": "c", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", trap + script], **more}


def pod(script: str, **more: Any) -> Any:
    of_container = {key: more.pop(key) for key in list(more) if key not in ("volumes", "restartPolicy", "nodeName")}
    return {"hostNetwork": True, "containers": [busybox(script, **of_container)], **more}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("kubelet")
    with live_server(folder / "data") as live, ExitStack() as stack, prepared_kubelet(live, folder) as kubelet:
        for part in ("scheduler", "controllers"):
            words = [sys.executable, "-m", "kubeqos.cli.main", part, "--kubeconfig", str(live.kubeconfig), "--port=0"]
            stack.enter_context(process(words, folder, part))
        made = Node(live, folder, ("kubelet",))
        made.kubelet, made.life = kubelet, ExitStack()
        with contextlib.closing(made.life):
            made.life.enter_context(kubelet.running())
            made.eventually("a node", lambda: made.get("nodes")["items"])
            made.kubectl("wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=90s")
            yield made


def test_the_doctor_asks_the_kubelet_whether_it_pins_containers(node: Node) -> None:
    done = CliRunner().invoke(application, ["doctor", "--kubeconfig", str(node.live.kubeconfig)])
    [row] = [line for line in done.output.splitlines() if line.startswith(f"node {NODE}: cores ")]
    assert row.split()[3] == "ok", "its managers are off, as they are by default"


def test_a_pod_runs_with_its_volumes_and_its_cgroup(node: Node) -> None:
    node.kubectl("create", "configmap", "words", "--from-literal=greeting=hello")
    node.kubectl("create", "secret", "generic", "hidden", "--from-literal=word=sesame")
    volumes = [
        {"name": "words", "configMap": {"name": "words"}},
        {"name": "hidden", "secret": {"secretName": "hidden"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "self", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    resources = {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}}
    script = f"cat /words/greeting /hidden/word /self/name > /scratch/all; {SLEEP}"
    node.create("Pod", "full", pod(script, volumes=volumes, volumeMounts=mounts, resources=resources))
    node.runs("full")
    assert node.kubectl("exec", "full", "--", "cat", "/scratch/all") == "hellosesamefull"
    uid = node.get("pod", "full")["metadata"]["uid"]
    group = f"{node.kubelet.cgroup_root}/kubepods/burstable/pod{uid}"
    assert int(cgroups.value(group, "memory.limit")) == 32 << 20
    patch = json.dumps({"data": {"greeting": "servus"}})
    node.kubectl("patch", "configmap", "words", "--type=merge", "-p", patch)

    def told() -> bool:
        return node.kubectl("exec", "full", "--", "cat", "/words/greeting") == "servus"

    node.eventually("the volume follows the ConfigMap", told)
    node.kubectl("delete", "pod", "full", "--timeout=60s")
    node.eventually("its cgroup is gone", lambda: not cgroups.folders(group))


def test_a_pod_carries_tokens_for_others(node: Node) -> None:
    """Projected service account tokens: one for the API server, one for somebody else, both bound to the pod."""
    node.kubectl("create", "serviceaccount", "robot")
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}},
    ]
    volumes = [{"name": "tokens", "projected": {"sources": sources}}]
    mounts = [{"name": "tokens", "mountPath": "/tokens"}]
    node.create("Pod", "robot", {**pod(SLEEP, volumes=volumes, volumeMounts=mounts), "serviceAccountName": "robot"})
    node.runs("robot")
    token, vault = (node.kubectl("exec", "robot", "--", "cat", f"/tokens/{name}") for name in ("token", "vault"))
    asked = {"Authorization": f"Bearer {token}"}
    assert node.live.call("GET", "/api/v1", headers=asked).code == 200
    assert node.live.call("GET", "/api/v1", headers={"Authorization": f"Bearer {vault}"}).code == 401
    spec = {"token": vault, "audiences": ["vault"]}
    review = node.live.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec}).body["status"]
    assert review["authenticated"] and review["user"]["username"] == "system:serviceaccount:default:robot"
    node.kubectl("delete", "pod", "robot", "--now")
    node.eventually("the token ends", lambda: node.live.call("GET", "/api/v1", headers=asked).code == 401)


def test_streams(node: Node) -> None:
    """logs, exec with input and exit code, attach, cp and port-forward, through our server to the kubelet."""
    (port,) = free_ports(1)
    serve = f"echo started; echo hi > /tmp/index.html; busybox httpd -p 127.0.0.1:{port} -h /tmp; "
    node.create("Pod", "web", pod(f"{serve} while true; do read line && echo got $line; done", stdin=True))
    node.runs("web")
    assert node.kubectl("logs", "web") == "started\n"
    assert node.kubectl("exec", "web", "--", "sh", "-c", "echo out; exit 3", code=3) == "out\n"
    assert run(node.live.kubeconfig, "exec", "-i", "web", "--", "cat", stdin="there and back") == "there and back"
    assert "got words" in run(node.live.kubeconfig, "attach", "-i", "web", stdin="words\n", until="got words\n")
    assert "got words\n" in node.kubectl("logs", "web")
    with (
        forwarded(node.live.kubeconfig, "web", port) as local,
        urllib.request.urlopen(f"http://127.0.0.1:{local}/index.html") as page,
    ):
        assert page.read() == b"hi\n"
    node.kubectl("delete", "pod", "web", "--now")


def test_probes_decide_on_ready_and_restart(node: Node) -> None:
    probe = {"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 1}
    node.create("Pod", "probed", pod(f"echo > /tmp/up; {SLEEP}", readinessProbe=probe, livenessProbe=probe))
    node.runs("probed")
    node.kubectl("exec", "probed", "--", "busybox", "rm", "/tmp/up")

    def restarts() -> Any:
        return node.get("pod", "probed")["status"]["containerStatuses"][0]["restartCount"]

    node.eventually("the container is restarted", lambda: restarts() >= 1)
    node.runs("probed")
    told = {one["reason"] for one in node.get("events", "--field-selector=involvedObject.name=probed")["items"]}
    assert {"Unhealthy", "Killing", "Started"} <= told
    node.kubectl("delete", "pod", "probed", "--now")


def test_a_job_of_our_controllers_completes(node: Node) -> None:
    template = {"spec": pod("echo done", restartPolicy="Never")}
    node.create("Job", "once", {"template": template, "completions": 2}, "batch/v1")
    node.kubectl("wait", "job/once", "--for=condition=complete", "--timeout=90s")
    assert node.kubectl("logs", "job/once").splitlines()[-1] == "done"
    node.kubectl("delete", "job", "once")


def test_a_debugging_container_joins_a_pod(node: Node) -> None:
    node.create("Pod", "sick", pod(SLEEP))
    node.runs("sick")
    words = ["--image", BUSYBOX_IMAGE, "--container=doctor", "--", "sh", "-c", "echo looks fine"]
    node.kubectl("debug", "sick", "--profile=general", *words)

    def statuses() -> Any:
        return node.get("pod", "sick")["status"].get("ephemeralContainerStatuses") or ()

    node.eventually("it has looked", lambda: any("terminated" in one["state"] for one in statuses()))
    assert node.kubectl("logs", "sick", "-c", "doctor") == "looks fine\n"
    node.kubectl("delete", "pod", "sick", "--now")


def test_a_resize_reaches_the_kernel(node: Node) -> None:
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    node.create("Pod", "grows", pod(SLEEP, resources=resources))
    node.runs("grows")
    more = {"name": "c", "resources": {"limits": {"cpu": "300m"}}}
    patch = json.dumps({"spec": {"containers": [more]}})
    node.kubectl("patch", "pod", "grows", "--subresource=resize", "-p", patch)
    uid = node.get("pod", "grows")["metadata"]["uid"]
    group = f"{node.kubelet.cgroup_root}/kubepods/burstable/pod{uid}"
    node.eventually("the kernel knows", lambda: cgroups.value(group, "cpu.quota") == "30000")
    node.kubectl("delete", "pod", "grows", "--now")


def test_a_static_pod_has_a_mirror(node: Node) -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fixed"}, "spec": pod(SLEEP)}
    file = node.folder / "static" / "fixed.json"
    file.write_text(json.dumps(raw))
    node.eventually("its mirror", lambda: f"fixed-{NODE}" in node.kubectl("get", "pods", "-o", "name"))
    node.runs(f"fixed-{NODE}")
    file.unlink()
    node.eventually("it is gone", lambda: f"fixed-{NODE}" not in node.kubectl("get", "pods", "-o", "name"))


def test_a_drained_node_takes_pods_again(node: Node) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod(SLEEP)}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    node.create("Deployment", "web", spec, "apps/v1")
    node.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    node.kubectl("drain", NODE, "--force", "--timeout=90s")
    assert node.get("pods", f"--field-selector=spec.nodeName={NODE}")["items"] == []
    node.kubectl("uncordon", NODE)
    node.kubectl("rollout", "status", "deployment/web", "--timeout=90s")


def test_pods_outlive_the_restart_of_a_node(node: Node) -> None:
    def containers() -> set[str]:
        found = node.get("pods", "-l", "app=web")["items"]
        return {one["status"]["containerStatuses"][0]["containerID"] for one in found}

    before = containers()
    node.life.pop_all().close()
    node.kubectl("scale", "deployment/web", "--replicas=3")
    node.life.enter_context(node.kubelet.running("kubelet-again"))
    node.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
    assert len(before) == 2 and before < containers()
    node.kubectl("delete", "deployment", "web")
    node.eventually("garbage collected", lambda: not node.get("pods", "-l", "app=web")["items"])


def test_what_the_node_says_is_read_through_our_server(node: Node) -> None:
    said = json.loads(node.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/pods"))
    assert said["kind"] == "PodList"
    assert "node_cpu_usage_seconds_total" in node.kubectl(
        "get", "--raw", f"/api/v1/nodes/{NODE}/proxy/metrics/resource"
    )


def test_nothing_that_it_looks_for_is_unknown(node: Node) -> None:
    assert node.unknown() == []
