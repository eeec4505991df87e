"""The admission chain of a write, between the handlers and the pure rules.

The handlers hand over what is to be written; this module gathers what the rules need to know about the namespace and
gives back the object to store, warnings, and the quota statuses that must be written in the same transaction.
Synchronous on purpose: between the decision and the commit nothing else can happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kubeqos.apiserver.kinds import Kind
from kubeqos.codec import JsonObject

Coalesced = dict[str, Callable[[int], bytes | None]]


@dataclass(slots=True)
class Attempt:
    """A write that wants to be admitted. `new` is None for a delete, `old` for a create."""

    operation: str  # CREATE, UPDATE, DELETE
    kind: Kind
    namespace: str
    name: str
    new: JsonObject | None
    old: JsonObject | None = None
    subresource: str = ""
    dry_run: bool = False


@dataclass(slots=True)
class Admitted:
    """What to store, what to tell the client, and which quota statuses change with it."""

    obj: JsonObject
    warnings: list[str] = field(default_factory=list)
    coalesced: Coalesced = field(default_factory=dict)


class Admission(Protocol):
    """Decides about writes; raises ApiError to refuse one."""

    def admit(self, attempt: Attempt) -> Admitted:
        """Default, validate and charge an object that is about to be created or updated."""

    def released(self, attempt: Attempt) -> Coalesced:
        """The quota statuses that change because an object goes away."""


class Open:
    """Admits everything: for tests of the protocol alone."""

    def admit(self, attempt: Attempt) -> Admitted:
        assert attempt.new is not None
        return Admitted(attempt.new)

    def released(self, attempt: Attempt) -> Coalesced:
        return {}
