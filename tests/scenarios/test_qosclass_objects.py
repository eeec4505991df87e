"""QOSClass objects in our own API server, through kubectl: strict names ask them, and they say for whom a class is."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.clock import WallClock
from kubeqos.codec import encode_json
from kubeqos.gates import FeatureGates
from kubeqos.model.objects import NodeQosResources, QosResourceInfo
from kubeqos.node.api.registration import Registration, known_classes
from kubeqos.rules.qos.classes import WELL_KNOWN, Level, catalog
from kubeqos.stock.definitions import definitions
from tests.apiserver.live import LiveServer, live_server
from tests.scenarios.kubectl import Kubectl, Refused, pod

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    gates = FeatureGates.parse("QOSResources=true,QOSResourcesStrictNames=true")
    with live_server(tmp_path_factory.mktemp("known") / "data", gates) as server:
        yield server


def classy(name: str, resource: str, cls: str) -> Any:
    made = pod(name)
    made["spec"]["containers"][0]["resources"]["qosResources"] = [{"name": resource, "class": cls}]
    return made


def described(cls: str, **more: Any) -> Any:
    spec = {"resource": "turbo", "class": cls, "level": "container", "description": "More megahertz.", **more}
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClass", "metadata": {"name": f"turbo.{cls}"}, "spec": spec}


def test_an_administrator_adds_names_and_says_for_whom(kubectl: Kubectl) -> None:
    with pytest.raises(Refused, match='Unsupported value: "turbo"'):
        kubectl("create", "-f", "-", stdin=classy("early", "turbo", "high"))
    kubectl("apply", "-f", str(files("kubeqos.stock") / "crds" / "qosclasses.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/qosclasses.kubeqos.io", "--timeout=60s")
    kubectl("create", "namespace", "team")
    kubectl("create", "-f", "-", stdin=described("high", allowedNamespaces=["team"]))
    kubectl("create", "-f", "-", stdin=described("low"))
    rows = kubectl.table("qosclasses")
    assert [row[:4] for row in rows] == [
        ["NAME", "RESOURCE", "CLASS", "LEVEL"],
        ["turbo.high", "turbo", "high", "container"],
        ["turbo.low", "turbo", "low", "container"],
    ]
    kubectl("create", "-f", "-", stdin=classy("anybody", "turbo", "low"))
    kubectl("create", "-n", "team", "-f", "-", stdin=classy("member", "turbo", "high"))
    with pytest.raises(Refused, match=r"QoS class turbo=high is for namespaces team \(qosclasses.kubeqos.io\)"):
        kubectl("create", "-f", "-", stdin=classy("stranger", "turbo", "high"))
    change = '{"spec": {"allowedNamespaces": ["team", "default"]}}'
    kubectl("patch", "qosclass", "turbo.high", "--type=merge", "-p", change)
    kubectl("create", "-f", "-", stdin=classy("stranger", "turbo", "high"))
    kubectl("delete", "qosclass", "turbo.high", "turbo.low")
    with pytest.raises(Refused, match='Unsupported value: "turbo"'):
        kubectl("create", "-f", "-", stdin=classy("late", "turbo", "low"))


def test_a_resource_is_known_by_an_object_of_its_own(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(files("kubeqos.stock") / "crds" / "qosresources.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/qosresources.kubeqos.io", "--timeout=60s")
    spec = {"resource": "shelf", "level": "container", "mutable": False, "description": "Where data lies."}
    raw = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSResource", "metadata": {"name": "shelf"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=raw)
    assert kubectl.table("qosresources")[1][:4] == ["shelf", "shelf", "container", "false"]
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rack"}})
    stored = classy("stored", "shelf", "upper")
    stored["spec"]["nodeName"] = "rack"
    kubectl("create", "-f", "-", stdin=stored)
    own = {"name": stored["spec"]["containers"][0]["name"]}
    resources = {"qosResources": [{"name": "shelf", "class": "low"}]}
    patch = encode_json({"spec": {"containers": [{**own, "resources": resources}]}}).decode()
    with pytest.raises(Refused, match="classes of shelf may not change while a pod runs"):
        kubectl("patch", "pod", "stored", "--subresource=resize", "-p", patch)
    kubectl("delete", "qosresource", "shelf")
    with pytest.raises(Refused, match='Unsupported value: "shelf"'):
        kubectl("create", "-f", "-", stdin=classy("late", "shelf", "upper"))


async def test_a_node_knows_the_names_that_were_added(live: LiveServer) -> None:
    for one in definitions():
        live.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)  # it may be there already
    answer = live.call("POST", "/apis/kubeqos.io/v1alpha1/qosclasses", described("eco"))
    assert answer.code == 201, answer.body
    api = HttpApi.from_kubeconfig(live.kubeconfig)
    registration = Registration(api, "n1", WallClock(), lease_seconds=40, taints=[])
    assert known_classes(registration, strict=False) == known_classes(None, strict=True) == WELL_KNOWN
    assert known_classes(registration, strict=True) == WELL_KNOWN, "nobody has looked yet"
    await registration.keep({}, {}, lambda _known, _now: {"conditions": [], "capacity": {}, "allocatable": {}})
    assert known_classes(registration, strict=True) == {**WELL_KNOWN, "turbo": Level.CONTAINER}
    offer = NodeQosResources(container_qos_resources=[QosResourceInfo(name="turbo")])
    assert catalog(offer, strict_names=True).refused
    assert not catalog(offer, strict_names=True, known=known_classes(registration, strict=True)).refused
    await api.close()
    live.call("DELETE", "/apis/kubeqos.io/v1alpha1/qosclasses/turbo.eco")
