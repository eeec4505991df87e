"""A cluster without a server: apply objects one after the other and get the answers a server would give.

`kubeqos check` uses it on manifests, tests replay recorded requests through it. It is admission around a dictionary:
no controllers run, nothing is scheduled, and time does not pass. Every decision is that of `rules.admission`, which
the server's chain asks too; to load the chain itself, a store and an event loop would take half as long again as the
whole command takes to answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kubeqos.gates import FeatureGates
from kubeqos.model import schema
from kubeqos.model.kinds import ApiResource, resource_of
from kubeqos.model.objects import PodView
from kubeqos.rules.admission import admit
from kubeqos.rules.limits import Limits
from kubeqos.rules.priority import PriorityClasses
from kubeqos.rules.quota import Charge, Quota, QuotaLedger, charge_of, charge_pod
from kubeqos.rules.requests import (
    DEFAULT_GATES,
    AdmissionRequest,
    Admitted,
    ClusterFacts,
    NodeRoom,
    Operation,
    RequestRefused,
)

Raw = dict[str, Any]
Key = tuple[str, str, str]
"""(resource with its group, namespace, name)"""

_ALWAYS_THERE = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server would say to one object."""

    kind: str
    name: str
    outcome: Admitted | RequestRefused
    verb: str = ""
    """What happened: created, configured, unchanged, deleted; "" when refused."""

    @property
    def ok(self) -> bool:
        return isinstance(self.outcome, Admitted)

    @property
    def object(self) -> Raw | None:
        return self.outcome.object if isinstance(self.outcome, Admitted) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.outcome.warnings if isinstance(self.outcome, Admitted) else ()

    @property
    def line(self) -> str:
        """The answer as kubectl prints it."""
        if isinstance(self.outcome, RequestRefused):
            return f"Error from server ({self.outcome.reason}): {self.outcome.message}"
        return f"{self.kind.lower()}/{self.name} {self.verb}"


class Offline:
    """The objects so far, and what the rules keep compiled of them.

    Namespaces that no object creates are taken to exist, since one rarely checks a manifest together with its
    namespace; with `strict_namespaces` they answer 404, as a server does.
    """

    def __init__(self, gates: FeatureGates = DEFAULT_GATES, *, strict_namespaces: bool = False) -> None:
        self.gates = gates
        self.ledger = QuotaLedger()
        self.objects: dict[Key, Raw] = {}
        self._applied: dict[Key, Raw] = {}
        self._created = 0
        self._strict_namespaces = strict_namespaces
        self._charges: dict[str, dict[Key, Charge]] = {}
        self._limits: dict[str, list[Limits]] = {}
        self._priorities = PriorityClasses()

    # -- asking --------------------------------------------------------------------------------------------------

    def apply(self, raw: Raw, *, namespace: str = "default") -> Answer:
        """Create the object, or update it if it is there; `namespace` is for objects that name none."""
        metadata = raw.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = str(metadata.get("name") or metadata.get("generateName") or "")
        known = _readable(raw)
        if isinstance(known, RequestRefused):
            return Answer(str(raw.get("kind", "")), name, known)
        group, form = known.group, schema.kind(known.group, known.version, known.kind)
        new = schema.normalise(deepcopy(raw), form)
        namespace = str(metadata.get("namespace") or namespace) if known.namespaced else ""
        if namespace:
            new.setdefault("metadata", {})["namespace"] = namespace
        key = (qualified(known.plural, group), namespace, name)
        old, last, manifest = self.objects.get(key), self._applied.get(key, {}), deepcopy(new)
        if old is None:
            answer = self.create(new, known.plural, group=group)
        else:
            new = three_way(deepcopy(old), last, new, form)
            verb = "unchanged" if new == old else "configured"
            answer = self.update(new, known.plural, group=group, verb=verb)
        if answer.ok:
            self._applied[key] = manifest
        return answer

    def get(self, resource: str, namespace: str, name: str, *, group: str = "") -> Raw | None:
        return self.objects.get((qualified(resource, group), namespace, name))

    # -- writing -------------------------------------------------------------------------------------------------

    def create(self, new: Raw, resource: str, *, group: str = "") -> Answer:
        """Store a new object; its status is the server's to say."""
        new.pop("status", None)
        metadata = new.setdefault("metadata", {})
        self._created += 1
        metadata["uid"] = f"00000000-0000-4000-8000-{self._created:012x}"
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._created:05x}"
        request = AdmissionRequest(
            Operation.CREATE, resource, new["kind"], group, metadata.get("namespace", ""), new=new
        )
        if (qualified(resource, group), request.namespace, request.name) in self.objects:
            return Answer(new["kind"], request.name, already_exists(request))
        return self._write(request, "created")

    def update(
        self, new: Raw, resource: str, *, group: str = "", subresource: str = "", verb: str = "configured"
    ) -> Answer:
        """Replace a stored object, or one of its subresources, by `new`."""
        metadata = new["metadata"]
        namespace = metadata.get("namespace", "")
        old = self.get(resource, namespace, metadata["name"], group=group)
        request = AdmissionRequest(Operation.UPDATE, resource, new["kind"], group, namespace, subresource, old, new)
        return self._write(request, verb) if old else Answer(new["kind"], request.name, not_found(request))

    def delete(self, resource: str, namespace: str, name: str, *, group: str = "") -> Answer:
        """Remove an object at once."""
        old = self.get(resource, namespace, name, group=group)
        request = AdmissionRequest(
            Operation.DELETE, resource, (old or {}).get("kind", ""), group, namespace, "", old or _named(name)
        )
        return self._write(request, "deleted") if old else Answer("", name, not_found(request))

    def _write(self, request: AdmissionRequest, verb: str) -> Answer:
        outcome = admit(request, self._facts(request.namespace))
        name = request.name
        if isinstance(outcome, RequestRefused):
            return Answer(request.kind, name, outcome)
        self.ledger.apply(request.namespace, outcome.deltas)
        key = (request.qualified, request.namespace, name)
        charges = self._charges.setdefault(request.namespace, {})
        if request.new is None:
            self.objects.pop(key, None)
            charges.pop(key, None)
        else:
            self.objects[key] = request.new
            charge = _charge(request, request.new)
            if charge is not None:
                charges[key] = charge
        self._compile(request)
        return Answer(request.kind, name, outcome, verb)

    # -- keeping -------------------------------------------------------------------------------------------------

    def _facts(self, namespace: str) -> ClusterFacts:
        return ClusterFacts(
            namespace_phase=self._phase(namespace),
            limits=self._limits.get(namespace, ()),
            priorities=self._priorities,
            quotas=self.ledger.quotas(namespace),
            gates=self.gates,
            nodes={key[2]: NodeRoom.of(raw) for key, raw in self.objects.items() if key[0] == "nodes"},
        )

    def _phase(self, namespace: str) -> str | None:
        raw = self.objects.get(("namespaces", "", namespace))
        if raw is not None:
            return str((raw.get("status") or {}).get("phase", "Active"))
        known = namespace in _ALWAYS_THERE or not self._strict_namespaces
        return "Active" if known or not namespace else None

    def _all(self, resource: str, namespace: str) -> Iterable[Raw]:
        found = ((key, raw) for key, raw in self.objects.items() if key[:2] == (resource, namespace))
        return [raw for _, raw in sorted(found)]

    def _compile(self, request: AdmissionRequest) -> None:
        """Keep what admission reads in step with what is stored."""
        namespace = request.namespace
        match request.qualified:
            case "limitranges":
                self._limits[namespace] = [Limits.of(raw) for raw in self._all("limitranges", namespace)]
            case "priorityclasses.scheduling.k8s.io":
                self._priorities = PriorityClasses.of(self._all("priorityclasses.scheduling.k8s.io", ""))
            case "resourcequotas" if request.new is None:
                self.ledger.drop(namespace, request.name)
            case "resourcequotas" if request.subresource == "":
                quota = Quota.of(request.new or {})
                self.ledger.put(namespace, quota, self._charges.get(namespace, {}).values())
        for quota in self.ledger.quotas(namespace):
            stored = self.objects.get(("resourcequotas", namespace, quota.name))
            if stored is not None:
                stored["status"] = quota.status()


