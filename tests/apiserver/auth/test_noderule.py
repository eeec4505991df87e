"""A node agent writes what is its own, reads what it needs, and nothing else."""

from __future__ import annotations

import pytest

from kubeqos.apiserver.auth import Attributes, Authorizer, NodeRule, Policy, default_objects, forbidden_message
from kubeqos.apiserver.auth.access import attributes
from kubeqos.apiserver.auth.noderule import unbound
from kubeqos.apiserver.requests import resolve
from kubeqos.web.identity import Identity

N1 = Identity.authenticated("system:node:n1", ["system:nodes"])


class Facts:
    """`web` runs on n1 and mounts the secret `cert`; `db` runs on n2. Each has a slice; `new` runs nowhere yet."""

    def node_of(self, group: str, resource: str, namespace: str, name: str) -> str | None:
        return {"web": "n1", "db": "n2", "new": ""}.get(name)

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        return (node, resource, name) == ("n1", "secrets", "cert")


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer(Policy(default_objects()), NodeRule(Facts()))


def pods(verb: str, subresource: str, name: str) -> Attributes:
    return Attributes(verb, "", "pods", subresource, "default", name)


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        (Attributes("patch", "", "nodes", "status", name="n1"), True),
        (Attributes("patch", "", "nodes", "status", name="n2"), False),
        (Attributes("update", "", "nodes", name="n1"), True),
        (Attributes("update", "", "nodes", name="n2"), False),
        (Attributes("delete", "", "nodes", name="n1"), False),
        (Attributes("create", "", "nodes"), True),
        (Attributes("list", "", "nodes"), False),
        (Attributes("list", "", "nodes", name="n1"), True),
        (Attributes("get", "", "nodes", name="n2"), False),
        (pods("get", "", "web"), True),
        (pods("get", "", "db"), False),
        (pods("get", "", "new"), False),
        (pods("get", "", "ghost"), True),  # so that it learns that there is no mirror pod
        (pods("patch", "status", "web"), True),
        (pods("patch", "status", "db"), False),
        (pods("patch", "status", "ghost"), False),
        (pods("update", "", "web"), False),
        (pods("create", "binding", "web"), False),
        (pods("delete", "", "web"), True),
        (pods("delete", "", "db"), False),
        (Attributes("watch", "", "pods"), False),
        (Attributes("watch", "", "pods", on_node="n1"), True),
        (Attributes("watch", "", "pods", on_node="n2"), False),
        (Attributes("delete", "resource.k8s.io", "resourceslices", name="web"), True),
        (Attributes("delete", "resource.k8s.io", "resourceslices", name="db"), False),
        (Attributes("deletecollection", "resource.k8s.io", "resourceslices"), False),
        (Attributes("deletecollection", "resource.k8s.io", "resourceslices", on_node="n1"), True),
        (Attributes("get", "storage.k8s.io", "volumeattachments", name="db"), False),
        (Attributes("create", "", "pods", namespace="default"), True),  # of which kind is told by the body, see below
        (Attributes("update", "coordination.k8s.io", "leases", namespace="kube-node-lease", name="n1"), True),
        (Attributes("update", "coordination.k8s.io", "leases", namespace="kube-node-lease", name="n2"), False),
        (Attributes("update", "coordination.k8s.io", "leases", namespace="default", name="n1"), False),
        (Attributes("create", "", "events", namespace="default"), True),
        (Attributes("get", "", "secrets", namespace="default", name="cert"), True),
        (Attributes("get", "", "secrets", namespace="default", name="other"), False),
        (Attributes("get", "", "secrets", name="cert"), False),
        (Attributes("list", "", "secrets", namespace="default"), False),
        (Attributes("watch", "", "secrets", namespace="default", name="cert"), True),
        (Attributes("watch", "", "secrets", namespace="default", name="other"), False),
        (Attributes("create", "rbac.authorization.k8s.io", "clusterroles"), False),
    ],
)
def test_what_a_node_may_do(authorizer: Authorizer, wanted: Attributes, allowed: bool) -> None:
    assert authorizer.decide(N1, wanted).allowed is allowed


def test_a_refusal_names_the_missing_relationship(authorizer: Authorizer) -> None:
    wanted = pods("patch", "status", "db")
    assert forbidden_message(N1, wanted, authorizer.decide(N1, wanted).because) == (
        'pods "db" is forbidden: User "system:node:n1" cannot patch resource "pods/status" in API group ""'
        " in the namespace \"default\": no relationship found between node 'n1' and this object"
    )


