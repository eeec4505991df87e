"""What both servers say they have: groups, versions, kinds, scopes, verbs, short names, categories and subresources.

Where they differ stands in two tables with the reason; nothing else may.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock.changes import MERGE
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
MORE = {
    "decisions.kubeqos.io/v1": "why pods are where they are: our own",
    "metrics.k8s.io/v1beta1": "a metrics-server serves it there, by aggregation",
    "resource.k8s.io/v1alpha1": "claims for cores, KEP-3675",
}
"""Versions that only ours has."""
MISSING = {
    "v1 pods/proxy": "nobody here routes to pods: their addresses lead nowhere from the server (port-forward does)",
    "v1 services/proxy": "as for pods",
}
"""What only a real server has."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


def sorted_lists(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: sorted(value) if isinstance(value, list) else value for key, value in entry.items()}


def by_version(server: Stock | Ours) -> dict[str, Any]:
    """Every resource and subresource by its version and name, as each version by itself tells it."""
    groups = server.call("GET", "/apis")[1]["groups"]
    versions = [one["groupVersion"] for group in groups for one in group["versions"]]
    found = {}
    for version in ("v1", *versions):
        code, told = server.call("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")
        assert (code, told["groupVersion"]) == (200, version)
        for one in told["resources"]:
            one.pop("storageVersionHash", None)  # as what it is stored is a server's own matter: there often a beta
            found[f"{version} {one.pop('name')}"] = sorted_lists(one)
    return found


def at_once(server: Stock | Ours) -> dict[str, Any]:
    """The same as kubectl asks for it: all groups in one document."""
    found = {}
    for root in ("/api", "/apis"):
        for group in json.loads(server.raw("GET", root, AGGREGATED)[2])["items"]:
            for version in group["versions"]:
                at = {"group": group["metadata"].get("name", ""), "version": version["version"]}
                name = "/".join(filter(None, at.values()))
                for one in version["resources"]:
                    below = one.pop("subresources", [])
                    for each in (one, *below):  # a kind that says nothing of its group is of the one where it stands
                        kind = each["responseKind"]
                        each["responseKind"] = kind if kind["version"] else {**at, "kind": kind["kind"]}
                    found[f"{name} {one['resource']}"] = sorted_lists(one)
                    found |= {f"{name} {one['resource']}/{sub['subresource']}": sorted_lists(sub) for sub in below}
    return found


@pytest.mark.parametrize("told", [by_version, at_once])
def test_both_have_the_same(servers: tuple[Stock, Ours], told: Any) -> None:
    theirs, ours = told(servers[0]), told(servers[1])
    assert {name for name in theirs if name not in ours} == set(MISSING)
    assert {name.partition(" ")[0] for name in ours if name not in theirs} == set(MORE)
    both = [name for name in theirs if name in ours]
    wrong = [f"{name}{one}" for name in both for one in differences(theirs[name], ours[name])]
    assert not wrong, "\n".join(wrong)


def test_both_prefer_the_same_versions(servers: tuple[Stock, Ours]) -> None:
    theirs, ours = (
        {one["name"]: one["preferredVersion"]["version"] for one in server.call("GET", "/apis")[1]["groups"]}
        for server in servers
    )
    assert ours.pop("resource.k8s.io") == "v1alpha1", "the claims that our own parts act on"
    assert {name: version for name, version in theirs.items() if name in ours} == {
        name: version for name, version in ours.items() if name in theirs
    }


NODES = "/apis/storage.k8s.io/v1/csinodes"
DRIVERS = {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "x.example", "nodeID": "n"}]}}
HEALTH = {"status": {"storageHealth": [{"name": "a"}]}}


def test_the_status_of_what_a_node_can_attach(servers: tuple[Stock, Ours]) -> None:
    """It is served, and holds nothing while its gate is off."""
    for method, path, body in (
        ("POST", NODES, {**DRIVERS, **HEALTH}),
        ("PATCH", f"{NODES}/n/status", {**HEALTH, "metadata": {"labels": {"a": "b"}}, "spec": {"drivers": []}}),
        ("PATCH", f"{NODES}/n", {"metadata": {"labels": {"c": "d"}}}),
        ("GET", f"{NODES}/n/status", None),
        ("GET", f"{NODES}/none/status", None),
    ):
        media = MERGE if method == "PATCH" else "application/json"
        theirs, ours = (comparable(server.call(method, path, body, media)) for server in servers)
        assert theirs[0] == ours[0]
        assert list(differences(theirs[1], ours[1])) == [], path


SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
FAR = {"group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}
WRONG: list[dict[str, Any]] = [
    {"groupPriorityMinimum": 0}, {"groupPriorityMinimum": 20001}, {"versionPriority": -1}, {"versionPriority": 1001},
    {"version": "V"}, {"group": "a b"}, {"group": "other.example.com"}, {"group": "", "version": "v2"},
    {"caBundle": "YQ=="}, {"insecureSkipTLSVerify": True}, {"service": {}}, {"service": {"namespace": "a"}},
    {"service": {"namespace": "a", "name": "b", "port": 70000}},
    {"service": {"namespace": "a", "name": "b"}, "insecureSkipTLSVerify": True, "caBundle": "YQ=="},
]  # fmt: skip


def own_services(server: Stock | Ours) -> dict[str, Any]:
    found = {one["metadata"]["name"]: one for one in comparable(server.call("GET", SERVICES))[1]["items"]}
    for one in found.values():
        one["metadata"].pop("managedFields", None)  # what our server writes by itself is nobody's
    return found


def test_both_list_their_own_group_versions(servers: tuple[Stock, Ours]) -> None:
    theirs, ours = map(own_services, servers)
    more = {".".join(reversed(name.split("/"))) for name in MORE}
    assert {name for name in ours if name not in theirs} == more
    wrong = [f"{name}{one}" for name in theirs for one in differences(theirs[name], ours.get(name))]
    assert not wrong, "\n".join(wrong)


def test_an_api_service_lives_the_same_life(servers: tuple[Stock, Ours]) -> None:
    here = f"{SERVICES}/v1.far.example.com"
    named = {"metadata": {"name": "v1.far.example.com"}}
    story: list[tuple[str, str, Any]] = [
        ("POST", SERVICES, {**named, "spec": FAR, "status": {"conditions": []}}),
        *(("POST", SERVICES, {**named, "spec": {**FAR, **wrong}}) for wrong in WRONG),
        ("PATCH", here, {"spec": {"versionPriority": 7}, "metadata": {"labels": {"a": "b"}}}),
        ("PATCH", f"{here}/status", {"status": {"conditions": None}, "metadata": {"labels": {"c": "d"}}}),
        ("PATCH", f"{here}/status", {"status": {"conditions": [{"type": "Available", "status": "Perhaps"}]}}),
        ("PATCH", here, {"spec": {"group": "other.example.com"}}),
        ("PUT", here, {**named, "spec": FAR}),
        ("DELETE", here, None),
    ]
    for method, path, body in story:
        media = MERGE if method == "PATCH" else "application/json"
        theirs, ours = (comparable(server.call(method, path, body, media)) for server in servers)
        assert theirs[0] == ours[0], (method, path, body, theirs, ours)
        assert list(differences(theirs[1], ours[1])) == [], (method, path, body)
