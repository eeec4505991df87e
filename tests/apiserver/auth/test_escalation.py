"""Who hands out more than they hold needs to be trusted with it: `escalate` for roles, `bind` for bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.apiserver.auth import Attributes, Authenticator, Authorizer, NodeRule, Policy
from kubeqos.apiserver.auth.access import Access
from kubeqos.apiserver.auth.rbac import GROUP, rule
from kubeqos.web.identity import Identity
from kubeqos.web.status import ApiError
from tests.apiserver.auth.test_rbac import NoFacts, binding, role, user

ALICE = Identity.authenticated("alice")
WIDE = role("wide", rule("*", "*", "*"))
ROLE = {"metadata": {"name": "wide"}, "rules": WIDE["rules"]}
BINDING = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "wide"}}


def access(*held: dict[str, Any], namespace: str = "") -> Access:
    mine = role("mine", *held)
    policy = Policy([WIDE, mine, binding("b", mine, user("alice"), namespace)])
    return Access(Authenticator([]), Authorizer(policy, NodeRule(NoFacts())))


def named(verbs: str, resources: str, name: str) -> dict[str, Any]:
    return {**rule(verbs, GROUP, resources), "resourceNames": [name]}


ROLES = Attributes("update", GROUP, "clusterroles", name="wide")
BINDINGS = Attributes("create", GROUP, "clusterrolebindings")


@pytest.mark.parametrize(
    ("held", "wanted", "body", "allowed"),
    [
        ([], ROLES, ROLE, False),
        ([rule("update,create", GROUP, "clusterroles,clusterrolebindings")], ROLES, ROLE, False),
        ([rule("escalate", GROUP, "clusterroles")], ROLES, ROLE, True),
        ([named("escalate", "clusterroles", "other")], ROLES, ROLE, False),
        ([rule("bind", GROUP, "clusterroles")], ROLES, ROLE, False),
        ([], BINDINGS, BINDING, False),
        ([rule("bind", GROUP, "clusterroles")], BINDINGS, BINDING, True),
        ([named("bind", "clusterroles", "wide")], BINDINGS, BINDING, True),
        ([named("bind", "clusterroles", "view")], BINDINGS, BINDING, False),
        ([rule("escalate", GROUP, "clusterroles")], BINDINGS, BINDING, False),
        ([rule("*", "*", "*")], BINDINGS, BINDING, True),
    ],
)
def test_who_may_grant(held: list[Any], wanted: Attributes, body: dict[str, Any], allowed: bool) -> None:
    try:
        access(*held).check_write(ALICE, wanted, body)
        granted = True
    except ApiError as error:
        assert error.code == 403
        granted = False
    assert granted is allowed


def test_who_may_bind_in_one_namespace_binds_there_alone() -> None:
    inside = access(rule("bind", GROUP, "clusterroles"), namespace="team")
    inside.check_write(ALICE, Attributes("create", GROUP, "rolebindings", namespace="team"), BINDING)
    with pytest.raises(ApiError):
        inside.check_write(ALICE, Attributes("create", GROUP, "rolebindings", namespace="other"), BINDING)
    with pytest.raises(ApiError):
        inside.check_write(ALICE, BINDINGS, BINDING)
