"""Every form in which kubectl prints and follows objects, and the commands that look at more than one of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import yaml

from kubeqos.codec import decode_json
from tests.scenarios.kubectl import BINARY, Kubectl, Refused, pod

pytestmark = pytest.mark.kubectl


@pytest.fixture
def web(kubectl: Kubectl) -> Iterator[str]:
    """A pod that is there for one test."""
    kubectl("create", "-f", "-", stdin=pod("web", requests={"cpu": "100m"}))
    yield "web"
    kubectl("delete", "pod", "web", "--grace-period=0", "--force", "--ignore-not-found")


@contextmanager
def following(kubectl: Kubectl, *arguments: str) -> Iterator[IO[str]]:
    """The output of a command that does not end by itself."""
    command = [BINARY or "kubectl", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kubectl.environment)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("name", "pod/web\n"),
        ("jsonpath={.metadata.name} {.status.phase}", "web Pending"),
        ("jsonpath-as-json={.spec.containers[*].name}", '[\n    "c"\n]\n'),
        ("go-template={{.metadata.name}}: {{.status.qosClass}}", "web: Burstable"),
        ("custom-columns=NAME:.metadata.name,QOS:.status.qosClass", "NAME   QOS\nweb    Burstable\n"),
    ],
    ids=["name", "jsonpath", "jsonpath-as-json", "go-template", "custom-columns"],
)  # fmt: skip
def test_forms_that_a_script_reads(kubectl: Kubectl, web: str, form: str, printed: str) -> None:
    assert kubectl("get", "pod", web, "-o", form) == printed


def test_forms_that_are_files(kubectl: Kubectl, web: str, tmp_path: Path) -> None:
    for form, text in (
        ("go-template-file", "{{.metadata.name}}"),
        ("jsonpath-file", "{.metadata.name}"),
        ("custom-columns-file", "NAME\nmetadata.name"),
    ):
        file = tmp_path / form
        file.write_text(text)
        assert kubectl("get", "pod", web, "-o", f"{form}={file}").split()[-1] == "web"


def test_json_and_yaml_are_the_same_object(kubectl: Kubectl, web: str) -> None:
    as_json = decode_json(kubectl("get", "pod", web, "-o", "json").encode())
    assert as_json == yaml.safe_load(kubectl("get", "pod", web, "-o", "yaml"))
    assert "managedFields" not in as_json["metadata"]
    shown = yaml.safe_load(kubectl("get", "pod", web, "-o", "yaml", "--show-managed-fields"))
    assert shown["metadata"]["managedFields"][0]["manager"] == "kubectl-create"


def test_columns_that_are_asked_for(kubectl: Kubectl, web: str) -> None:
    header, row = kubectl.table("pods", "--show-labels", "-L", "app")
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "APP", "LABELS"]
    assert row[-2:] == ["web", "app=web"]
    assert kubectl.table("pods", "--no-headers")[0][0] == "web"
    assert kubectl.table("pods", "--show-kind")[1][0] == "pod/web"
    assert "pod/web" in {row[0] for row in kubectl.table("all", "-A", "-o", "name")}
    wide = kubectl.table("pods", "-o", "wide")
    assert wide[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE",
                       "READINESS GATES", "QOS", "CLASSES"]  # fmt: skip


def test_pages_make_one_list(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "paged")
    for number in range(5):
        kubectl("create", "configmap", f"page-{number}", "-n", "paged")
    names = kubectl("get", "cm", "-n", "paged", "--chunk-size=2", "-o", "name").split()
    assert names == [f"configmap/page-{number}" for number in range(5)]
    kubectl("delete", "namespace", "paged", "--wait=false")


def test_a_watch_prints_rows_and_kinds_of_change(kubectl: Kubectl, web: str) -> None:
    with following(kubectl, "get", "pods", "-w", "--output-watch-events") as lines:
        assert lines.readline().split() == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert lines.readline().split()[:4] == ["ADDED", "web", "0/1", "Pending"]
        kubectl("label", "pod", web, "seen=yes")
        assert lines.readline().split()[:2] == ["MODIFIED", "web"]
        kubectl("delete", "pod", web, "--grace-period=0", "--force")
        assert any(lines.readline().split()[:2] == ["DELETED", "web"] for _ in range(3))


def test_patches_of_every_kind(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "patched", "--image=nginx")
    strategic = '{"spec":{"template":{"spec":{"containers":[{"name":"more","image":"busybox"}]}}}}'
    assert kubectl("patch", "deploy", "patched", "-p", strategic) == "deployment.apps/patched patched\n"
    containers = kubectl.object("get", "deploy", "patched")["spec"]["template"]["spec"]["containers"]
    assert {c["name"] for c in containers} == {"nginx", "more"}, "lists are merged by name"
    merge = '{"metadata":{"labels":{"app":null,"a":"b"}}}'
    assert kubectl("patch", "deploy", "patched", "--type=merge", "-p", merge)
    assert kubectl.object("get", "deploy", "patched")["metadata"]["labels"] == {"a": "b"}
    assert "(no change)" in kubectl("patch", "deploy", "patched", "--type=merge", "-p", merge)
    replicas = '{"spec":{"replicas":4}}'
    scaled = kubectl("patch", "deploy", "patched", "--subresource=scale", "--type=merge", "-p", replicas)
    assert scaled == "scale.autoscaling/patched patched\n"
    assert kubectl.object("get", "deploy", "patched")["spec"]["replicas"] == 4
    with pytest.raises(Refused, match=r"spec\.replicas: Invalid value: -1"):
        kubectl("patch", "deploy", "patched", "--type=merge", "-p", '{"spec":{"replicas":-1}}')
    kubectl("delete", "deploy", "patched")


def test_editing_what_may_not_change_says_so(kubectl: Kubectl, web: str, tmp_path: Path) -> None:
    editor = "sed -i s/restartPolicy:.*/restartPolicy:\\ Never/"
    environment = {**kubectl.environment, "KUBE_EDITOR": editor, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [BINARY or "kubectl", "edit", "pod", web], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert 'pods "web" is invalid' in done.stderr
    kept = "".join(file.read_text() for file in tmp_path.glob("kubectl-edit-*.yaml"))
    assert "# * spec: Forbidden: pod updates may not change fields other than" in kept, "what the editor shows"


def test_replace_by_force_makes_a_new_object(kubectl: Kubectl, web: str) -> None:
    before = kubectl("get", "pod", web, "-o", "jsonpath={.metadata.uid}")
    replaced = kubectl("replace", "--force", "--grace-period=0", "-f", "-", stdin=pod("web", requests={"cpu": "1"}))
    assert "pod/web replaced" in replaced
    assert kubectl("get", "pod", web, "-o", "jsonpath={.metadata.uid}") != before


def test_wait_for_a_condition(kubectl: Kubectl, web: str) -> None:
    with pytest.raises(Refused, match="timed out waiting for the condition on pods/web"):
        kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=1s")
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", web, "--subresource=status", "-p", ready)
    assert kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=5s") == "pod/web condition met\n"


def test_events_of_one_object(kubectl: Kubectl, web: str) -> None:
    uid = kubectl("get", "pod", web, "-o", "jsonpath={.metadata.uid}")
    for name, about, kind in (("e1", "web", "Normal"), ("e2", "other", "Warning")):
        kubectl("create", "-f", "-", stdin={
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": f"About{about}",
            "type": kind, "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": about,
                                             **({"uid": uid} if about == web else {})},
            "lastTimestamp": "2026-01-01T00:00:00Z"})  # fmt: skip
    ours = kubectl("events", "--for", "pod/web")
    assert "Aboutweb" in ours
    assert "Aboutother" not in ours
    assert "Aboutweb" not in kubectl("events", "--types=Warning")
    assert re.search(r"Events:\n.*\n.*\n +Normal +Aboutweb", kubectl("describe", "pod", web))
    kubectl("delete", "events", "e1", "e2")


def test_drain_names_the_pods_it_would_evict(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "full"}})
    kubectl("create", "-f", "-", stdin=pod("tenant", nodeName="full"))
    with pytest.raises(Refused, match="cannot delete Pods that declare no controller"):
        kubectl("drain", "full", "--dry-run=server")
    drained = kubectl("drain", "full", "--dry-run=server", "--force")
    assert "evicting pod default/tenant (server dry run)" in drained
    assert "deletionTimestamp" not in kubectl.object("get", "pod", "tenant")["metadata"]
    assert not kubectl.object("get", "node", "full")["spec"].get("unschedulable")
    kubectl("delete", "pod", "tenant", "--grace-period=0", "--force")
    kubectl("delete", "node", "full")


def test_what_a_user_may_do_is_listed(kubectl: Kubectl) -> None:
    kubectl("create", "role", "editor", "--verb=get,update", "--resource=configmaps", "--resource-name=one")
    kubectl("create", "rolebinding", "editors", "--role=editor", "--user=ann")
    listed = kubectl("auth", "can-i", "--list", "--as=ann")
    assert re.search(r"configmaps +\[\] +\[one\] +\[get update\]", listed)
    everything = kubectl("auth", "can-i", "--list")
    assert len(re.findall(r"^\*\.\* +\[\] +\[\] +\[\*\]", everything, re.M)) == 1
    assert len(re.findall(r"^ +\[\*\] +\[\] +\[\*\]", everything, re.M)) == 1


def test_one_container_owned_by_two(kubectl: Kubectl) -> None:
    """Server-side apply of a workload: each manager owns the fields it set, and a conflict names them."""

    def deployment(**container: object) -> dict[str, object]:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", **container}]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shared"}, "spec": spec}

    apply = ("apply", "--server-side", "-f", "-")
    kubectl(*apply, "--field-manager=team", stdin=deployment(image="app:1"))
    limits = {"limits": {"cpu": "1"}}
    kubectl(*apply, "--field-manager=platform", stdin=deployment(resources=limits))
    with pytest.raises(Refused) as refused:
        kubectl(*apply, "--field-manager=platform", stdin=deployment(image="app:2", resources=limits))
    assert 'conflict with "team": .spec.template.spec.containers[name="c"].image' in str(refused.value)
    kubectl(*apply, "--field-manager=platform", stdin=deployment())
    container = kubectl.object("get", "deploy", "shared")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "app:1"
    assert not container["resources"], "what its only owner no longer applies is gone"
    kubectl("delete", "deploy", "shared")
