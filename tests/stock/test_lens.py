"""The same views in both homes: what NodeQOS, annotations and QOSClassQuotas say is shown as fields are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cli.main import application
from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments, encode_machine
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.definitions import definitions
from kubeqos.stock.lens import native_node, native_pod, native_quotas
from tests.apiserver.live import LiveServer, live_server

OURS = "/apis/kubeqos.io/v1alpha1"
MACHINE = load_machine("laptop8")
HELD = Assignments({"shared": CpuSet.parse("2-7")}, {"team/web/c": Holding(CpuSet.parse("0-1"), exclusive=True)})
REPORT = {
    "status": {
        "classCount": 1,
        "classes": [
            {"resource": "blockio", "class": "slow", "level": "container", "mutable": True, "capacity": 2, "used": 1}
        ],
        "topology": {MACHINE_ANNOTATION: encode_machine(MACHINE), ASSIGNMENTS_ANNOTATION: encode_assignments(HELD)},
        "conditions": [{"type": "Healthy", "status": "True", "reason": "Answering", "message": ""}],
    }
}
ASKED = {"qos.kubeqos.io/container.c": "blockio=slow"}
CLASSES = {"container": [{"name": "blockio", "classes": [{"name": "slow", "capacity": 3}]}]}


def pod(**annotations: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "a"}], "nodeName": "n1"}
    return {"metadata": {"name": "web", "namespace": "team", "annotations": annotations}, "spec": spec}


def test_a_node_says_what_its_report_says() -> None:
    node = native_node({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready"}]}}, REPORT)
    [offered] = node["status"]["qosResources"]["containerQoSResources"]
    assert offered == {"name": "blockio", "mutable": True, "classes": [{"name": "slow", "capacity": 2}]}
    assert [one["type"] for one in node["status"]["conditions"]] == ["Ready", "Healthy"]
    assert native_node(node, None) is node


def test_a_pod_asks_by_field() -> None:
    asked = native_pod(pod(**ASKED))["spec"]["containers"][0]["resources"]["qosResources"]
    assert asked == [{"name": "blockio", "class": "slow"}]
    broken = pod(**{"qos.kubeqos.io/container.c": "slow"})
    assert native_pod(broken) is broken, "nonsense is shown as it is"
    assert native_pod(plain := pod()) is plain


def test_quotas_of_one_name_are_one() -> None:
    own = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"qosResources": CLASSES}, "status": {"a": 1}}
    known = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"pods": "1"}}, "kind": "ResourceQuota"}
    [both] = native_quotas([known], [own])
    assert both["spec"] == {"hard": {"pods": "1"}, "qosResources": CLASSES}
    [alone] = native_quotas([], [own])
    assert alone["kind"] == "ResourceQuota"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with our kinds, a Node that says nothing of us, its report, a pod that asks by annotation, a quota."""
    with live_server(tmp_path_factory.mktemp("lens") / "data") as live:
        for raw in definitions(("nodeqoses", "qosclassquotas")):
            made = live.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", raw)
            assert made.code == 201, made.body
        post(live, "/api/v1/namespaces", "Namespace", "v1", {"metadata": {"name": "team"}})
        post(live, "/api/v1/nodes", "Node", "v1", {"metadata": {"name": "n1"}})
        post(live, f"{OURS}/nodeqoses", "NodeQOS", "kubeqos.io/v1alpha1", {"metadata": {"name": "n1"}, "spec": {}})
        headers = {"Content-Type": "application/merge-patch+json"}
        told = live.call("PATCH", f"{OURS}/nodeqoses/n1/status", REPORT, headers=headers)
        assert told.code == 200, told.body
        post(live, "/api/v1/namespaces/team/pods", "Pod", "v1", pod(**ASKED))
        quota = {"metadata": {"name": "q"}, "spec": {"qosResources": CLASSES}}
        path = f"{OURS}/namespaces/team/qosclassquotas"
        post(live, path, "QOSClassQuota", "kubeqos.io/v1alpha1", quota)
        yield live


def post(live: LiveServer, path: str, kind: str, version: str, raw: dict[str, Any]) -> None:
    made = live.call("POST", path, {"apiVersion": version, "kind": kind, **raw})
    assert made.code == 201, made.body


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("classes", ["blockio    slow    container   1       2          1      1"]),
        ("map n1", ["team/web/c", "shared"]),
        ("describe node n1", ["slow (1/2)", "Healthy", "team/web/c"]),
        ("describe pod web -n team", ["blockio", "slow"]),
        ("why web -n team", ["0-1", "blockio=slow"]),
        ("quota -n team", ["q", "blockio", "slow"]),
        ("describe quota q -n team", ["blockio", "slow"]),
        ("top classes", ["blockio", "slow"]),
    ],
)
def test_commands_show_a_stock_cluster(stock: LiveServer, words: str, shown: list[str]) -> None:
    done = CliRunner().invoke(application, [*words.split(), "--kubeconfig", str(stock.kubeconfig)])
    assert done.exit_code == 0, done.output
    for one in shown:
        assert one in done.output, done.output


def test_what_nobody_knows_is_not_found(stock: LiveServer, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        application, ["describe", "quota", "nope", "-n", "team", "--kubeconfig", str(stock.kubeconfig)]
    )
    assert done.exit_code != 0
    assert "not found" in done.output or "not found" in str(done.exception)
