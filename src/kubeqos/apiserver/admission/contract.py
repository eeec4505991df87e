"""What the handlers know about admission: they hand over a write and get back what to store with it.

`Chain` in `chain` is the real thing; the protocol is all that `writes` and `deletes` depend on. Synchronous on
purpose: between a decision and its commit nothing else can happen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kubeqos.codec import JsonObject
from kubeqos.rules.requests import AdmissionRequest

Coalesced = dict[str, Callable[[int], bytes | None]]


def _nothing() -> None:
    """Nothing follows from this write."""


@dataclass(slots=True)
class AdmittedWrite:
    """What to store, what to tell the client, and which quota statuses are written in the same transaction.

    `accepted` is called once the store has taken the write: only then does usage change.
    """

    obj: JsonObject
    warnings: list[str] = field(default_factory=list)
    coalesced: Coalesced = field(default_factory=dict)
    accepted: Callable[[], None] = _nothing


class Admission(Protocol):
    """Decides about writes; raises ApiError to refuse one."""

    def admit(self, request: AdmissionRequest) -> AdmittedWrite:
        """Complete, validate and price a write; for a delete only the price is of interest."""

    async def count(self, namespace: str) -> None:
        """Prepare for the write of a quota of this namespace, which is then counted in one turn of the event loop."""
