"""`kubectl --as`: who may become whom."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.apiserver.auth import Authorizer, ImpersonationRefused, NodeRule, Policy, impersonate
from kubeqos.web.identity import Identity
from tests.apiserver.auth.test_rbac import NoFacts, binding, role, user

ROOT = Identity.authenticated("root", ["system:masters"])
ALICE = Identity.authenticated("alice")
JOE = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["joe"]}


def authorizer() -> Authorizer:
    to_joe: dict[str, Any] = role("to-joe", JOE)
    return Authorizer(Policy([to_joe, binding("b", to_joe, user("alice"))]), NodeRule(NoFacts()))


def asking(**headers: str) -> list[tuple[bytes, bytes]]:
    return [(b"accept", b"*/*"), *((f"impersonate-{name}".encode(), value.encode()) for name, value in headers.items())]


@pytest.mark.parametrize(
    ("headers", "becomes"),
    [
        (asking(), ROOT),
        (asking(user="joe"), Identity("joe", ("system:authenticated",))),
        (asking(user="joe", group="dev", uid="u"), Identity("joe", ("dev", "system:authenticated"), "u")),
        (asking(user="system:serviceaccount:ci:builder"), Identity.service_account("ci", "builder")),
        (asking(user="system:anonymous"), Identity("system:anonymous", ("system:unauthenticated",))),
        (
            asking(user="system:anonymous", group="dev"),
            Identity("system:anonymous", ("dev", "system:unauthenticated")),
        ),
    ],
)
def test_masters_may_become_anybody(headers: list[tuple[bytes, bytes]], becomes: Identity) -> None:
    assert impersonate(ROOT, headers, authorizer()) == becomes


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (asking(user="root"), 'users "root" is forbidden: User "alice" cannot impersonate resource "users"'),
        (asking(user="joe", group="system:masters"), 'groups "system:masters" is forbidden: User "alice" cannot'),
        (
            asking(user="joe", **{"extra-scopes": "x"}),
            'userextras.authentication.k8s.io "x" is forbidden: User "alice"',
        ),
        (asking(user="joe", uid="u"), 'uids.authentication.k8s.io "u" is forbidden: User "alice" cannot'),
        (
            asking(user="system:serviceaccount:ci:builder"),
            'serviceaccounts "builder" is forbidden: User "alice" cannot',
        ),
    ],
)
def test_everything_that_is_claimed_must_be_allowed(headers: list[tuple[bytes, bytes]], message: str) -> None:
    refused = impersonate(ALICE, headers, authorizer())
    assert isinstance(refused, ImpersonationRefused)
    assert refused.error.code == 403
    assert refused.error.what.startswith(message)
    assert impersonate(ALICE, asking(user="joe"), authorizer()) == Identity.authenticated("joe")


def test_a_group_without_a_user_makes_no_sense() -> None:
    refused = impersonate(ROOT, asking(group="dev"), authorizer())
    assert isinstance(refused, ImpersonationRefused)
    assert refused.error.code == 400
