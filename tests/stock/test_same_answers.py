"""Random objects, sent to a real kube-apiserver and to ours: both must take or refuse them, for the same fields.

The recorded answers of tests/conformance are a sample; this looks beside them. There is no list of exemptions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stock import autoscalers
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, causes, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")
CASES = 600
SEED = 20
Case = dict[str, Any]

LONG = "a" * 64
NAMES = ["web", "UPPER", "a..b", "x.", "a b", "-x", "0", "a.b", "a_b", LONG, "a" * 254, ""]
KEYS = ["app", "x_", "", "a/b/c", "/x", "x/", "example.com/x", "EXAMPLE.com/x", LONG, "x.y/z_1"]
WORDS = ["", "ok_1.2", "bad value", "-x", LONG]
RESOURCES = [
    "cpu", "memory", "pods", "storage", "foo", "example.com/x", "kubernetes.io/foo", "a/b/c", "requests.cpu", "",
    "hugepages-2Mi",
]  # fmt: skip
AMOUNTS = ["1", "0", "-1", "1.5", "100m", "2Gi", "1e3", "1E", "abc", "", "1 Gi", "Ei", "Ki", "+1", 1, 1.5, True, None]
SCOPES = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "PriorityClass", "Bogus", ""]
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Bogus", ""]
HANDLERS: list[Case] = [
    {}, {"exec": {"command": []}}, {"exec": {"command": ["x"]}}, {"httpGet": {"port": 0}}, {"httpGet": {"port": 80}},
    {"tcpSocket": {"port": "bad_port!"}}, {"exec": {"command": ["x"]}, "tcpSocket": {"port": 80}},
]  # fmt: skip
MOUNTS: list[Case] = [
    {"name": "v", "mountPath": "/x"}, {"name": "none", "mountPath": "/x"}, {"name": "v", "mountPath": ""},
    {"name": "v", "mountPath": "/x", "subPath": "../y"}, {"name": "v", "mountPath": "/x", "mountPropagation": "Bad"},
]  # fmt: skip
VOLUMES: list[Case] = [
    {"emptyDir": {}}, {"emptyDir": {"sizeLimit": "-1"}}, {"hostPath": {"path": ""}}, {"hostPath": {"path": "/a/../b"}},
    {"configMap": {"name": "c", "defaultMode": 1000}}, {"secret": {}}, {"persistentVolumeClaim": {"claimName": ""}},
    {"emptyDir": {}, "hostPath": {"path": "/a"}}, {},
]  # fmt: skip


class Maker:
    """Makes objects in which one or two things may be wrong."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, values: list[Any]) -> Any:
        return self.random.choice(values)

    def amounts(self) -> Case:
        return {self.pick(RESOURCES): self.pick(AMOUNTS) for _ in range(self.random.randint(1, 2))}

    def expression(self) -> Case:
        values = [self.pick(["1", *WORDS]) for _ in range(self.random.randint(0, 2))]
        return {"key": self.pick(KEYS), "operator": self.pick(OPERATORS), "values": values}

    def container_part(self) -> Case:
        pick = self.pick
        return pick([
            {"name": pick(NAMES)}, {"image": pick(["x", "", " x"])}, {"imagePullPolicy": pick(["Always", "Bogus"])},
            {"ports": [{"containerPort": pick([0, 1, 65536]), "protocol": pick(["TCP", "tcp", ""])}]},
            {"ports": [{"containerPort": 1, "name": pick(["http", "Http", "a--b", "80"])}, {"containerPort": 2}]},
            {"env": [{"name": "A", "valueFrom": pick([{"secretKeyRef": {"name": pick(NAMES), "key": "k"}}])}]},
            {"env": [{"name": pick(["A", "A B", "a=b", "1A", ""]), "value": "x"}]},
            {"terminationMessagePolicy": pick(["File", "file", ""])},
            {"volumeMounts": [pick(MOUNTS)]}, {"livenessProbe": pick(HANDLERS)},
            {"lifecycle": {"preStop": pick(HANDLERS)}}, {"securityContext": {"runAsUser": pick([0, -5, 2**31])}},
            {"resources": {"requests": self.amounts()}}, {"resources": {"limits": self.amounts()}},
        ])  # fmt: skip

    def pod_part(self) -> Case:
        pick = self.pick
        term = {"matchExpressions": [self.expression()]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return pick([
            {"restartPolicy": pick(["Always", "Never", "always", ""])}, {"dnsPolicy": pick(["Default", "None", "No"])},
            {"activeDeadlineSeconds": pick([1, 0, -1, 2**31, "5"])}, {"nodeSelector": {pick(KEYS): pick(WORDS)}},
            {"tolerations": [{"key": pick(KEYS), "operator": pick(["Exists", "Equal", "No"]), "value": pick(WORDS)}]},
            {"tolerations": [{"key": "a", "effect": pick(["NoExecute", "Bogus"]), "tolerationSeconds": 5}]},
            {"affinity": {"nodeAffinity": required}}, {"hostname": pick(NAMES)}, {"serviceAccountName": pick(NAMES)},
            {"priorityClassName": pick(["absent", "system-node-critical"])},
            {"imagePullSecrets": [{"name": pick(NAMES)}]},
            {"volumes": [{"name": "v", **pick(VOLUMES)}]}, {"volumes": [{"name": pick(NAMES), "emptyDir": {}}]},
            {"initContainers": [{"name": pick(NAMES), "image": "x"}]}, {"containers": pick([[], [{}], None, "x"])},
            {"securityContext": {"seccompProfile": {"type": pick(["RuntimeDefault", "Bogus", ""])}}},
        ])  # fmt: skip

    def meta(self) -> Case:
        pick = self.pick
        owner = {"apiVersion": pick(["v1", "", "a/b/c"]), "kind": "Pod", "name": pick(["x", ""]), "uid": "u"}
        more = [
            {},
            {},
            {"ownerReferences": [owner]},
            {"labels": {pick(KEYS): pick(WORDS)}},
            {"annotations": {pick(KEYS): "any thing"}},
        ]
        return {"name": pick(["web", "web", pick(NAMES)]), **pick([*more, {"finalizers": [pick(KEYS)]}])}

    def pod(self) -> Case:
        container = {"name": "main", "image": "app:1"}
        for _ in range(self.random.randint(0, 2)):
            container |= self.container_part()
        spec: Case = {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]}
        for _ in range(self.random.randint(0, 1)):
            spec |= self.pod_part()
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self.meta(), "spec": spec}

    def quota(self) -> Case:
        spec: Case = {"hard": self.amounts()}
        if self.random.random() < 0.5:
            spec |= {"hard": {"pods": "1"}, "scopes": [self.pick(SCOPES) for _ in range(self.random.randint(0, 2))]}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": self.meta(), "spec": spec}

    def limit_range(self) -> Case:
        fields = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"]
        item: Case = {"type": self.pick(["Container", "Pod", "PersistentVolumeClaim", "Bad Type!", ""])}
        item |= {field: self.amounts() for field in fields if self.random.random() < 0.4}
        return {"apiVersion": "v1", "kind": "LimitRange", "metadata": self.meta(), "spec": {"limits": [item]}}

    def cases(self, count: int) -> Iterator[tuple[str, Callable[[], Case]]]:
        for _ in range(count):
            yield self.pick([("pods", self.pod), ("pods", self.pod), ("resourcequotas", self.quota),
                             ("limitranges", self.limit_range)])  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


