"""Admission in the server: the pure pipeline with what it needs to know about the cluster, kept up to date.

LimitRanges, quotas, priority classes and what nodes offer are compiled when they are written, in the same turn of the
event loop in which the store takes the write, so that the next write already sees them. The quota ledger changes only
through accepted writes; the quotas' statuses are rendered once per transaction from the ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from kubeqos.apiserver.admission.contract import AdmittedWrite, Coalesced
from kubeqos.apiserver.admission.origins import COPIED, origins
from kubeqos.apiserver.registry.definitions import Catalog, established
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode, renderer
from kubeqos.codec import JsonObject, decode_json
from kubeqos.gates import FeatureGates
from kubeqos.model.objects import PodView
from kubeqos.rules import admission, webhooks
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.limits import Limits
from kubeqos.rules.priority import PriorityClasses
from kubeqos.rules.qos.classes import WELL_KNOWN
from kubeqos.rules.qos.classobjects import (
    QOS_CLASSES,
    QOS_CLASSES_PATH,
    QOS_RESOURCES,
    QOS_RESOURCES_PATH,
    ClassObjects,
)
from kubeqos.rules.quota import Charge, Quota, QuotaLedger, charge_of, charge_pod
from kubeqos.rules.requests import AdmissionRequest, Admitted, Check, ClusterFacts, NodeRoom, Operation, RequestRefused
from kubeqos.rules.services.addresses import DEFAULT_RANGE, ServiceAddresses
from kubeqos.store import Store, StoreError
from kubeqos.web.status import ApiError

_LIMIT_RANGE, _QUOTA, _NODE = kind_named("LimitRange"), kind_named("ResourceQuota"), kind_named("Node")
_PRIORITY_CLASS = kind_named("PriorityClass", "scheduling.k8s.io")
_RUNTIME_CLASS = kind_named("RuntimeClass", "node.k8s.io")
_DEFINITION = kind_named("CustomResourceDefinition", "apiextensions.k8s.io")
_SERVICE = kind_named("Service")
_WEBHOOKS = {kind: kind_named(kind, webhooks.GROUP) for kind in (webhooks.MUTATING, webhooks.VALIDATING)}
_FOLLOWED = {
    "limitranges": _LIMIT_RANGE,
    "priorityclasses.scheduling.k8s.io": _PRIORITY_CLASS,
    "nodes": _NODE,
    "runtimeclasses.node.k8s.io": _RUNTIME_CLASS,
    "customresourcedefinitions.apiextensions.k8s.io": _DEFINITION,
    "services": _SERVICE,
    **{f"{kind.plural}.{kind.group}": kind for kind in _WEBHOOKS.values()},
}
"""Kinds that admission looks at, by their qualified names."""
_COUNTED_AT_ONCE = 250  # objects: a few milliseconds


@dataclass(frozen=True, slots=True)
class _Stored:
    """What checks may look at: what is stored, and what is on its way to the disk."""

    store: Store

    def get(self, kind: str, group: str, namespace: str, name: str) -> JsonObject | None:
        stored = self.store.get(kind_named(kind, group).key(namespace, name), pending=True)
        return decode(stored) if stored is not None else None

    def all(self, kind: str, group: str, namespace: str) -> Iterator[JsonObject]:
        return map(decode, self.store.range(kind_named(kind, group).range_prefix(namespace)).items)


class Chain:
    """The admission chain of one API server."""

    def __init__(
        self,
        store: Store,
        gates: FeatureGates,
        checks: Sequence[Check] = (),
        service_range: IPv4Network = DEFAULT_RANGE,
    ) -> None:
        self._store = store
        self._service_range = service_range
        self._gates = gates
        self._checks = tuple(checks)
        self._stored = _Stored(store)
        self._expired: set[str] = set()
        self._counted: dict[str, dict[str, tuple[bytes, Charge | None]]] = {}
        self._followed = 0
        self._on_refused: list[Callable[[AdmissionRequest, RequestRefused], None]] = []
        self._on_webhooks: list[Callable[[], None]] = []
        self.catalog = Catalog()
        self._load()
        store.on_discard(self._load)

    def on_refused(self, callback: Callable[[AdmissionRequest, RequestRefused], None]) -> None:
        """Call back with every refusal, for the records of decisions."""
        self._on_refused.append(callback)

    def on_webhooks(self, callback: Callable[[], None]) -> None:
        """Call back when webhooks are configured, or no longer are."""
        self._on_webhooks.append(callback)

    def _load(self) -> None:
        """Derive everything from the store, at start and when writes that were already followed have failed."""
        self.ledger = QuotaLedger(self._expired)
        self._limits: dict[str, dict[str, Limits]] = {}
        self._priorities: dict[str, JsonObject] = {}
        self._compiled_priorities = PriorityClasses()
        self._runtime_classes: dict[str, JsonObject] = {}
        self._configurations: dict[tuple[str, str], JsonObject] = {}
        self._compile_webhooks()
        self.catalog.clear()
        self._addresses = ServiceAddresses(self._service_range)
        self._offers: dict[str, frozenset[str]] = {}
        self._rooms: dict[str, NodeRoom] = {}
        self._container_level: frozenset[str] = frozenset(WELL_KNOWN)
        self._followed += 1
        for kind in _FOLLOWED.values():
            for stored in self._store.range(kind.prefix).items:
                obj = decode_json(stored.value)
                self._remember(kind, obj["metadata"].get("namespace", ""), obj)
        self._described = {
            QOS_CLASSES: self._descriptions(QOS_CLASSES_PATH),
            QOS_RESOURCES: self._descriptions(QOS_RESOURCES_PATH),
        }
        self._class_objects = ClassObjects.of(*(objects.values() for objects in self._described.values()))
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
    def checks(self) -> tuple[Check, ...]:
        """Further opinions on what is about to be stored."""
        return self._checks

    @property
    def container_level(self) -> frozenset[str]:
        """The QoS-class resources that nodes offer to containers."""
        return self._container_level

    def limits(self, namespace: str) -> tuple[Limits, ...]:
        """The LimitRanges of a namespace, by their names."""
        return tuple(self._limits.get(namespace, {}).values())

    def admit(self, request: AdmissionRequest) -> AdmittedWrite:
        return self.admit_in(request, self.facts(request))

    def admit_in(self, request: AdmissionRequest, around: ClusterFacts) -> AdmittedWrite:
        """Admit a write as if these were the facts."""
        outcome = admission.admit(request, around)
        if isinstance(outcome, Admitted) and outcome.object is not None:
            errors = [error for check in self._checks for error in check(request, outcome.object, self._stored)]
            if request.kind == _SERVICE.kind and not request.group and not request.subresource:
                errors += self._addresses.complete((request.namespace, request.name), outcome.object)
            if errors:
                refusal = Invalid(request.kind, request.group, request.name, errors)
                raise ApiError(refusal.code, refusal.reason, refusal.message, details=refusal.details)
        return self._admitted(request, outcome)

    def _admitted(self, request: AdmissionRequest, outcome: Admitted | RequestRefused) -> AdmittedWrite:
        if isinstance(outcome, RequestRefused):
            for tell in self._on_refused:
                tell(request, outcome)
            raise ApiError(outcome.code, outcome.reason, outcome.message, details=dict(outcome.details))
        obj = outcome.object if outcome.object is not None else request.old
        assert obj is not None  # a delete has an old object
        resource = request.qualified
        follow = self._quota_written(request, obj) if resource == _QUOTA.plural else None
        if request.kind == _DEFINITION.kind and request.group == _DEFINITION.group and not request.subresource:
            established(obj, time.time())

        def accepted() -> None:
            self.ledger.apply(request.namespace, outcome.deltas)
            if follow is not None:
                follow()
            self._changed(resource, request, obj)

        return AdmittedWrite(obj, list(outcome.warnings), self.statuses(request.namespace, outcome.deltas), accepted)

    def facts(self, request: AdmissionRequest) -> ClusterFacts:
        """What the rules need to know beside the object."""
        return ClusterFacts(
            limits=self.limits(request.namespace),
            priorities=self._compiled_priorities,
            quotas=self.ledger.quotas(request.namespace) if request.namespace else (),
            gates=self._gates,
            container_level=self._container_level,
            nodes=self._rooms,
            expired=self.ledger.expired,
            runtime_classes=self._runtime_classes,
            class_objects=self._class_objects,
            origins=origins(request, self._stored) if request.kind in COPIED else (),
        )

    # following accepted writes

    def _changed(self, resource: str, request: AdmissionRequest, obj: JsonObject) -> None:
        kind = _FOLLOWED.get(resource)
        if resource in self._described:
            self._class_changed(self._described[resource], request, obj)
        if kind is None:
            return
        if kind is not _NODE and kind is not _SERVICE:
            self._followed += 1
        if request.operation is not Operation.DELETE:
            self._remember(kind, request.namespace, obj)
            return
        if kind is _LIMIT_RANGE:
            self._limits.get(request.namespace, {}).pop(request.name, None)
        elif kind is _NODE:
            self._offers.pop(request.name, None)
            self._rooms.pop(request.name, None)
            self._followed += 1
        elif kind is _SERVICE:
            self._addresses.drop((request.namespace, request.name))
        elif kind is _RUNTIME_CLASS:
            self._runtime_classes.pop(request.name, None)
        elif kind is _DEFINITION:
            self.catalog.forget(request.name)
        elif kind.kind in _WEBHOOKS:
            self._configurations.pop((kind.kind, request.name), None)
            self._compile_webhooks()
        else:
            self._priorities.pop(request.name, None)
            self._compiled_priorities = PriorityClasses.of(self._priorities.values())

    def _descriptions(self, path: tuple[str, str, str]) -> dict[str, JsonObject]:
        """The objects of a kind that somebody may have defined, by name."""
        defined = self.catalog.by_path.get(path)
        kept = self._store.range(defined.prefix).items if defined is not None else ()
        return {obj["metadata"]["name"]: obj for obj in (decode_json(one.value) for one in kept)}

    def _class_changed(self, objects: dict[str, JsonObject], request: AdmissionRequest, obj: JsonObject) -> None:
        if request.operation is Operation.DELETE:
            objects.pop(request.name, None)
        else:
            objects[request.name] = obj
        self._class_objects = ClassObjects.of(*(each.values() for each in self._described.values()))
        self._followed += 1

    def _remember(self, kind: Kind, namespace: str, obj: JsonObject) -> None:
        name = obj["metadata"]["name"]
        if kind is _LIMIT_RANGE:
            known = {**self._limits.get(namespace, {}), name: Limits.of(obj)}
            self._limits[namespace] = dict(sorted(known.items()))
        elif kind is _NODE:
            offered = ((obj.get("status") or {}).get("qosResources") or {}).get("containerQoSResources") or ()
            offer = frozenset(str(resource.get("name", "")) for resource in offered)
            self._rooms[name] = NodeRoom.of(obj)
            if self._offers.get(name) != offer:
                self._offers[name] = offer
                self._followed += 1
                self._container_level = frozenset(WELL_KNOWN).union(*self._offers.values())
        elif kind is _SERVICE:
            self._addresses.put((namespace, name), obj)
        elif kind is _RUNTIME_CLASS:
            self._runtime_classes[name] = obj
        elif kind is _DEFINITION:
            self.catalog.define(obj)
        elif kind.kind in _WEBHOOKS:
            self._configurations[kind.kind, name] = {**obj, "kind": kind.kind}
            self._compile_webhooks()
        else:
            self._priorities[name] = obj
            self._compiled_priorities = PriorityClasses.of(self._priorities.values())

    def _compile_webhooks(self) -> None:
        self.webhooks = webhooks.Webhooks.of(self._configurations.values())
        for tell in self._on_webhooks:
            tell()

    # quotas

    def _quota_written(self, request: AdmissionRequest, obj: JsonObject) -> Callable[[], None]:
        """A quota's status is what the ledger says, from the moment the quota exists."""
        namespace, name = request.namespace, request.name
        if request.operation is Operation.DELETE:
            return lambda: self.ledger.drop(namespace, name)
        known = self.ledger.quota(namespace, name)
        if known is not None and (request.old or {}).get("spec") == obj.get("spec"):
            obj["status"] = known.status()
            return lambda: None
        quota = Quota.of(obj)
        sketch = QuotaLedger()
        sketch.put(
            namespace, quota, self._charges(namespace, created=obj if request.operation is Operation.CREATE else None)
        )
        obj["status"] = quota.status()
        return lambda: self.ledger.put(namespace, quota, ())

    async def count(self, namespace: str) -> None:
        """Before a quota is written: work out what there is to count, a little at a time.

        The quota itself is counted in one turn of the event loop, so that no write comes in between. With twenty
        thousand pods to decode that turn would keep everybody waiting; now it decodes what changed meanwhile.
        """
        counted = self._counted[namespace] = {}
        for kind in _countable(self.catalog):
            for number, stored in enumerate(self._store.range(kind.range_prefix(namespace)).items, 1):
                counted[stored.key] = stored.value, self.charge(kind, decode_json(stored.value))
                if number % _COUNTED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(self._counted.pop, namespace, None)  # it is for the caller's turn alone

    def _charges(self, namespace: str, created: JsonObject | None = None) -> Iterator[Charge]:
        """What every live object of a namespace costs, pending writes included."""
        counted = self._counted.get(namespace, {})
        for kind in _countable(self.catalog):
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
        if not deltas:
            return
        try:
            await self._store.commit([], self.statuses(namespace, deltas))
        except StoreError:
            # Nobody has been told: it is charged as before, or its end would give back nothing, and be told never.
            self._expired.discard(view.metadata.uid)
            self._load()
            raise

    def statuses(self, namespace: str, names: Iterable[str]) -> Coalesced:
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


def _countable(catalog: Catalog) -> Iterator[Kind]:
    return (kind for kind in catalog.kinds if kind.stored and kind.namespaced and kind.view is None)
