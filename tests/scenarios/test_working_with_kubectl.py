"""Each command of the page "Work with kubectl", run with the real kubectl: what becomes of the classes."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.controllers.manager import ControllerManager
from kubeqos.gates import FeatureGates
from kubeqos.model.annotations.wellknown import REVISION_ANNOTATION
from tests.apiserver.live import LiveServer, live_server
from tests.scenarios.cluster import beside
from tests.scenarios.kubectl import BINARY, Kubectl, Refused, pod
from tests.scenarios.terminal import ROOT

pytestmark = pytest.mark.kubectl
PAGE = ROOT / "docs/howto/kubectl.md"
_NUMBERS = itertools.count(1)
GOLD = [{"name": "rdt", "class": "gold"}]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    gates = FeatureGates.parse("QOSResources=true")
    with live_server(tmp_path_factory.mktemp("kept") / "data", gates) as server, beside(server, ControllerManager):
        yield server


class Shop:
    """One deployment, in a namespace of its own, with kubectl and its plugin."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self.kubectl = kubectl
        self.namespace = namespace
        kubectl("create", "namespace", namespace)
        self("apply", "-f", "-", stdin=deployment("v1", "gold"))

    def __call__(self, *words: str, stdin: object = None) -> str:
        return self.kubectl(*words, "-n", self.namespace, stdin=stdin)

    def edits(self, change: str) -> None:
        self.kubectl.environment["KUBE_EDITOR"] = f"sed -i {change}"

    def at_revision(self, number: int) -> None:
        deadline = time.monotonic() + 60
        while (self.get("deployment/web")["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION) != str(number):
            assert time.monotonic() < deadline, f"never came to revision {number}"
            time.sleep(0.05)

    def get(self, name: str) -> dict[str, Any]:
        return self.kubectl.object("get", name, "-n", self.namespace)

    def classes(self, name: str = "deployment/web") -> list[str]:
        """The classes that an object's pods ask for."""
        spec = self.get(name)["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        asked = (spec["containers"][0].get("resources") or {}).get("qosResources") or []
        return [one["class"] for one in asked]


@pytest.fixture(scope="module")
def plugged(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl that finds its plugin `qos`."""
    folder = tmp_path_factory.mktemp("plugins")
    plugin = folder / "kubectl-qos"
    plugin.write_text(f"#!{sys.executable}\nfrom kubeqos.cli.main import main\nmain()\n")
    plugin.chmod(0o755)
    kubectl.environment["PATH"] = f"{folder}:{Path(BINARY or '').parent}:{kubectl.environment['PATH']}"
    return kubectl


@pytest.fixture
def shop(plugged: Kubectl) -> Shop:
    return Shop(plugged, f"shop-{next(_NUMBERS)}")


def deployment(image: str, cls: str = "") -> dict[str, Any]:
    made = pod("web")
    container = made["spec"]["containers"][0]
    container["image"] = f"registry.example/{image}"
    if cls:
        container["resources"]["qosResources"] = [{"name": "rdt", "class": cls}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": made["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def with_stdin(*words: str, cls: str = "silver") -> Callable[[Shop], None]:
    def run(shop: Shop) -> None:
        shop(*words, "-f", "-", stdin=deployment("v2", cls))
        assert shop.classes() == [cls]

    return run


def keeps(*words: str) -> Callable[[Shop], None]:
    def run(shop: Shop) -> None:
        shop(*words)
        assert shop.classes() == ["gold"]

    return run


def resumed(shop: Shop) -> None:
    shop("rollout", "pause", "deployment/web")
    shop("rollout", "resume", "deployment/web")
    assert shop.classes() == ["gold"]


def created(shop: Shop) -> None:
    shop("delete", "deployment", "web")
    shop("create", "-f", "-", stdin=deployment("v1", "gold"))
    assert shop.classes() == ["gold"]


def diffed(shop: Shop) -> None:
    with pytest.raises(Refused, match="class: silver"):
        shop("diff", "-f", "-", stdin=deployment("v1", "silver"))
    assert shop.classes() == ["gold"]


def patched(shop: Shop) -> None:
    path = "/spec/template/spec/containers/0"
    bodies = {
        "strategic": '{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v3"}]}}}}',
        "merge": '{"spec": {"replicas": 2}}',
        "json": f'[{{"op": "replace", "path": "{path}/image", "value": "v4"}}]',
    }
    for style, body in bodies.items():
        assert "Warning" not in shop("patch", "deployment/web", "--type", style, "-p", body)
        assert shop.classes() == ["gold"]
    remove = f'[{{"op": "remove", "path": "{path}/resources/qosResources"}}]'
    said = shop("patch", "deployment/web", "--type=json", "-p", remove)
    assert "Warning: this update removes every QoS class: spec.template.spec.containers[0]" in said
    assert shop.classes() == []


def edited(shop: Shop) -> None:
    shop.edits("s#example/v1#example/v2#")
    shop("edit", "deployment/web")
    assert shop.classes() == ["gold"]
    assert shop.get("deployment/web")["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/v2"


def edit_of_a_class(shop: Shop) -> None:
    shop.edits("s/gold/silver/")
    with pytest.raises(Refused, match=r'unable to find api field in struct .* "qosResources"'):
        shop("edit", "deployment/web")
    assert shop.classes() == ["gold"]


def undone(shop: Shop) -> None:
    shop.at_revision(1)
    shop("apply", "-f", "-", stdin=deployment("v2", "silver"))
    shop.at_revision(2)
    said = shop("rollout", "undo", "deployment/web")
    assert "deployment.apps/web rolled back" in said
    assert "Warning: spec.template: your client left out every QoS class; restored rdt=gold from revision 1" in said
    assert shop.classes() == ["gold"]
    shop.at_revision(3)
    shop("apply", "-f", "-", stdin=deployment("v2"))
    assert shop.classes() == [], "who applies a manifest without classes means it, also where it was a revision once"
    shop.at_revision(4)
    shop("rollout", "undo", "deployment/web")
    assert shop.classes() == ["gold"], "also from a template without classes"


def undo_that_kubectl_does_not_see(shop: Shop) -> None:
    shop.at_revision(1)
    shop("apply", "-f", "-", stdin=deployment("v1", "silver"))
    shop.at_revision(2)
    assert "skipped rollback" in shop("rollout", "undo", "deployment/web")
    assert shop.classes() == ["silver"]
    assert shop("qos", "rollout", "undo", "deployment/web") == "deployment.apps/web rolled back to revision 1\n"
    assert shop.classes() == ["gold"]


def job_of_cron_job(shop: Shop) -> None:
    spec = deployment("v1", "gold")["spec"]["template"]["spec"] | {"restartPolicy": "Never"}
    job = {"spec": {"template": {"spec": spec}}}
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": job}
    shop(
        "apply",
        "-f",
        "-",
        stdin={"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report"}, "spec": cron},
    )
    said = shop("create", "job", "--from=cronjob/report", "once")
    assert "restored rdt=gold from cronjob report" in said
    assert shop.classes("job/once") == ["gold"]


def overridden(shop: Shop) -> None:
    asked = '{"spec": {"qosResources": [{"name": "network", "class": "fast"}]}}'
    shop("run", "odd", "--image=registry.example/v1", f"--overrides={asked}")
    assert "qosResources" not in shop.get("pod/odd")["spec"]


def copied(shop: Shop) -> None:
    body = pod("first")
    body["spec"]["containers"][0]["resources"]["qosResources"] = GOLD
    shop("create", "-f", "-", stdin=body)
    shop("debug", "first", "--copy-to=second", "--set-image=*=registry.example/v2")
    assert shop.classes("pod/first") == ["gold"]
    assert shop.classes("pod/second") == []


def qos_edit(shop: Shop) -> None:
    shop.edits("s/gold/silver/")
    assert shop("qos", "edit", "deployment/web") == "deployment.apps/web edited\n"
    assert shop.classes() == ["silver"]
    classes = {"container": [{"name": "rdt", "classes": [{"name": "gold"}]}]}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "9"}, "qosResources": classes},
    }
    shop("create", "-f", "-", stdin=quota)
    assert shop("qos", "edit", "quota", "q") == "resourcequota/q edited\n"
    found = shop.get("quota/q")
    assert found["spec"]["qosResources"]["container"][0]["classes"] == [{"name": "silver"}]
    shop.edits("s/nothing/something/")
    assert shop("qos", "edit", "quota", "q") == "Edit cancelled, no changes made.\n"
    shop.edits("'/^  qosResources:/,/^status:/{/^status:/!d}'")
    assert "Warning: this update removes every QoS class: spec.qosResources is gone" in shop(
        "qos", "edit", "quota", "q"
    )


def qos_undo(shop: Shop) -> None:
    shop.at_revision(1)
    shop("apply", "-f", "-", stdin=deployment("v2"))
    shop.at_revision(2)
    shop("apply", "-f", "-", stdin=deployment("v2", "silver"))
    shop.at_revision(3)
    said = shop("qos", "rollout", "undo", "deployment/web", "--to-revision=2", "--dry-run")
    assert said.startswith(
        "deployment.apps/web rolled back to revision 2 (server dry run)\nWarning: this update removes"
    )
    assert shop.classes() == ["silver"]
    shop("qos", "rollout", "undo", "deployment", "web", "--to-revision=1")
    assert shop.classes() == ["gold"]
    shop.at_revision(4)
    shop("qos", "rollout", "undo", "deployment/web", "--to-revision=2")
    assert shop.classes() == [], "a revision without classes is one without classes"
    with pytest.raises(Refused, match="unable to find the specified revision 99 in history"):
        shop("qos", "rollout", "undo", "deployment/web", "--to-revision=99")


COMMANDS: dict[str, Callable[[Shop], None]] = {
    "`kubectl create -f web.yaml`": created,
    "`kubectl apply -f web.yaml`": with_stdin("apply"),
    "`kubectl apply --server-side -f web.yaml`": with_stdin("apply", "--server-side", "--force-conflicts"),
    "`kubectl replace -f web.yaml`": with_stdin("replace"),
    "`kubectl diff -f web.yaml`": diffed,
    "`kubectl patch deployment/web` (merge, strategic, JSON)": patched,
    "`kubectl set image deployment/web`": keeps("set", "image", "deployment/web", "c=registry.example/v2"),
    "`kubectl set env deployment/web`": keeps("set", "env", "deployment/web", "A=b"),
    "`kubectl set resources deployment/web`": keeps("set", "resources", "deployment/web", "--requests=cpu=100m"),
    "`kubectl scale deployment/web`": keeps("scale", "deployment/web", "--replicas=2"),
    "`kubectl label deployment/web`": keeps("label", "deployment/web", "a=b"),
    "`kubectl annotate deployment/web`": keeps("annotate", "deployment/web", "a=b"),
    "`kubectl rollout restart deployment/web`": keeps("rollout", "restart", "deployment/web"),
    "`kubectl rollout pause deployment/web`": keeps("rollout", "pause", "deployment/web"),
    "`kubectl rollout resume deployment/web`": resumed,
    "`kubectl edit` of anything but a class": edited,
    "`kubectl edit` of a class": edit_of_a_class,
    "`kubectl rollout undo deployment/web`": undone,
    "`kubectl rollout undo` where revisions differ in classes alone": undo_that_kubectl_does_not_see,
    "`kubectl create job --from=cronjob/report`": job_of_cron_job,
    "`kubectl run --overrides`": overridden,
    "`kubectl debug --copy-to`": copied,
    "`kubectl qos edit`": qos_edit,
    "`kubectl qos rollout undo`": qos_undo,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_becomes_of_the_classes(command: str, shop: Shop) -> None:
    COMMANDS[command](shop)


def test_the_page_lists_what_is_run() -> None:
    rows = re.findall(r"^\| (`kubectl .*?) \| .* \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == list(COMMANDS)