def _charge(request: AdmissionRequest, raw: Raw) -> Charge | None:
    if request.qualified == "pods":
        return charge_pod(PodView.of(raw))
    return charge_of(request.resource, raw, group=request.group)


# -- applying ----------------------------------------------------------------------------------------------------


def three_way(stored: Raw, last: Raw, new: Raw, kind: schema.TypeSchema | None) -> Raw:
    """`stored` with what changed between the last manifest and the new one, as `kubectl apply` merges them."""
    for key in last:
        if key not in new:
            stored.pop(key, None)
    for key, value in new.items():
        field = kind.fields.get(key) if kind else None
        inner = field.shape.object_type if field else None
        have, before = stored.get(key), last.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            stored[key] = three_way(have, before if isinstance(before, dict) else {}, value, inner)
        elif (
            isinstance(value, list) and isinstance(have, list) and field and field.merge_key and "merge" in field.patch
        ):
            stored[key] = _merged_items(have, before or [], value, field.merge_key, inner)
        else:
            stored[key] = value
    return stored


def _merged_items(
    stored: list[Any], last: list[Any], new: list[Any], merge_key: str, kind: schema.TypeSchema | None
) -> list[Any]:
    """Items are the same where they have the same key; those that only the server knows stay at the end."""
    have = {item[merge_key]: item for item in stored}
    before = {item[merge_key]: item for item in last}
    wanted = {item[merge_key]: item for item in new}
    merged = [three_way(have.get(name, {}), before.get(name, {}), item, kind) for name, item in wanted.items()]
    return merged + [item for name, item in have.items() if name not in wanted and name not in before]


# -- reading ---------------------------------------------------------------------------------------------------


def _readable(raw: Raw) -> ApiResource | RequestRefused:
    """The resource that a document is an object of; or what keeps it from being one: its kind, or its fields."""
    api_version, kind = str(raw.get("apiVersion", "")), str(raw.get("kind", ""))
    known = resource_of(api_version, kind)
    if known is None or not known.stored:
        return RequestRefused(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
    found = schema.check(raw, schema.kind(known.group, known.version, kind))
    said = found.error or (f"strict decoding error: {', '.join(found.strict)}" if found.strict else "")
    if not said:
        return known
    return RequestRefused(
        400, "BadRequest", f'{kind} in version "{known.version}" cannot be handled as a {kind}: {said}'
    )


def qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _named(name: str) -> Raw:
    return {"metadata": {"name": name}}


def _about(request: AdmissionRequest) -> Raw:
    details: Raw = {"name": request.name, "kind": request.resource}
    if request.group:
        details["group"] = request.group
    return details


def not_found(request: AdmissionRequest) -> RequestRefused:
    return RequestRefused(404, "NotFound", f'{request.qualified} "{request.name}" not found', _about(request))


def already_exists(request: AdmissionRequest) -> RequestRefused:
    message = f'{request.qualified} "{request.name}" already exists'
    return RequestRefused(409, "AlreadyExists", message, _about(request))
