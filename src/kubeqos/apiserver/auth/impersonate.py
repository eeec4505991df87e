"""`kubectl --as`: acting as somebody else, which needs the verb `impersonate` on whoever that is.

Called after authentication; everything that follows, authorisation first, sees the identity that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from kubeqos.apiserver.auth.authorize import Authorizer, refusal
from kubeqos.apiserver.auth.rbac import Attributes
from kubeqos.web.identity import ANONYMOUS, Identity
from kubeqos.web.status import ApiError, bad_request

IMPERSONATE = b"impersonate-"
EXTRA = b"impersonate-extra-"
USER, GROUP, UID = b"impersonate-user", b"impersonate-group", b"impersonate-uid"
SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class ImpersonationRefused:
    """403, or 400 when the headers make no sense."""

    error: ApiError


def impersonate(
    identity: Identity, headers: Iterable[tuple[bytes, bytes]], authorizer: Authorizer
) -> Identity | ImpersonationRefused:
    """The identity that the headers ask for; `identity` itself when they ask for nobody."""
    asked = [(name, value.decode("latin-1")) for name, value in headers if name.startswith(IMPERSONATE)]
    if not asked:
        return identity
    user = next((value for name, value in asked if name == USER), "")
    groups = [value for name, value in asked if name == GROUP]
    uid = next((value for name, value in asked if name == UID), "")
    if not user:
        return ImpersonationRefused(bad_request("requested groups, uid or extras without impersonating a user"))
    extras = [(unquote(name.removeprefix(EXTRA).decode("latin-1")), value) for name, value in asked if EXTRA in name]
    for wanted in needed(user, groups, uid, extras):
        decision = authorizer.decide(identity, wanted)
        if not decision.allowed:
            return ImpersonationRefused(refusal(identity, wanted, decision.because))
    return become(user, groups, uid)


def needed(user: str, groups: list[str], uid: str, extras: Iterable[tuple[str, str]] = ()) -> Iterator[Attributes]:
    """One permission for each thing that is claimed."""
    account = user.removeprefix(SERVICE_ACCOUNT).split(":")
    if user.startswith(SERVICE_ACCOUNT) and len(account) == 2:
        yield Attributes("impersonate", "", "serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield Attributes("impersonate", "", "users", name=user)
    for group in groups:
        yield Attributes("impersonate", "", "groups", name=group)
    if uid:
        yield Attributes("impersonate", "authentication.k8s.io", "uids", name=uid)
    for key, value in extras:
        yield Attributes("impersonate", "authentication.k8s.io", "userextras", key, name=value)


def become(user: str, groups: list[str], uid: str) -> Identity:
    """Groups that are not asked for are those that the credential itself would bring."""
    if user == ANONYMOUS.user:
        return Identity(user, tuple(dict.fromkeys([*groups, *ANONYMOUS.groups])), uid)
    account = user.removeprefix(SERVICE_ACCOUNT).split(":")
    if user.startswith(SERVICE_ACCOUNT) and len(account) == 2 and not groups:
        return Identity.service_account(account[0], account[1], uid)
    return Identity.authenticated(user, groups, uid)
