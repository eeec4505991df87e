"""What the handlers know about admission: they hand over a write and get back what to store with it.

`Chain` in `chain` is the real thing; the protocol is all that `writes` and `deletes` depend on. Synchronous on
purpose: between a decision and its commit nothing else can happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.codec import JsonObject
from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.limits import Defaulted
from kubeqos.rules.quota import Charge
from kubeqos.store import Store

Coalesced = dict[str, Callable[[int], bytes | None]]


def _nothing() -> None:
    """Nothing follows from this write."""


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


@dataclass(slots=True)
class Admitted:
    """What to store, what to tell the client, and which quota statuses are written in the same transaction.

    `accepted` is called once the store has taken the write: only then does usage change.
    """

    obj: JsonObject
    warnings: list[str] = field(default_factory=list)
    coalesced: Coalesced = field(default_factory=dict)
    accepted: Callable[[], None] = _nothing


Check = Callable[[Attempt, JsonObject, Store], Sequence[FieldError]]
"""A further opinion on an object that passed everything else, for rooms that the server does not know. It has nothing
to say about a new pod without claims and annotations: such pods are not shown to it one by one."""


class Admission(Protocol):
    """Decides about writes; raises ApiError to refuse one."""

    @property
    def version(self) -> int:
        """Grows whenever something that admission looks at changes, quotas excepted."""

    @property
    def is_checked(self) -> bool:
        """Whether there are further opinions."""

    def defaulted(self, namespace: str) -> Defaulted | None:
        """The amounts that LimitRanges fill in; None where they fill in more than amounts."""

    def admit(self, attempt: Attempt) -> Admitted:
        """Complete, validate and price a write; for a delete only the price is of interest."""

    def rehearse(self, attempt: Attempt, *, limited: bool) -> Admitted:
        """Complete and validate a create as if there were no quotas, nor, unless `limited`, LimitRanges."""

    def admit_charged(self, namespace: str, charge: Charge | None) -> Admitted | None:
        """Judge a new object that is known to pass everything but bounds and quota; None refuses it."""

    async def count(self, namespace: str) -> None:
        """Prepare for the write of a quota of this namespace, which is then counted in one turn of the event loop."""