@pytest.mark.parametrize(
    "identity",
    [Identity("system:node:n1"), Identity("n1", ("system:nodes",)), Identity("system:node:", ("system:nodes",))],
)
def test_only_both_the_name_and_the_group_make_a_node(authorizer: Authorizer, identity: Identity) -> None:
    assert identity.node is None
    assert not authorizer.decide(identity, Attributes("patch", "", "nodes", "status", name="n1")).allowed


def test_a_created_object_must_carry_the_node_s_name() -> None:
    rule, create = NodeRule(Facts()), Attributes("create", "", "nodes")
    own = rule.admits(N1, create, {"metadata": {"name": "n1"}})
    other = rule.admits(N1, create, {"metadata": {"name": "n2"}})
    assert own is not None
    assert own.allowed
    assert other is not None
    assert (other.allowed, other.because) == (False, 'node "n1" is not allowed to create node "n2"')
    assert rule.admits(Identity("alice"), create, {}) is None


MIRROR = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"metadata": {}}, 'pod does not have "kubernetes.io/config.mirror" annotation'),
        ({"spec": {"nodeName": "n2"}}, "can only create pods with spec.nodeName set to itself"),
        (
            {
                "metadata": {
                    **MIRROR["metadata"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2"}],
                }
            },
            "can only create pods with an owner reference set to itself",
        ),
        (
            {"spec": {"nodeName": "n1", "serviceAccountName": "a"}},
            "can not create pods that reference a service account",
        ),
        (
            {"spec": {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}},
            "can not create pods that reference secrets",
        ),
    ],
)
def test_a_node_creates_mirrors_of_its_own_pods_only(change: dict[str, object], told: str) -> None:
    create = Attributes("create", "", "pods", namespace="default")
    decision = NodeRule(Facts()).admits(N1, create, {**MIRROR, **change})
    assert decision is not None
    assert decision.allowed is (not told) and told in decision.because


def test_who_lists_one_object_by_its_name_wants_that_one() -> None:
    route = resolve("GET", "/api/v1/namespaces/default/secrets", {})
    assert route is not None
    assert attributes(route, {"fieldSelector": ["metadata.name=cert"]}).name == "cert"
    assert attributes(route, {"fieldSelector": ["metadata.name!=cert"]}).name == ""
    assert attributes(route, {"fieldSelector": ["metadata.name=cert,type=x"]}).name == ""
    assert attributes(route).name == ""


@pytest.mark.parametrize(
    ("resource", "spec", "allowed"),
    [
        ("resourceslices", {"nodeName": "n1"}, True),
        ("resourceslices", {"nodeName": "n2"}, False),
        ("resourceslices", {"allNodes": True}, False),
        ("podcertificaterequests", {"nodeName": "n1", "podName": "web"}, True),
        ("podcertificaterequests", {"nodeName": "n1", "podName": "db"}, False),
        ("podcertificaterequests", {"nodeName": "n2", "podName": "db"}, False),
    ],
)
def test_what_a_node_creates_is_about_itself(resource: str, spec: dict[str, object], allowed: bool) -> None:
    made = NodeRule(Facts()).admits(N1, Attributes("create", "g", resource, namespace="default"), {"spec": spec})
    assert made is not None
    assert made.allowed is allowed


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (None, "node requested token not bound to a pod"),
        ({"spec": {"nodeName": "n2"}}, "node requested token bound to a pod scheduled on a different node"),
        ({"spec": {}}, "node requested token bound to a pod scheduled on a different node"),
        ({"spec": {"nodeName": "n1"}}, ""),
    ],
)
def test_a_node_s_token_for_an_account_ends_with_a_pod_of_its_own(pod: dict[str, object] | None, why: str) -> None:
    assert unbound("n1", pod) == why


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.nodeName=n1", ("", "n1")),
        ("spec.nodeName==n1,status.phase!=Failed", ("", "n1")),
        ("spec.nodeName!=n1", ("", "")),
        ("metadata.name=a,spec.nodeName=n1", ("", "n1")),
        ("nonsense", ("", "")),
        ("", ("", "")),
    ],
)
def test_what_a_list_is_restricted_to(selector: str, found: tuple[str, str]) -> None:
    route = resolve("GET", "/api/v1/pods", {})
    assert route is not None
    wanted = attributes(route, {"fieldSelector": [selector]})
    assert (wanted.name, wanted.on_node) == found
