"""What every handler needs: the store, the admission chain, a clock and fresh identities. No HTTP here.

The ASGI shell and the in-process client share one `Core`, so that a controller in this process and a kubectl outside
go through exactly the same code.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kubeqos.apiserver.admission import Admission
from kubeqos.apiserver.kinds import Kind, kind_named
from kubeqos.apiserver.objects import decode
from kubeqos.apiserver.status import not_found
from kubeqos.store import Store, Stored

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' suffixes: no vowels, no lookalikes
_MAX_GENERATED_PREFIX = 58
_NAMESPACE = kind_named("Namespace")


def new_uid() -> str:
    """A random UUID (RFC 9562, version 4); the library's class checks and converts what needs neither."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def random_suffix() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


def generated_name(prefix: str, suffix: str) -> str:
    """`generateName` plus five characters, cut so that the whole fits a label."""
    return prefix[:_MAX_GENERATED_PREFIX] + suffix


@dataclass
class Core:
    """The API server without its sockets."""

    store: Store
    admission: Admission
    clock: Callable[[], float] = time.time
    new_uid: Callable[[], str] = new_uid
    new_suffix: Callable[[], str] = random_suffix
    _namespaces: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def stored(self, kind: Kind, namespace: str, name: str, *, pending: bool = False) -> Stored:
        """One object, 404 when there is none."""
        found = self.store.get(kind.key(namespace, name), pending=pending)
        if found is None:
            raise not_found(kind.plural, kind.group, name)
        return found

    def namespace_terminating(self, name: str) -> bool | None:
        """Whether a namespace is being deleted; None when it does not exist."""
        stored = self.store.get(_NAMESPACE.key("", name), pending=True)
        if stored is None:
            self._namespaces.pop(name, None)
            return None
        known = self._namespaces.get(name)
        if known is None or known[0] != stored.revision:
            terminating = "deletionTimestamp" in decode(stored)["metadata"]
            known = self._namespaces[name] = (stored.revision, terminating)
        return known[1]
