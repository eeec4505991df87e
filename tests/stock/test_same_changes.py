"""Random changes, sent to a real kube-apiserver and to ours: both say the same, and hold the same afterwards.

Updates, the four kinds of patches (apply among them), bindings, evictions, resizes, statuses and deletions, also of
collections. There is no list of exemptions.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.stock.changes import KINDS, MERGE, STRATEGIC, VERSIONS, Change, Changer, Obj
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")
CHANGES = int(os.environ.get("KUBEQOS_CHANGES", "150"))
SEED = int(os.environ.get("KUBEQOS_FUZZ_SEED", "37"))

CONTAINER = {"name": "main", "image": "app:1"}
SIZED = {**CONTAINER, "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1", "memory": "64Mi"}}}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
BODIES: dict[str, list[Obj]] = {
    "pods": [
        {"spec": {"containers": [CONTAINER]}},
        {"spec": {"containers": [SIZED], "initContainers": [{"name": "init", "image": "i"}],
            "activeDeadlineSeconds": 9}},
        {"spec": {"containers": [SIZED], "nodeName": "n1", "tolerations": [{"operator": "Exists"}]}},
        {"spec": {"containers": [CONTAINER], "schedulingGates": [{"name": "example.com/a"}],
            "nodeSelector": {"a": "b"}}},
    ],
    "configmaps": [{"data": {"a": "1"}}, {"immutable": True}],
    "secrets": [{"data": {"a": "MQ=="}}, {"stringData": {"b": "c"}, "immutable": True}],
    "limitranges": [{"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}],
    "resourcequotas": [{"spec": {"hard": {"pods": "5"}}}, {"spec": {"hard": {"pods": "5"}, "scopes": ["BestEffort"]}}],
    "namespaces": [{}],
    "nodes": [{}, {"spec": {"podCIDR": "10.0.0.0/24", "providerID": "p://0"}}],
    "deployments": [{"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}}],
    "poddisruptionbudgets": [{"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}],
    "priorityclasses": [{"value": 5}, {"value": -5, "preemptionPolicy": "Never", "description": "low"}],
    "serviceaccounts": [{}],
    "services": [
        {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
        {"spec": {"type": "NodePort", "selector": {"app": "web"},
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "protocol": "UDP"}]}},
        {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}},
    ],
}  # fmt: skip
CLUSTER_WIDE = ("namespaces", "nodes", "priorityclasses")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


class Story:
    """One object on both servers, from its creation to its end, changed again and again."""

    def __init__(self, servers: tuple[Stock, Ours], plural: str, name: str, body: Obj) -> None:
        self.servers, self.name = servers, name
        version = VERSIONS.get(plural, "v1")
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        self.collection = f"{root}/{plural}" if plural in CLUSTER_WIDE else f"{root}/namespaces/default/{plural}"
        metadata = {"name": name, "labels": {"app": "web"}}
        self.created = {"apiVersion": version, "kind": KINDS[plural], "metadata": metadata, **copy.deepcopy(body)}
        self.wrong: list[str] = []

    def path(self, change: Change) -> str:
        if change.subresource == "*":
            path = self.collection
        else:
            path = f"{self.collection}/{self.name}" + (f"/{change.subresource}" if change.subresource else "")
        return f"{path}?{quote(change.query, safe='=&')}" if change.query else path

    def compare(self, what: str, theirs: tuple[int, object], ours: tuple[int, object]) -> bool:
        left, right = comparable(theirs), comparable(ours)
        code = [f".code: theirs {left[0]}, ours {right[0]}"] if left[0] != right[0] else []
        found = [*code, *differences(left[1], right[1])]
        if found:
            self.wrong.append(f"{what}\n    " + "\n    ".join(found[:6]))
        return not found

    def begin(self) -> None:
        """A fresh object, whatever became of the last one."""
        for server in self.servers:
            clean = [{"op": "add", "path": "/metadata/finalizers", "value": []}]
            server.call("PATCH", f"{self.collection}/{self.name}", clean, "application/json-patch+json")
            server.call("DELETE", f"{self.collection}/{self.name}", {"gracePeriodSeconds": 0})
        self.compare("create", *(server.call("POST", self.collection, self.created) for server in self.servers))

    def go_through(self, changes: Iterator[Change]) -> None:
        self.begin()
        for change in changes:
            here = f"{self.collection}/{self.name}"
            held = [server.call("GET", here) for server in self.servers]
            if held[0][0] != 200 or held[1][0] != 200:
                self.begin()
                held = [server.call("GET", here) for server in self.servers]
            said = [
                server.call(change.method, self.path(change), change.sent(obj), change.content_type)
                for server, (_, obj) in zip(self.servers, held, strict=True)
            ]
            if said[0][0] >= 500:  # a mistake that a real server has no answer to
                self.begin()
                continue
            what = f"{change} on {held[0][1].get('spec') or held[0][1]}"
            same = self.compare(what, said[0], said[1])
            if not (same and self.compare(f"after {what}", *(server.call("GET", here) for server in self.servers))):
                self.begin()


@pytest.mark.parametrize("plural", BODIES)
def test_both_say_and_hold_the_same(servers: tuple[Stock, Ours], plural: str) -> None:
    wrong: list[str] = []
    for number, body in enumerate(BODIES[plural]):
        story = Story(servers, plural, "web" if plural == "pods" else f"web-{number}", body)
        story.go_through(Changer(plural, SEED + number).changes(CHANGES))
        wrong += story.wrong
    assert not wrong, f"{len(wrong)} of {CHANGES * len(BODIES[plural])} differ:\n" + "\n".join(wrong[:40])


SMALL = {"cpu": "1", "memory": "1Gi", "pods": "10"}
RESIZES: list[tuple[Obj, int]] = [
    ({"requests": {"cpu": "1"}}, 200),
    ({"requests": {"cpu": "1001m"}, "limits": {"cpu": "8"}}, 403),
    ({"requests": {"memory": "2Gi"}, "limits": {"memory": "4Gi"}}, 403),
    ({"requests": {"cpu": "4", "memory": "2Gi"}, "limits": {"cpu": "8", "memory": "4Gi"}}, 403),
    ({"limits": {"memory": "64Gi"}}, 200),
]


def their_node_is_seen(stock: Stock, path: str, patch: Obj, code: int) -> None:
    """A real server follows its own nodes with a delay: it is asked in vain until it knows the last one."""
    deadline = time.monotonic() + 60
    while stock.call("PATCH", f"{path}?dryRun=All", patch, STRATEGIC)[0] != code and time.monotonic() < deadline:
        time.sleep(0.2)


def test_both_refuse_a_resize_that_no_pod_of_the_node_could_have(servers: tuple[Stock, Ours]) -> None:
    """Also in the same words: a node is not asked for more than all that it has."""
    burstable = {
        **SIZED,
        "resources": {"requests": {"cpu": "200m", "memory": "1Mi"}, "limits": SIZED["resources"]["limits"]},
    }
    pods, labels = "/api/v1/namespaces/default/pods", {"kubernetes.io/os": "windows"}
    for name, more in (("small", {}), ("windows", {"labels": labels})):
        for server in servers:
            server.call("POST", "/api/v1/nodes", {"metadata": {"name": name, **more}})
            room = {"status": {"capacity": SMALL, "allocatable": SMALL}}
            assert server.call("PATCH", f"/api/v1/nodes/{name}/status", room, MERGE)[0] == 200
            spec = {"containers": [burstable], "nodeName": name}
            assert server.call("POST", pods, {"metadata": {"name": f"on-{name}"}, "spec": spec})[0] == 201
    cases = [("small", *one) for one in RESIZES] + [("windows", {"requests": {"cpu": "300m"}}, 403)]
    for name, resources, code in cases:
        patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
        their_node_is_seen(servers[0], f"{pods}/on-{name}/resize", patch, code)
        theirs, ours = (server.call("PATCH", f"{pods}/on-{name}/resize", patch, STRATEGIC) for server in servers)
        assert list(differences(comparable(theirs)[1], comparable(ours)[1])) == [], resources
        assert (theirs[0], ours[0], ours[1].get("message")) == (code, code, theirs[1].get("message"))
