"""From a stencil to a stored object: what is still to be decided about an object whose text is known.

Its name, its namespace, the bounds of LimitRanges and the quotas. And the rehearsal by which stencils learn what the
ordinary way would store: the real writes and the real chain, with a clock and a uid that can be found again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.admission.contract import AdmittedWrite
from kubeqos.apiserver.present.bodies import object_body
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.writes import Write, Written, check_absent, check_namespace, completed
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.shortcuts.stencils import MOMENT, MOMENT_SECONDS, UID_MARK
from kubeqos.codec import JsonObject
from kubeqos.rules.limits import Defaulted, check_pod
from kubeqos.rules.quota import Charge, OverQuota, decide
from kubeqos.rules.requests import AdmissionRequest
from kubeqos.store import Put
from kubeqos.web.status import ApiError

_NOTHING_DEFAULTED = Defaulted()


@dataclass(slots=True)
class Stamp:
    """A new object: its stored form behind the revision, and what it costs; None is what no quota counts."""

    name: str
    tail: bytes
    charge: Charge | None


class Stencils(Protocol):
    """Knows what new objects of one kind become."""

    def stamp(self, write: Write, request: Request) -> Stamp | None:
        """The object that a request makes, unless it has to go the ordinary way."""


@dataclass(slots=True)
class Stamping:
    """Creates objects of one kind from its stencils (a `hooks.Create`)."""

    core: Core
    chain: Chain
    stencils: Stencils

    async def __call__(self, write: Write, request: Request) -> Written | None:
        stamp = self.stencils.stamp(write, request) if not write.dry_run else None
        return None if stamp is None else await self._store(write, stamp)

    async def _store(self, write: Write, stamp: Stamp) -> Written | None:
        """None where bounds or quotas refuse it: the ordinary way says why."""
        core, kind, namespace, name = self.core, write.kind, write.namespace, stamp.name
        if write.guard is not None:
            write.guard({"metadata": {"name": name}})
        check_namespace(core, kind, namespace, name)
        admitted = admit_charge(self.chain, namespace, stamp.charge)
        if admitted is None:
            return None
        key = kind.key(namespace, name)
        check_absent(core, kind, key, name)
        value, tail = b"", stamp.tail

        def render(revision: int) -> bytes:
            nonlocal value
            value = b"%b%d%b" % (kind.head, revision, tail)
            return value

        commit = core.store.commit([Put(key, render, expect=0)], admitted.coalesced)
        admitted.accepted()
        await commit
        return Written(value, created=True)


def admit_charge(chain: Chain, namespace: str, charge: Charge | None) -> AdmittedWrite | None:
    """Judge a new object that is known to pass everything but bounds and quota; None refuses it."""
    limits, spec = chain.limits(namespace), charge.spec if charge is not None else None
    if limits and spec is not None and check_pod(spec, limits, chain.container_level):
        return None
    decision = decide(chain.ledger.quotas(namespace), None, charge, container_level=chain.container_level)
    if isinstance(decision, OverQuota):
        return None
    deltas = decision.deltas
    return AdmittedWrite(
        {}, coalesced=chain.statuses(namespace, deltas), accepted=lambda: chain.ledger.apply(namespace, deltas)
    )


def defaulted(chain: Chain, namespace: str) -> Defaulted | None:
    """The amounts that LimitRanges fill in; None where they fill in more than amounts."""
    limits = chain.limits(namespace)
    return Defaulted.by(limits) if limits else _NOTHING_DEFAULTED


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """The chain as if there were no quotas, nor, unless `limited`, LimitRanges."""

    chain: Chain
    limited: bool

    def admit(self, request: AdmissionRequest) -> AdmittedWrite:
        around = replace(self.chain.facts(request), quotas=())
        return self.chain.admit_in(request, around if self.limited else replace(around, limits=()))

    async def count(self, namespace: str) -> None:
        """Quotas are not rehearsed."""


def rehearsed(
    core: Core, chain: Chain, write: Write, request: Request, body: bytes, *, limited: bool = True
) -> JsonObject | None:
    """What the ordinary way would store for a body; None when it refuses it, or warns about it."""
    if MOMENT in body:
        return None
    stage = replace(core, admission=_Rehearsal(chain, limited), clock=lambda: MOMENT_SECONDS, new_uid=lambda: UID_MARK)
    asked = replace(request, body=body, warnings=[])
    rehearsal = replace(write, warnings=asked.warnings)
    try:
        obj = completed(stage, rehearsal, object_body(asked, write.kind)).obj
    except ApiError:
        return None
    return None if asked.warnings else obj
