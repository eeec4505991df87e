"""Admission in the server: the pure pipeline with what it needs to know about the cluster, kept up to date.

LimitRanges, quotas, priority classes and what nodes offer are compiled when they are written, in the same turn of the
event loop in which the store takes the write, so that the next write already sees them. The quota ledger changes only
through accepted writes; the quotas' statuses are rendered once per transaction from the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kubeqos.apiserver.admission.contract import Admitted, Attempt, Check, Coalesced
from kubeqos.apiserver.registry.kinds import KINDS, Kind, kind_named
from kubeqos.apiserver.registry.objects import renderer
from kubeqos.codec import JsonObject, decode_json
from kubeqos.gates import FeatureGates
from kubeqos.model.objects import PodView
from kubeqos.rules import admission
from kubeqos.rules.admission import Operation, Refused, Request, Surroundings
from kubeqos.rules.classes import WELL_KNOWN
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.limits import Defaulted, Limits, check_pod
from kubeqos.rules.priority import PriorityClasses
from kubeqos.rules.quota import Charge, Denied, Ledger, Quota, charge_of, charge_pod, decide
from kubeqos.store import Store
from kubeqos.web.status import ApiError

_LIMIT_RANGE, _QUOTA, _NODE = kind_named("LimitRange"), kind_named("ResourceQuota"), kind_named("Node")
_PRIORITY_CLASS = kind_named("PriorityClass", "scheduling.k8s.io")
Key = tuple[str, str]
_NOTHING_DEFAULTED = Defaulted()
_COUNTED_AT_ONCE = 250  # objects: a few milliseconds


class Chain:
    """The admission chain of one API server."""

    def __init__(self, store: Store, gates: FeatureGates, checks: Sequence[Check] = ()) -> None:
        self._store = store
        self._gates = gates
        self._checks = tuple(checks)
        self._expired: set[str] = set()
        self._counted: dict[str, dict[str, tuple[bytes, Charge | None]]] = {}
        self._followed = 0
        self._load()
        store.on_discard(self._load)

    def _load(self) -> None:
        """Derive everything from the store, at start and when writes that were already followed have failed."""
        self.ledger = Ledger()
        self.ledger.expired = self._expired
        self._limits: dict[str, dict[str, Limits]] = {}
        self._priorities: dict[str, JsonObject] = {}
        self._compiled_priorities = PriorityClasses()
        self._offers: dict[str, frozenset[str]] = {}
        self._container_level: frozenset[str] = frozenset(WELL_KNOWN)
        self._followed += 1
        for kind in (_LIMIT_RANGE, _PRIORITY_CLASS, _NODE):
            for stored in self._store.range(kind.prefix).items:
                obj = decode_json(stored.value)
                self._remember(kind, obj["metadata"].get("namespace", ""), obj)
        for stored in self._store.range(_QUOTA.prefix).items:
            obj = decode_json(stored.value)
            namespace = obj["metadata"]["namespace"]
            self.ledger.put(namespace, Quota.of(obj), self._charges(namespace))

    # deciding

    @property
    def version(self) -> int:
        """Grows whenever something that admission looks at changes, quotas excepted."""
        return self._followed

    @property
    def is_checked(self) -> bool:
        """Whether there are further opinions."""
        return bool(self._checks)

    def defaulted(self, namespace: str) -> Defaulted | None:
        """The amounts that LimitRanges fill in; None where they fill in more than amounts."""
        ranges = self._limits.get(namespace)
        return Defaulted.by(tuple(ranges.values())) if ranges else _NOTHING_DEFAULTED

    def admit_charged(self, namespace: str, charge: Charge | None) -> Admitted | None:
        """Judge a new object that is known to pass everything but bounds and quota; None refuses it."""
        ranges = self._limits.get(namespace)
        spec = charge.spec if charge is not None else None
        if ranges and spec is not None and check_pod(spec, ranges.values(), self._container_level):
            return None
        decision = decide(self.ledger.quotas(namespace), None, charge, container_level=self._container_level)
        if isinstance(decision, Denied):
            return None
        deltas = decision.deltas
        return Admitted(
            {}, coalesced=self._statuses(namespace, deltas), accepted=lambda: self.ledger.apply(namespace, deltas)
        )

    def rehearse(self, attempt: Attempt, *, limited: bool) -> Admitted:
        """Complete and validate a create as if there were no quotas, nor, unless `limited`, LimitRanges."""
        around = replace(self._surroundings(attempt), quotas=())
        return self._decided(attempt, around if limited else replace(around, limits=()))

    def admit(self, attempt: Attempt) -> Admitted:
        return self._decided(attempt, self._surroundings(attempt))

    def _decided(self, attempt: Attempt, around: Surroundings) -> Admitted:
        kind = attempt.kind
        request = Request(
            Operation(attempt.operation),
            kind.plural,
            kind.kind,
            kind.group,
            attempt.namespace if kind.namespaced else "",
            attempt.subresource,
            attempt.old,
            attempt.new,
        )
        outcome = admission.admit(request, around)
        if isinstance(outcome, admission.Admitted) and outcome.object is not None:
            errors = [error for check in self._checks for error in check(attempt, outcome.object, self._store)]
            if errors:
                refusal = Invalid(kind.kind, kind.group, attempt.name, errors)
                raise ApiError(refusal.code, refusal.reason, refusal.message, details=refusal.details)
        return self._admitted(attempt, outcome)

    def _admitted(self, attempt: Attempt, outcome: admission.Admitted | Refused) -> Admitted:
        kind = attempt.kind
        if isinstance(outcome, Refused):
            raise ApiError(outcome.code, outcome.reason, outcome.message, details=dict(outcome.details))
        obj = outcome.object if outcome.object is not None else attempt.old
        assert obj is not None  # a delete has an old object
        follow = self._quota_written(attempt, obj) if kind is _QUOTA else None
        coalesced = self._statuses(attempt.namespace, outcome.deltas)

        def accepted() -> None:
            self.ledger.apply(attempt.namespace, outcome.deltas)
            if follow is not None:
                follow()
            self._changed(attempt, obj)

        return Admitted(obj, list(outcome.warnings), coalesced, accepted)

    def _surroundings(self, attempt: Attempt) -> Surroundings:
        return Surroundings(
            limits=tuple(self._limits.get(attempt.namespace, {}).values()),
            priorities=self._compiled_priorities,
            quotas=self.ledger.quotas(attempt.namespace) if attempt.kind.namespaced else (),
            gates=self._gates,
            container_level=self._container_level,
            nodes=self._offers,
            expired=self.ledger.expired,
            runtime_classes=(),  # the server has no such kind
        )

    # following accepted writes

    def _changed(self, attempt: Attempt, obj: JsonObject) -> None:
        if attempt.kind not in (_LIMIT_RANGE, _PRIORITY_CLASS, _NODE):
            return
        if attempt.kind is not _NODE:
            self._followed += 1
        if attempt.operation != "DELETE":
            self._remember(attempt.kind, attempt.namespace, obj)
            return
        if attempt.kind is _LIMIT_RANGE:
            self._limits.get(attempt.namespace, {}).pop(attempt.name, None)
        elif attempt.kind is _NODE:
            self._offers.pop(attempt.name, None)
            self._followed += 1
        else:
            self._priorities.pop(attempt.name, None)
            self._compiled_priorities = PriorityClasses.of(self._priorities.values())

    def _remember(self, kind: Kind, namespace: str, obj: JsonObject) -> None:
        name = obj["metadata"]["name"]
        if kind is _LIMIT_RANGE:
            known = {**self._limits.get(namespace, {}), name: Limits.of(obj)}
            self._limits[namespace] = dict(sorted(known.items()))
        elif kind is _NODE:
            offered = ((obj.get("status") or {}).get("qosResources") or {}).get("containerQoSResources") or ()
            offer = frozenset(str(resource.get("name", "")) for resource in offered)
            if self._offers.get(name) != offer:
                self._offers[name] = offer
                self._followed += 1
                self._container_level = frozenset(WELL_KNOWN).union(*self._offers.values())
        else:
            self._priorities[name] = obj
            self._compiled_priorities = PriorityClasses.of(self._priorities.values())

    # quotas

    def _quota_written(self, attempt: Attempt, obj: JsonObject) -> Callable[[], None]:
        """A quota's status is what the ledger says, from the moment the quota exists."""
        namespace, name = attempt.namespace, attempt.name
        if attempt.operation == "DELETE":
            return lambda: self.ledger.drop(namespace, name)
        known = self.ledger.quota(namespace, name)
        if known is not None and (attempt.old or {}).get("spec") == obj.get("spec"):
            obj["status"] = known.status()
            return lambda: None
        quota = Quota.of(obj)
        sketch = Ledger()
        sketch.put(namespace, quota, self._charges(namespace, created=obj if attempt.operation == "CREATE" else None))
        obj["status"] = quota.status()
        return lambda: self.ledger.put(namespace, quota, ())

    async def count(self, namespace: str) -> None:
        """Before a quota is written: work out what there is to count, a little at a time.

        The quota itself is counted in one turn of the event loop, so that no write comes in between. With twenty
        thousand pods to decode that turn would keep everybody waiting; now it decodes what changed meanwhile.
        """
        counted = self._counted[namespace] = {}
        for kind in _countable():
            for number, stored in enumerate(self._store.range(kind.range_prefix(namespace)).items, 1):
                counted[stored.key] = stored.value, self.charge(kind, decode_json(stored.value))
                if number % _COUNTED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(self._counted.pop, namespace, None)  # it is for the caller's turn alone

    def _charges(self, namespace: str, created: JsonObject | None = None) -> Iterator[Charge]:
        """What every live object of a namespace costs, pending writes included."""
        counted = self._counted.get(namespace, {})
        for kind in _countable():
            prefix = kind.range_prefix(namespace)
            keys = {stored.key for stored in self._store.range(prefix).items} | self._store.pending_keys(prefix)
            for key in keys:
                stored = self._store.get(key, pending=True)
                if stored is None:
                    continue
                value, charge = counted.get(key, (None, None))
                if value is not stored.value:
                    charge = self.charge(kind, decode_json(stored.value))
                if charge is not None:
                    yield charge
        if created is not None and (charge := self.charge(_QUOTA, created)) is not None:
            yield charge

    def charge(self, kind: Kind, obj: JsonObject) -> Charge | None:
        """What one object costs."""
        if kind.kind == "Pod":
            view = PodView.of(obj)
            return charge_pod(view, expired=view.metadata.uid in self.ledger.expired)
        return charge_of(kind.plural, obj, group=kind.group)

    async def expire(self, pod: JsonObject) -> None:
        """A pod has outlived its grace period: give back what it used, and write that down."""
        view = PodView.of(pod)
        namespace = view.metadata.namespace
        self._counted.pop(namespace, None)  # the pod costs less now, though it did not change
        deltas = self.ledger.expire(namespace, view)
        if deltas:
            await self._store.commit([], self._statuses(namespace, deltas))

    def _statuses(self, namespace: str, names: Iterable[str]) -> Coalesced:
        """The quotas to be written in a transaction."""
        return {_QUOTA.key(namespace, name): self._status_of(namespace, name) for name in names}

    def _status_of(self, namespace: str, name: str) -> Callable[[int], bytes | None]:
        """Renders a quota with the ledger's usage when its transaction is written."""
        key = _QUOTA.key(namespace, name)

        def render(revision: int) -> bytes | None:
            stored, quota = self._store.get(key, pending=True), self.ledger.quota(namespace, name)
            if stored is None or quota is None:
                return None
            obj = decode_json(stored.value)
            obj["status"] = quota.status()
            rendered = renderer(_QUOTA, obj)
            return None if rendered(stored.revision) == stored.value else rendered(revision)

        return render


def _countable() -> Iterator[Kind]:
    return (kind for kind in KINDS if kind.stored and kind.namespaced)
