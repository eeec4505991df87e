"""KEP-3008 through kubectl: classes in pods, nodes, LimitRanges and quotas, and what the gate does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeqos.codec import encode_json
from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server
from tests.scenarios.kubectl import Kubectl, Refused, pod

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("classes") / "data", FeatureGates.parse("QOSResources=true")) as server:
        yield server


def classy(name: str, pod_class: str = "", container_class: str = "") -> dict[str, object]:
    found = pod(name)
    if pod_class:
        found["spec"]["qosResources"] = [{"name": "network", "class": pod_class}]
    if container_class:
        found["spec"]["containers"][0]["resources"]["qosResources"] = [{"name": "rdt", "class": container_class}]
    found["metadata"].pop("labels")
    return dict(found)


def test_classes_are_native_fields(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=classy("plain", "fast", "gold"))
    assert kubectl.table("pods", "-o", "wide")[1][-1] == "network=fast,c:rdt=gold"
    assert kubectl.object("get", "pod", "plain")["spec"]["qosResources"] == [{"name": "network", "class": "fast"}]
    kubectl("delete", "pod", "plain")


def test_a_class_quota_is_an_allow_list(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "team")
    classes = [{"name": "gold", "capacity": 1}, {"name": "silver"}]
    spec = {"qosResources": {"container": [{"name": "rdt", "classes": classes}]}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "classes"}, "spec": spec}
    kubectl("create", "-f", "-", "-n", "team", stdin=body)
    kubectl("create", "-f", "-", "-n", "team", stdin=classy("one", "", "gold"))
    with pytest.raises(Refused, match="exceeded quota: classes"):
        kubectl("create", "-f", "-", "-n", "team", stdin=classy("two", "", "gold"))
    kubectl("create", "-f", "-", "-n", "team", stdin=classy("three", "", "silver"))
    with pytest.raises(Refused, match="bronze"):
        kubectl("create", "-f", "-", "-n", "team", stdin=classy("four", "", "bronze"))
    status = kubectl.object("get", "quota", "classes", "-n", "team")["status"]
    usage = status["qosResourcesUsage"]["container"][0]["classes"]
    assert {item["name"]: item.get("capacity") for item in usage} == {"gold": 1, "silver": 1}
    assert "container rdt/gold≤1" in kubectl("get", "quota", "-n", "team", "-o", "wide")
    kubectl("delete", "pod", "one", "-n", "team")
    kubectl("create", "-f", "-", "-n", "team", stdin=classy("five", "", "gold"))


def test_a_node_offers_classes(kubectl: Kubectl) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    kubectl("create", "-f", "-", stdin=node)
    classes = [{"name": "gold"}, {"name": "silver"}]
    offer = {"status": {"qosResources": {"containerQoSResources": [{"name": "rdt", "classes": classes}]}}}
    kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", encode_json(offer).decode())
    assert kubectl.table("nodes", "-o", "wide")[1][-1] == "rdt=gold/silver"


def test_without_the_gate_the_fields_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with live_server(tmp_path_factory.mktemp("gated") / "data") as server:
        kubectl = Kubectl(server, tmp_path_factory.mktemp("home"))
        with pytest.raises(Refused, match="may not be set while feature gate QOSResources is off"):
            kubectl("create", "-f", "-", stdin=classy("new", "fast"))
        assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics")
