"""What users do with kubectl every day, against our server."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.scenarios.kubectl import BINARY, Kubectl, Refused, pod

pytestmark = pytest.mark.kubectl


def test_version_and_discovery(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37.0+kubeqos" in kubectl("version")
    resources = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "resourcequotas", "deployments.apps", "resourceclaims.resource.k8s.io"} <= set(resources)
    assert "resource.k8s.io/v1alpha1" in kubectl("api-versions").split()
    assert kubectl("get", "--raw", "/readyz?verbose").endswith("readyz check passed\n")
    assert "is running at" in kubectl("cluster-info")


def test_create_get_describe_delete(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod("web", requests={"cpu": "100m"})))
    assert kubectl("create", "-f", str(manifest)) == "pod/web created\n"
    with pytest.raises(Refused, match='pods "web" already exists'):
        kubectl("create", "-f", str(manifest))
    assert kubectl.table("pods")[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert kubectl.table("pods")[1][:4] == ["web", "0/1", "Pending", "0"]
    wide = kubectl.table("pods", "-o", "wide")
    assert wide[0][-2:] == ["QOS", "CLASSES"]
    assert wide[1][-2:] == ["Burstable", "<none>"]
    assert kubectl("get", "pod", "web", "-o", "name") == "pod/web\n"
    assert kubectl("get", "pod", "web", "-o", "jsonpath={.status.qosClass}") == "Burstable"
    assert yaml.safe_load(kubectl("get", "pod", "web", "-o", "yaml"))["spec"]["schedulerName"] == "default-scheduler"
    assert kubectl("get", "pods", "-A", "-l", "app=web", "--field-selector", "status.phase=Pending", "-o", "name")
    assert (
        kubectl("get", "pods", "--sort-by=.metadata.name", "-o", "custom-columns=N:.metadata.name").split()[-1] == "web"
    )
    described = kubectl("describe", "pod", "web")
    assert re.search(r"QoS Class: +Burstable", described)
    # kubectl says where since 1.34.
    assert re.fullmatch(r'pod "web" deleted( from default namespace)?\n', kubectl("delete", "pod", "web"))
    with pytest.raises(Refused, match='pods "web" not found'):
        kubectl("get", "pod", "web")


def test_apply_twice_changes_nothing_and_diff_shows_what_would(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "map.yaml"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    manifest.write_text(yaml.safe_dump(body))
    assert kubectl("apply", "-f", str(manifest)) == "configmap/m created\n"
    assert kubectl("apply", "-f", str(manifest)) == "configmap/m unchanged\n"
    manifest.write_text(yaml.safe_dump({**body, "data": {"a": "2"}}))
    with pytest.raises(Refused) as shown:
        kubectl("diff", "-f", str(manifest))
    assert '+  a: "2"' in str(shown.value)
    assert kubectl("apply", "-f", str(manifest), "--dry-run=server") == "configmap/m configured (server dry run)\n"
    assert kubectl.object("get", "cm", "m")["data"] == {"a": "1"}
    assert kubectl("apply", "-f", str(manifest)) == "configmap/m configured\n"
    assert kubectl("replace", "-f", str(manifest)) == "configmap/m replaced\n"


def test_server_side_apply_reports_conflicts(kubectl: Kubectl) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}, "data": {"a": "1"}}
    apply = ("apply", "--server-side", "-f", "-")
    assert kubectl(*apply, "--field-manager=one", stdin=body) == "configmap/ssa serverside-applied\n"
    changed = {**body, "data": {"a": "2"}}
    with pytest.raises(Refused, match=r'conflict with "one"'):
        kubectl(*apply, "--field-manager=two", stdin=changed)
    assert kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=changed)
    assert kubectl.object("get", "cm", "ssa")["data"] == {"a": "2"}


def test_patch_label_annotate_taint_cordon(kubectl: Kubectl) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    kubectl("create", "-f", "-", stdin=node)
    assert kubectl("label", "node", "n1", "zone=a") == "node/n1 labeled\n"
    assert kubectl("annotate", "node", "n1", "note=b") == "node/n1 annotated\n"
    assert kubectl("taint", "node", "n1", "k=v:NoSchedule") == "node/n1 tainted\n"
    assert kubectl("cordon", "n1") == "node/n1 cordoned\n"
    assert kubectl.table("nodes")[1][1] == "Unknown,SchedulingDisabled"
    assert kubectl("uncordon", "n1") == "node/n1 uncordoned\n"
    assert kubectl("patch", "node", "n1", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/zone"}]')
    found = kubectl.object("get", "node", "n1")
    assert "labels" not in found["metadata"]
    assert {"key": "k", "value": "v", "effect": "NoSchedule"} in found["spec"]["taints"]
    assert "Unschedulable:      false" in kubectl("describe", "node", "n1")
    kubectl("create", "-f", "-", stdin=pod("on-n1", nodeName="n1"))
    drained = kubectl("drain", "n1", "--dry-run=server", "--force", "--ignore-daemonsets")
    assert "node/n1 drained (server dry run)" in drained
    kubectl("delete", "pod", "on-n1", "--grace-period=0", "--force")


def test_workloads_scale_and_rollout_objects(kubectl: Kubectl) -> None:
    assert kubectl("create", "deployment", "d", "--image=nginx") == "deployment.apps/d created\n"
    assert kubectl("scale", "deploy/d", "--replicas=3") == "deployment.apps/d scaled\n"
    assert kubectl.table("deploy")[1][:2] == ["d", "0/3"]
    assert kubectl("set", "image", "deploy/d", "nginx=nginx:2") == "deployment.apps/d image updated\n"
    assert kubectl.object("get", "deploy", "d")["metadata"]["generation"] == 3
    assert kubectl("expose", "deploy", "d", "--port=80") == "service/d exposed\n"
    assert kubectl.table("svc", "d")[1][:2] == ["d", "ClusterIP"]
    assert kubectl("delete", "deploy/d", "svc/d", "--cascade=background")


def test_watch_sees_changes(kubectl: Kubectl) -> None:
    watcher = subprocess.Popen(
        [BINARY or "kubectl", "get", "cm", "-w", "-o", "name"],
        stdout=subprocess.PIPE,
        text=True,
        env=kubectl.environment,
    )
    try:
        time.sleep(0.7)
        kubectl("create", "configmap", "seen", "--from-literal=a=1")
        assert watcher.stdout is not None
        assert any("configmap/seen" in watcher.stdout.readline() for _ in range(6))
    finally:
        watcher.terminate()
        watcher.wait(60)
    assert kubectl("wait", "cm/seen", "--for=jsonpath={.data.a}=1", "--timeout=5s") == "configmap/seen condition met\n"
    kubectl("delete", "cm", "seen")
    assert kubectl("wait", "cm/seen", "--for=delete", "--timeout=5s") == ""


def test_edit_uses_the_patch_it_computed(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "edited", "--from-literal=a=1")
    environment = {**kubectl.environment, "KUBE_EDITOR": "sed -i s/'a: \"1\"'/'a: \"7\"'/"}
    done = subprocess.run(
        [BINARY or "kubectl", "edit", "cm", "edited"], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "configmap/edited edited\n", done.stderr
    assert kubectl.object("get", "cm", "edited")["data"] == {"a": "7"}


def test_explain_knows_the_new_fields(kubectl: Kubectl) -> None:
    assert "FIELD: qosResources <[]PodQOSResourceRequest>" in kubectl("explain", "pod.spec.qosResources")
    assert "scopeSelector" in kubectl("explain", "resourcequota.spec")


def test_strict_validation_names_the_field(kubectl: Kubectl) -> None:
    wrong = pod("wrong")
    wrong["spec"]["containers"][0]["foo"] = 1
    with pytest.raises(Refused, match=r'strict decoding error: unknown field "spec.containers\[0\].foo"'):
        kubectl("create", "-f", "-", stdin=wrong)


def test_who_may_what(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    kubectl("create", "clusterrole", "reader", "--verb=get,list", "--resource=pods")
    kubectl("create", "clusterrolebinding", "readers", "--clusterrole=reader", "--user=joe")
    assert kubectl("auth", "can-i", "list", "pods", "--as=joe") == "yes\n"
    with pytest.raises(Refused, match="no"):
        kubectl("auth", "can-i", "delete", "pods", "--as=joe")
    with pytest.raises(Refused, match='User "joe" cannot list resource "secrets"'):
        kubectl("get", "secrets", "--as=joe")
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot").strip()
    assert "system:serviceaccount:default:robot" in kubectl(
        "auth", "whoami", "--token", token, "--kubeconfig", _no_user(kubectl)
    )


def _no_user(kubectl: Kubectl) -> str:
    """The kubeconfig without its client certificate."""
    config = yaml.safe_load(Path(kubectl.environment["KUBECONFIG"]).read_text())
    config["users"] = [{"name": user["name"], "user": {}} for user in config["users"]]
    path = kubectl.home / "no-user"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_events_are_listed(kubectl: Kubectl) -> None:
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Started", "message": "it started",
        "type": "Normal", "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
    }  # fmt: skip
    kubectl("create", "-f", "-", stdin=event)
    assert "Started" in kubectl("events")
    assert kubectl.table("events")[1][2:4] == ["Started", "pod/web"]


def test_a_namespace_refuses_new_content_while_it_goes(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "going")
    assert kubectl("delete", "namespace", "going", "--wait=false") == 'namespace "going" deleted\n'
    with pytest.raises(Refused, match="because it is being terminated"):
        kubectl("create", "configmap", "late", "-n", "going")
