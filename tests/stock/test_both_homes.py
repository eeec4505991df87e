"""One situation in both homes, and what `kubectl qos` shows of it: the same, wherever both know the same.

The manifests are written once, with fields, and converted for the stock cluster (`kubeqos convert`). Class quotas are
charged by whoever does that in each home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cli.main import application
from kubeqos.gates import FeatureGates
from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments, encode_machine
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.classquota import Write, recount
from kubeqos.stock.convert import to_stock
from kubeqos.stock.definitions import definitions
from kubeqos.stock.examination import KINDS
from tests.apiserver.live import LiveServer, live_server

Raw = dict[str, Any]
OURS = "/apis/kubeqos.io/v1alpha1"
TEAM = "/api/v1/namespaces/team"
HELD = Assignments({"shared": CpuSet.parse("2-7")}, {"team/web/c": Holding(CpuSet.parse("0-1"), exclusive=True)})
PUBLISHED = {
    MACHINE_ANNOTATION: encode_machine(load_machine("laptop8")),
    ASSIGNMENTS_ANNOTATION: encode_assignments(HELD),
}
OFFERED: dict[str, dict[str, int]] = {"blockio": {"slow": 2, "fast": 0}, "rdt": {"gold": 0}}
"""Classes of containers, and how many may have each; 0 is any number."""
AMOUNTS = {"cpu": "8", "memory": "16Gi", "pods": "110"}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": None}
QUOTA: Raw = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": "team"},
    "spec": {
        "hard": {"pods": "5"},
        "qosResources": {
            "container": [
                {"name": "blockio", "classes": [{"name": "slow", "capacity": 3}, {"name": "fast"}]},
                {"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]},
            ]
        },
    },
}


def pod(name: str, **classes: str) -> Raw:
    asked = [{"name": resource, "class": cls} for resource, cls in classes.items()]
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, **({"qosResources": asked} if asked else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "app:1", "resources": resources}]},
    }


PODS = [pod("web", blockio="slow", rdt="gold"), pod("db", blockio="slow"), pod("log", blockio="fast"), pod("plain")]


@dataclass(frozen=True)
class Home:
    """A server, and what it is told."""

    live: LiveServer

    def post(self, path: str, raw: Raw) -> Raw:
        made = self.live.call("POST", path, raw)
        assert made.code == 201, made.body
        body: Raw = made.body
        return body

    def tell(self, path: str, status: Raw) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        told = self.live.call("PATCH", f"{path}/status", {"status": status}, headers=headers)
        assert told.code == 200, told.body

    def begin(self, node: Raw, status: Raw) -> None:
        self.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        self.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", **node}})
        self.tell("/api/v1/nodes/n1", {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [READY], **status})

    def run(self, *pods: Raw) -> list[Raw]:
        """Pods that are there, and run."""
        for raw in pods:
            self.post(f"{TEAM}/pods", raw)
            self.tell(f"{TEAM}/pods/{raw['metadata']['name']}", {"phase": "Running"})
        items: list[Raw] = self.live.call("GET", f"{TEAM}/pods").body["items"]
        return items

    def shows(self, words: str) -> str:
        done = CliRunner().invoke(application, [*words.split(), "--kubeconfig", str(self.live.kubeconfig)])
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    gates = FeatureGates.parse("QOSResources=true")
    with live_server(tmp_path_factory.mktemp("embedded") / "data", gates) as live:
        home = Home(live)
        offered = [{"name": name, "mutable": True, "classes": sized(classes)} for name, classes in OFFERED.items()]
        home.begin({"annotations": PUBLISHED}, {"qosResources": {"containerQoSResources": offered}})
        home.post(f"{TEAM}/resourcequotas", QUOTA)
        home.run(*PODS)
        yield home


def sized(classes: dict[str, int]) -> list[Raw]:
    return [{"name": cls, **({"capacity": size} if size else {})} for cls, size in classes.items()]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    gates = FeatureGates.parse("QOSResources=false")
    with live_server(tmp_path_factory.mktemp("stock") / "data", gates) as live:
        home = Home(live)
        for raw in definitions(KINDS):
            home.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", raw)
        home.begin({}, {})
        about = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeQOS", "metadata": {"name": "n1"}, "spec": {}}
        home.post(f"{OURS}/nodeqoses", about)
        told = [
            {"resource": name, "level": "container", "mutable": True, "class": cls["name"], "used": 0, **cls_size(cls)}
            for name, classes in OFFERED.items()
            for cls in sized(classes)
        ]
        home.tell(f"{OURS}/nodeqoses/n1", {"classCount": len(told), "classes": told, "topology": PUBLISHED})
        for raw in to_stock([QUOTA]):
            place = OURS if raw["kind"] == "QOSClassQuota" else "/api/v1"
            home.post(f"{place}/namespaces/team/{raw['kind'].lower()}s", raw)
        pods = home.run(*to_stock(PODS))
        own = home.live.call("GET", f"{OURS}/namespaces/team/qosclassquotas/q").body
        counted = recount(own, pods, 0.0)
        assert isinstance(counted, Write)
        home.tell(f"{OURS}/namespaces/team/qosclassquotas/q", dict(counted.status))
        yield home


def cls_size(cls: Raw) -> Raw:
    return {"capacity": cls["capacity"]} if "capacity" in cls else {}


VIEWS = {
    "classes": "blockio slow container 1 2 2 0",
    "map n1": "A team/web/c 2 0-1",
    "quota -n team": "blockio=slow (container) [#############.......] 67% 2/3",
    "describe quota q -n team": "rdt=gold (container) [####################] 100% 1/1",
    "describe node n1": "blockio Yes slow (2/2) fast (1/inf)",
    "describe pod web -n team": "c rdt gold <none>",
    "describe pod plain -n team": "QoS Class: Burstable (container 'c': cpu request 500m ≠ limit none)",
    "top nodes": "n1 <unknown> <unknown> <unknown> <unknown> blockio=slow 2/2",
    "top pods -n team": "web <unknown> <unknown> c:blockio=slow, c:rdt=gold",
    "top pods -n team -o wide": "log <unknown> <unknown> 500m 64Mi Burstable c:blockio=fast",
    "top classes": "blockio=slow 2/2 <unknown> <unknown>",
}
"""What is shown, and a row of it."""


@pytest.mark.parametrize(("words", "row"), list(VIEWS.items()))
def test_both_homes_show_the_same(embedded: Home, stock: Home, words: str, row: str) -> None:
    shown = stock.shows(words)
    assert row in [" ".join(line.split()) for line in shown.splitlines()], shown
    assert shown == embedded.shows(words)


RECORDED = ("chosen", "quota")
"""Rows from the record of decisions, which a stock cluster does not have (docs/stock.md)."""


@pytest.mark.parametrize("name", ["web", "plain"])
def test_both_homes_say_why_in_the_same_rows_but_for_what_was_recorded(embedded: Home, stock: Home, name: str) -> None:
    def rows(home: Home) -> list[str]:
        lines = home.shows(f"why {name} -n team").splitlines()
        return [line for line in lines if not line.strip().startswith(RECORDED)]

    assert rows(stock) == rows(embedded)
    assert name != "web" or "  counts     on n1: blockio=slow 1 of 2, rdt=gold 1, no limit" in rows(stock)
