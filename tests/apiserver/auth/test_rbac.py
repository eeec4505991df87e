"""RBAC decisions: who is allowed what, by which binding, and how a refusal reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.apiserver.auth import Attributes, Authorizer, NodeRule, Policy, default_objects, forbidden_message
from kubeqos.apiserver.auth.rbac import Rule, rule
from kubeqos.web.identity import Identity

ALICE = Identity.authenticated("alice", ["dev"])
BUILDER = Identity.service_account("ci", "builder")


def role(name: str, *rules: dict[str, Any], namespace: str = "", version: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": list(rules)}


def binding(name: str, to: dict[str, Any], subject: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, "namespace": namespace} if namespace else {"name": name},
        "roleRef": {"kind": to["kind"], "name": to["metadata"]["name"]},
        "subjects": [subject],
    }


def user(name: str) -> dict[str, Any]:
    return {"kind": "User", "name": name}


def group(name: str) -> dict[str, Any]:
    return {"kind": "Group", "name": name}


LIST_PODS = Attributes("list", "", "pods", namespace="default")


@pytest.mark.parametrize(
    ("raw", "wanted", "allowed"),
    [
        (rule("get", "", "pods"), Attributes("get", "", "pods", name="a"), True),
        (rule("get", "", "pods"), Attributes("list", "", "pods"), False),
        (rule("get", "", "pods"), Attributes("get", "apps", "pods"), False),
        (rule("get", "", "pods"), Attributes("get", "", "pods", "log"), False),
        (rule("get", "", "pods/log"), Attributes("get", "", "pods", "log"), True),
        (rule("get", "", "pods/log"), Attributes("get", "", "pods"), False),
        (rule("get", "", "*/log"), Attributes("get", "", "pods", "log"), True),
        (rule("get", "", "*/log"), Attributes("get", "", "pods"), False),
        (rule("*", "*", "*"), Attributes("patch", "apps", "deployments", "scale"), True),
        (rule("*", "*", "*"), Attributes("get", path="/metrics"), False),
        (rule("get", urls="/metrics"), Attributes("get", path="/metrics"), True),
        (rule("get", urls="/metrics"), Attributes("get", path="/metrics/slis"), False),
        (rule("get", urls="/apis/*"), Attributes("get", path="/apis/apps"), True),
        (rule("get", urls="*"), Attributes("get", path="/anything"), True),
        (rule("get", urls="*"), Attributes("get", "", "pods"), False),
        (
            {**rule("get,create", "", "secrets"), "resourceNames": ["a"]},
            Attributes("get", "", "secrets", name="a"),
            True,
        ),
        (
            {**rule("get,create", "", "secrets"), "resourceNames": ["a"]},
            Attributes("get", "", "secrets", name="b"),
            False,
        ),
        ({**rule("get,create", "", "secrets"), "resourceNames": ["a"]}, Attributes("create", "", "secrets"), False),
        ({}, Attributes("get", "", "pods"), False),
    ],
)
def test_a_rule_allows(raw: dict[str, Any], wanted: Attributes, allowed: bool) -> None:
    assert Rule.of(raw).allows(wanted) is allowed


def test_a_cluster_role_bound_in_a_namespace_holds_there_only() -> None:
    view = role("view", rule("list", "", "pods"))
    policy = Policy([view, binding("devs", view, group("dev"), "default")])
    decision = policy.decide(ALICE, LIST_PODS)
    assert decision.allowed
    assert decision.because == 'RBAC: allowed by RoleBinding "devs/default" of ClusterRole "view" to Group "dev"'
    assert not policy.decide(ALICE, Attributes("list", "", "pods", namespace="other")).allowed
    assert not policy.decide(ALICE, Attributes("list", "", "pods")).allowed
    assert not policy.decide(Identity("bob"), LIST_PODS).allowed


def test_service_accounts_are_bound_by_namespace_and_name() -> None:
    push = role("push", rule("create", "", "pods"), namespace="ci")
    policy = Policy([push, binding("push", push, {"kind": "ServiceAccount", "name": "builder"}, "ci")])
    wanted = Attributes("create", "", "pods", namespace="ci")
    assert policy.decide(BUILDER, wanted).because.endswith('of Role "push" to ServiceAccount "builder/ci"')
    assert not policy.decide(Identity.service_account("other", "builder"), wanted).allowed


def test_changes_take_effect_at_once() -> None:
    reader = role("reader", rule("list", "", "pods"), version="5")
    policy = Policy([reader])
    assert not policy.decide(ALICE, LIST_PODS).allowed
    policy.put(binding("b", reader, user("alice")))
    assert policy.decide(ALICE, LIST_PODS).allowed
    policy.put(role("reader", rule("get", "", "pods"), version="6"))
    assert not policy.decide(ALICE, LIST_PODS).allowed
    policy.put(role("reader", rule("list", "", "pods"), version="7"))
    policy.remove("ClusterRoleBinding", "", "b")
    assert not policy.decide(ALICE, LIST_PODS).allowed


def test_a_binding_to_a_role_that_is_gone_says_so() -> None:
    policy = Policy([binding("b", role("ghost"), user("alice"))])
    decision = policy.decide(ALICE, LIST_PODS)
    assert decision.because == 'RBAC: clusterrole.rbac.authorization.k8s.io "ghost" not found'
    assert forbidden_message(ALICE, LIST_PODS, decision.because).endswith(
        'in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "ghost" not found'
    )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            LIST_PODS,
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"',
        ),
        (
            Attributes("list", "", "nodes"),
            'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope',
        ),
        (
            Attributes("get", "", "pods", "log", "default", "x"),
            'pods "x" is forbidden: User "alice" cannot get resource "pods/log" in API group ""'
            ' in the namespace "default"',
        ),
        (
            Attributes("get", "apps", "deployments", namespace="default", name="d"),
            'deployments.apps "d" is forbidden: User "alice" cannot get resource "deployments" in API group "apps"'
            ' in the namespace "default"',
        ),
        (Attributes("get", path="/metrics"), 'forbidden: User "alice" cannot get path "/metrics"'),
    ],
)
def test_a_refusal_reads_as_in_kubernetes(wanted: Attributes, message: str) -> None:
    assert forbidden_message(ALICE, wanted) == message


class NoFacts:
    def node_of(self, group: str, resource: str, namespace: str, name: str) -> str | None:
        return None

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        return False


def defaults(*more: dict[str, Any]) -> Authorizer:
    return Authorizer(Policy([*default_objects(), *more]), NodeRule(NoFacts()))


def role_ref(name: str) -> dict[str, Any]:
    return {"kind": "ClusterRole", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("granted", "wanted", "allowed"),
    [
        ("view", Attributes("list", "", "pods", namespace="default"), True),
        ("view", Attributes("list", "", "secrets", namespace="default"), False),
        ("view", Attributes("create", "", "pods", namespace="default"), False),
        ("view", Attributes("get", "", "pods", "log", "default", "a"), True),
        ("edit", Attributes("create", "", "pods", namespace="default"), True),
        ("edit", Attributes("get", "", "secrets", namespace="default", name="a"), True),
        ("edit", Attributes("patch", "", "pods", "resize", "default", "a"), True),
        ("edit", Attributes("create", "rbac.authorization.k8s.io", "roles", namespace="default"), False),
        ("edit", Attributes("create", "", "endpoints", namespace="default"), False),  # CVE-2021-25740
        ("edit", Attributes("update", "", "resourcequotas", namespace="default", name="q"), False),
        ("admin", Attributes("create", "rbac.authorization.k8s.io", "roles", namespace="default"), True),
        ("cluster-admin", Attributes("delete", "", "nodes", name="n"), True),
        ("cluster-admin", Attributes("get", path="/metrics"), True),
    ],
)
def test_default_roles(granted: str, wanted: Attributes, allowed: bool) -> None:
    authorizer = defaults(binding("b", role_ref(granted), user("alice")))
    assert authorizer.decide(ALICE, wanted).allowed is allowed


def test_everyone_may_discover_and_ask_about_themselves_and_no_more() -> None:
    authorizer = defaults()
    for path in ("/api", "/apis/apps/v1", "/openapi/v3", "/version", "/readyz"):
        assert authorizer.decide(ALICE, Attributes("get", path=path)).allowed
    review = Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert authorizer.decide(ALICE, review).allowed
    assert not authorizer.decide(ALICE, LIST_PODS).allowed
    assert not authorizer.decide(ALICE, Attributes("get", path="/metrics")).allowed
    assert not authorizer.decide(Identity("ghost"), review).allowed


def test_masters_need_no_role() -> None:
    root = Identity("root", ("system:masters",))
    assert Authorizer(Policy(), NodeRule(NoFacts())).decide(root, Attributes("delete", "", "nodes", name="n")).allowed


def test_nobody_can_grant_more_than_they_hold() -> None:
    authorizer = defaults(binding("b", role_ref("admin"), user("alice"), "default"))
    assert authorizer.escalates(ALICE, "default", [rule("get,list", "", "pods")]) == []
    beyond = authorizer.escalates(ALICE, "default", [rule("get", "", "pods,nodes"), rule("*", "", "pods")])
    assert beyond == [Attributes("get", "", "nodes"), Attributes("*", "", "pods")]
    assert authorizer.escalates(ALICE, "other", [rule("get", "", "pods")]) == [Attributes("get", "", "pods")]
    assert authorizer.escalates(Identity("root", ("system:masters",)), "", [rule("*", "*", "*")]) == []


WORDS = st.sampled_from(["a", "b", "*"])
LISTS = st.lists(WORDS, min_size=1, max_size=2)


@given(LISTS, LISTS, LISTS, st.sampled_from("ab"), st.sampled_from("ab"), st.sampled_from("ab"))
def test_wildcards_mean_everything(
    verbs: list[str], groups: list[str], resources: list[str], verb: str, api_group: str, resource: str
) -> None:
    raw = {"verbs": verbs, "apiGroups": groups, "resources": resources}
    expected = all(w in ws or "*" in ws for w, ws in ((verb, verbs), (api_group, groups), (resource, resources)))
    assert Rule.of(raw).allows(Attributes(verb, api_group, resource)) is expected
