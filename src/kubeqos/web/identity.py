"""Who asks: a user, their groups and, when the source knows one, a uid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_USER = "system:node:"
SERVICE_ACCOUNTS = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated (or anonymous) user."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @classmethod
    def authenticated(cls, user: str, groups: Iterable[str] = (), uid: str = "") -> Identity:
        """An identity that some credential has proved; it is in `system:authenticated`, once."""
        return cls(user, tuple(dict.fromkeys([*groups, AUTHENTICATED])), uid)

    @classmethod
    def service_account(cls, namespace: str, name: str, uid: str = "") -> Identity:
        groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
        return cls.authenticated(f"system:serviceaccount:{namespace}:{name}", groups, uid)

    @property
    def node(self) -> str | None:
        """The node's name, when this is a node agent's identity."""
        if NODES in self.groups and self.user.startswith(NODE_USER):
            return self.user.removeprefix(NODE_USER) or None
        return None


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))
