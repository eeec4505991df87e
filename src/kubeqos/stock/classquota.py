"""Class quota where nobody owns all writes: exact with many webhooks, by compare-and-set on the quota's status.

A pod that is admitted is *reserved* in the status before it is stored; a count of the stored pods then takes its place.
What holds it together, in this order: read the quota, then (to count) list the pods, then write the status on the
condition that the quota is still what was read. A pod is stored only after its reservation was written, so whoever
counts either sees the pod, or sees its reservation, or is refused the write. A reservation whose pod was never stored,
because somebody else refused it, ends after `RESERVED_SECONDS`, longer than an API server works on a request.

Many pods may come with one write: `settle` lets each of them see what those before it have taken, and what it says
holds for all of them once the write is through, or for none.

Pure: `settle`, `reserve` and `recount` take objects and give the status to write. The counting itself is `rules.quota`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.model.objects import PodView
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.rules.qos.classes import ClassKey, Level
from kubeqos.rules.quota.charge import Charge, charge_pod
from kubeqos.rules.quota.ledger import OverQuota, decide
from kubeqos.rules.quota.quota import Quota
from kubeqos.stock.convert import to_fields

Raw = dict[str, Any]
RESERVED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """The quota was changed or never counted: count first, then ask again."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """The pod would use more than the quota allows."""

    message: str


@dataclass(frozen=True, slots=True)
class NotCounted:
    """Nothing to write: the quota has no say about this pod, or has reserved for it already."""


@dataclass(frozen=True, slots=True)
class Write:
    """The status to write, on the condition that the object is still the one that was read."""

    status: Raw


@dataclass(frozen=True, slots=True)
class Reservation:
    """A pod that is about to be stored, as quotas see it. Of a dry run nothing is kept."""

    uid: str
    name: str
    charge: Charge
    dry_run: bool = False

    @staticmethod
    def of(pod: Raw, *, dry_run: bool = False) -> Reservation:
        metadata = pod["metadata"]
        return Reservation(metadata.get("uid", ""), metadata.get("name", ""), charge_pod(_view(pod)), dry_run)


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What was reserved for a pod that somebody has refused."""

    uid: str


Wish = Reservation | GivenBack


@dataclass(frozen=True, slots=True)
class Settled:
    """What each wish is told, a refusal or None, and the status to write before that; None: nothing is new.

    Refusals of a quota that others may have written since are worth no more than that copy.
    """

    answers: tuple[str | None, ...]
    status: Raw | None


def settle(quota: Raw, wishes: Sequence[Wish], container_level: Collection[str], now: float) -> Settled | Unknown:
    """Grant what there is room for, one after the other, in one status."""
    answers: list[str | None] = []
    written = None
    for wish in wishes:
        if isinstance(wish, Reservation):
            answer = reserve(quota, wish, container_level, now)
        else:
            answer = release(quota, wish.uid)
        if isinstance(answer, Unknown):
            return answer
        if isinstance(answer, Write) and not (isinstance(wish, Reservation) and wish.dry_run):
            written = answer.status
            quota = {**quota, "status": written}
        answers.append(answer.message if isinstance(answer, QuotaExceeded) else None)
    return Settled(tuple(answers), written)


def reserve(
    quota: Raw, wish: Reservation, container_level: Collection[str], now: float
) -> Write | QuotaExceeded | Unknown | NotCounted:
    """Reserve what a pod that is about to be stored will use of this quota."""
    status = quota.get("status") or {}
    if status.get("observedGeneration") != _generation(quota):
        return Unknown()
    reserved = status.get("reserved") or {}
    if wish.uid in reserved:
        return NotCounted()
    compiled = _with_usage(quota, status)
    answer = decide([compiled], None, wish.charge, container_level=container_level)
    if isinstance(answer, OverQuota):
        return QuotaExceeded(answer.message)
    delta = answer.deltas.get(compiled.name)
    if delta is None or not delta.classes:
        return NotCounted()
    compiled.apply(delta)
    entry = {
        "name": wish.name,
        "at": timestamp(now),
        "classes": [_line(key, count) for key, count in delta.classes.items()],
    }
    return Write(_status(quota, compiled, {**reserved, wish.uid: entry}))


def release(quota: Raw, uid: str) -> Write | NotCounted:
    """Give back what was reserved for a pod that somebody has refused."""
    status = quota.get("status") or {}
    reserved = dict(status.get("reserved") or {})
    entry = reserved.pop(uid, None)
    if entry is None or status.get("observedGeneration") != _generation(quota):
        return NotCounted()  # counted by now, or to be counted anew
    compiled = _with_usage(quota, status)
    for line in entry["classes"]:
        key = (Level(line["level"]), line["name"], line["class"])
        if key in compiled.classes_used:
            compiled.classes_used[key] -= line["count"]
    return Write(_status(quota, compiled, reserved))


def recount(quota: Raw, pods: Iterable[Raw], now: float, gone: Collection[str] = ()) -> Write | NotCounted:
    """Count the pods that are stored; `pods` were listed after `quota` was read.

    What is reserved for a pod that is among them is no longer needed; what was reserved long ago for one that is not
    has no pod and never will. `gone` are uids of pods that were seen to be deleted.
    """
    compiled = Quota.of(_native(quota))
    stored = set()
    for pod in pods:
        stored.add(pod["metadata"].get("uid", ""))
        view = _view(pod)
        charge = charge_pod(view)
        if not view.is_terminal and compiled.matches(charge):
            compiled.apply(compiled.delta(None, charge))
    before = (quota.get("status") or {}).get("reserved") or {}
    kept = {
        uid: entry
        for uid, entry in before.items()
        if uid not in stored and uid not in gone and now - (seconds_of(entry["at"]) or 0.0) < RESERVED_SECONDS
    }
    for entry in kept.values():
        for line in entry["classes"]:
            key = (Level(line["level"]), line["name"], line["class"])
            if key in compiled.classes_used:
                compiled.classes_used[key] += line["count"]
    status = _status(quota, compiled, kept)
    return NotCounted() if status == (quota.get("status") or {}) else Write(status)


def _native(quota: Raw) -> Raw:
    """Only what is compiled: a status with a hundred reservations would be copied for each pod."""
    metadata = {"name": quota["metadata"]["name"]}
    [native] = to_fields([{**{name: quota.get(name) for name in ("apiVersion", "kind", "spec")}, "metadata": metadata}])
    return native


def _view(pod: Raw) -> PodView:
    [native] = to_fields([{**pod, "kind": "Pod"}])  # items of a list do not say their kind
    return PodView.of(native)


def _with_usage(quota: Raw, status: Raw) -> Quota:
    compiled = Quota.of(_native(quota))
    for level, lists in (status.get("qosResourcesUsage") or {}).items():
        for one in lists:
            for cls in one.get("classes") or ():
                key = (Level(level), one["name"], cls["name"])
                if key in compiled.classes_used:
                    compiled.classes_used[key] = cls.get("capacity", 0)
    return compiled


def _status(quota: Raw, compiled: Quota, reserved: Mapping[str, Raw]) -> Raw:
    told = compiled.status()
    status: Raw = {"observedGeneration": _generation(quota)}
    status |= {name: told[name] for name in ("qosResources", "qosResourcesUsage") if name in told}
    return {**status, "reserved": dict(reserved)}


def _generation(quota: Raw) -> int:
    generation: int = quota["metadata"].get("generation", 0)
    return generation


def _line(key: ClassKey, count: int) -> Raw:
    level, resource, cls = key
    return {"level": level.value, "name": resource, "class": cls, "count": count}