def test_both_take_and_refuse_the_same(servers: tuple[Stock, Ours]) -> None:
    stock, our = servers
    wrong = []
    for plural, make in Maker(SEED).cases(CASES):
        obj, path = make(), f"/api/v1/namespaces/default/{plural}?dryRun=All"
        theirs, ours = stock.call("POST", path, obj), our.call("POST", path, obj)
        same = theirs[0] == ours[0] and causes(theirs[1]) == causes(ours[1])
        if not same:
            wrong.append((obj, theirs[0], sorted(causes(theirs[1])), ours[0], sorted(causes(ours[1]))))
    assert not wrong, f"{len(wrong)} of {CASES} differ:\n" + "\n".join(map(str, wrong[:5]))


AUTOSCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"


def test_both_show_both_forms_of_an_autoscaler(servers: tuple[Stock, Ours]) -> None:
    """What is written as autoscaling/v1 is read as v2 and the other way round, annotations and all."""

    def said(
        method: str, version: str, below: str = "", body: Any = None, content_type: str = "application/json"
    ) -> None:
        path = AUTOSCALERS.format(version) + below
        theirs, ours = (comparable(server.call(method, path, body, content_type)) for server in servers)
        assert list(differences(theirs[1], ours[1])) == [], f"{method} {path} {body}"
        assert theirs[0] == ours[0], f"{method} {path} {body}"

    for one in autoscalers.MADE:
        said("POST", one["apiVersion"].rpartition("/")[2], body=one)
    for version, name, below, patch in autoscalers.CHANGES:
        said("PATCH", version, f"/{name}{below}", patch, "application/merge-patch+json")
        for shown in ("v1", "v2"):
            said("GET", shown, f"/{name}")
    for shown in ("v1", "v2"):
        said("GET", shown)
    said("DELETE", "v1", "/old")
    said("GET", "v2", "/old")
