"""What every handler needs: the store, the admission chain, a clock and fresh identities. No HTTP here.

The ASGI shell and the in-process client share one `Core`, so that a controller in this process and a kubectl outside
go through exactly the same code.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubeqos.apiserver.admission.contract import Admission
from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.codec import JsonObject
from kubeqos.store import Store, Stored
from kubeqos.web.status import not_found

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' suffixes: no vowels, no lookalikes
_MAX_GENERATED_PREFIX = 58
_BLOCK = 4096
_NAMESPACE = kind_named("Namespace")
Body = tuple[str, str, str]
"""Group, version and kind of what is sent to a subresource that has a kind of its own."""
CONNECT = "CONNECT"
"""The operation of exec, attach, port-forward and proxy, as webhooks know it."""


class RandomUids:
    """Random UUIDs (RFC 9562, version 4), from randomness that the kernel is asked for in blocks."""

    def __init__(self) -> None:
        self._digits = ""
        self._at = 0

    def __call__(self) -> str:
        if self._at == len(self._digits):
            self._digits, self._at = os.urandom(_BLOCK).hex(), 0
        digits = self._digits[self._at : self._at + 32]
        self._at += 32
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def random_suffix() -> str:
    return "".join(random.choices(_ALPHABET, k=5))


def generated_name(prefix: str, suffix: str) -> str:
    """`generateName` plus five characters, cut so that the whole fits a label."""
    return prefix[:_MAX_GENERATED_PREFIX] + suffix


class WriteHooks(Protocol):
    """Writes that clients ask for, with others to be asked about them (`apiserver.webhooks.hooked`)."""

    def concerns(self, write: Any, operation: str) -> bool:
        """Whether anybody may have to be asked about such a write."""

    async def create(self, write: Any, obj: JsonObject) -> Any: ...

    async def update(self, write: Any, transform: Callable[[JsonObject], JsonObject]) -> Any: ...

    async def before_delete(self, kind: Kind, namespace: str, name: str, options: Any, asked: Any) -> None: ...

    async def below(
        self,
        write: Any,
        operation: str,
        body: Body,
        new: JsonObject,
        old: JsonObject | None = None,
        completed: Callable[[JsonObject], JsonObject] = ...,
    ) -> JsonObject: ...


@dataclass
class Core:
    """The API server without its sockets."""

    store: Store
    admission: Admission
    clock: Callable[[], float] = time.time
    new_uid: Callable[[], str] = field(default_factory=RandomUids)
    new_suffix: Callable[[], str] = random_suffix
    catalog: Catalog = field(default_factory=Catalog)
    hooks: WriteHooks | None = field(default=None, init=False)
    """What takes the place of ordinary writes while webhooks are configured."""
    on_evicted: Callable[[str, str, str], None] = lambda _uid, _user, _budget: None
    """Told of every eviction that is asked for and allowed (pod, user, budget), for the records of decisions."""
    _namespaces: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def write_through(self, hooks: WriteHooks | None) -> None:
        """From now on writes that clients ask for go this way; the ordinary one without it."""
        self.hooks = hooks

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
