"""Class quota where nobody owns all writes: exact with many webhooks, by compare-and-set on the quota's status.

A pod that is admitted is *reserved* in the status before it is stored: it is in the usage from then on, and so is a
note of its uid. What holds it together, in this order: read the quota, then (to count) list the pods, then write the
status on the condition that the quota is still what was read. A pod is stored only after its reservation was written,
so whoever counts either sees the pod, or sees its reservation, or is refused the write. Once somebody has seen the pod
stored, the note has done its work and goes with the next write; the usage stays, and nobody lists anything. A
reservation whose pod was never stored, because somebody else refused it, ends after `RESERVED_SECONDS`, longer than an
API server works on a request.

Many pods may come with one write: `settle` lets each of them see what those before it have taken, and what it says
holds for all of them once the write is through, or for none.

Pure: `settle`, `reserve`, `confirm` and `recount` take objects and give the status to write. The counting itself is
`rules.quota`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubeqos.codec import decode_json, encode_json
from kubeqos.model.objects import PodView, ResourceQuotaView
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.rules.qos.classes import ClassKey, Level
from kubeqos.rules.quota.charge import Charge, charge_pod
from kubeqos.rules.quota.ledger import OverQuota, decide
from kubeqos.rules.quota.quota import Quota
from kubeqos.stock.convert import to_fields

Raw = dict[str, Any]
RESERVED_SECONDS = 120.0
_COUNT = re.compile(r"(pod|container):([^=,]+)=([^*,]+)\*(\d+)")


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


@dataclass(frozen=True, slots=True)
class Stored:
    """A pod that was seen stored: what was reserved for it is its own."""

    uid: str


@dataclass(frozen=True, slots=True)
class NotReserved:
    """Nothing is: a pod that is stored was counted since, is none of this quota's, or came past the webhooks."""

    message: str


Wish = Reservation | GivenBack | Stored


@dataclass(frozen=True, slots=True)
class Settled:
    """What each wish is told, why it cannot be or None, and the status to write before that; None: nothing is new.

    Refusals of a quota that others may have written since are worth no more than that copy.
    """

    answers: tuple[str | None, ...]
    status: Raw | None


def settle(
    quota: Raw,
    wishes: Sequence[Wish],
    container_level: Collection[str],
    now: float,
    stored: Collection[str] = (),
) -> Settled | Unknown:
    """Grant what there is room for, one after the other, in one status.

    `stored` are uids of pods that were seen stored: a write takes out what is noted of them, and is not made for that.
    """
    answers: list[str | None] = []
    written = None
    for wish in wishes:
        answer = _granted(quota, wish, container_level, now)
        if isinstance(answer, Unknown):
            return answer
        if isinstance(answer, Write) and not (isinstance(wish, Reservation) and wish.dry_run):
            written = answer.status
            quota = {**quota, "status": written}
        answers.append(answer.message if isinstance(answer, QuotaExceeded | NotReserved) else None)
    if written is not None and stored:
        written = {**written, "reserved": {uid: it for uid, it in written["reserved"].items() if uid not in stored}}
    return Settled(tuple(answers), written)


def _granted(
    quota: Raw, wish: Wish, container_level: Collection[str], now: float
) -> Write | QuotaExceeded | NotReserved | Unknown | NotCounted:
    match wish:
        case Reservation():
            return reserve(quota, wish, container_level, now)
        case GivenBack():
            return release(quota, wish.uid)
        case Stored():
            return confirm(quota, wish.uid)


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
    return Write(_status(quota, compiled, {**reserved, wish.uid: _note(wish.name, delta.classes, now)}))


def release(quota: Raw, uid: str) -> Write | NotCounted:
    """Give back what was reserved for a pod that somebody has refused."""
    status = quota.get("status") or {}
    reserved = dict(status.get("reserved") or {})
    entry = reserved.pop(uid, None)
    if entry is None or status.get("observedGeneration") != _generation(quota):
        return NotCounted()  # counted by now, or to be counted anew
    compiled = _with_usage(quota, status)
    for key, count in _read_note(entry)[1].items():
        if key in compiled.classes_used:
            compiled.classes_used[key] -= count
    return Write(_status(quota, compiled, reserved))


def confirm(quota: Raw, uid: str) -> Write | NotReserved | Unknown:
    """Take out what is noted of a pod that was seen stored; the usage keeps counting it."""
    status = quota.get("status") or {}
    if status.get("observedGeneration") != _generation(quota):
        return Unknown()
    reserved = dict(status.get("reserved") or {})
    if reserved.pop(uid, None) is None:
        return NotReserved(f"nothing is reserved for pod {uid}")
    return Write({**status, "reserved": reserved})


def recount(quota: Raw, pods: Iterable[Raw], now: float, gone: Collection[str] = ()) -> Write | NotCounted:
    """Count the pods that are stored; `pods` were listed after `quota` was read.

    What is reserved for a pod that is among them is no longer needed; what was reserved long ago for one that is not
    has no pod and never will. `gone` are uids of pods that were seen to be deleted.
    """
    compiled = _compiled(quota)
    stored = set()
    for pod in pods:
        stored.add(pod["metadata"].get("uid", ""))
        view = _view(pod)
        charge = charge_pod(view)
        if not view.is_terminal and compiled.matches(charge):
            compiled.apply(compiled.delta(None, charge))
    before = (quota.get("status") or {}).get("reserved") or {}
    kept = {}
    for uid, note in before.items():
        at, classes = _read_note(note)
        if uid in stored or uid in gone or now - at >= RESERVED_SECONDS:
            continue
        kept[uid] = note
        for key, count in classes.items():
            if key in compiled.classes_used:
                compiled.classes_used[key] += count
    status = _status(quota, compiled, kept)
    return NotCounted() if status == (quota.get("status") or {}) else Write(status)


def _compiled(quota: Raw) -> Quota:
    """Without usage. A spec is read once, however many pods come: what was read is remembered by its own text."""
    parts = {name: quota.get(name) for name in ("apiVersion", "kind", "spec")}
    return Quota(_read(encode_json({**parts, "metadata": {"name": quota["metadata"]["name"]}})))


@lru_cache(maxsize=1024)
def _read(text: bytes) -> ResourceQuotaView:
    [native] = to_fields([decode_json(text)])
    return ResourceQuotaView.of(native)


def _view(pod: Raw) -> PodView:
    [native] = to_fields([{**pod, "kind": "Pod"}])  # items of a list do not say their kind
    return PodView.of(native)


def _with_usage(quota: Raw, status: Raw) -> Quota:
    compiled = _compiled(quota)
    for level, lists in (status.get("qosResourcesUsage") or {}).items():
        for one in lists:
            for cls in one.get("classes") or ():
                key = (Level(level), one["name"], cls["name"])
                if key in compiled.classes_used:
                    compiled.classes_used[key] = cls.get("capacity", 0)
    return compiled


def _status(quota: Raw, compiled: Quota, reserved: Mapping[str, str | Raw]) -> Raw:
    told = compiled.status()
    status: Raw = {"observedGeneration": _generation(quota)}
    status |= {name: told[name] for name in ("qosResources", "qosResourcesUsage") if name in told}
    return {**status, "reserved": dict(reserved)}


def _generation(quota: Raw) -> int:
    generation: int = quota["metadata"].get("generation", 0)
    return generation


# -- what is noted of a reservation


def _note(name: str, classes: Mapping[ClassKey, int], now: float) -> str:
    """One line, `2026-01-31T12:00:00Z container:rdt=gold*2 web-0`.

    Not an object: an API server walks a status many times for one write, and pods wait for it. Of seventy notes as
    objects with a schema, a kube-apiserver takes four times as long as of so many lines.
    """
    counts = ",".join(f"{level.value}:{resource}={cls}*{count}" for (level, resource, cls), count in classes.items())
    return f"{timestamp(now)} {counts} {name}"


def _read_note(note: str | Raw) -> tuple[float, Mapping[ClassKey, int]]:
    """When a reservation was made, and of what. Older controllers wrote objects, and may be at it still.

    What cannot be read is over: those who write here are controllers, and a count takes it out.
    """
    if isinstance(note, dict):
        lines = ((Level(one["level"]), one["name"], one["class"], one["count"]) for one in note["classes"])
        return seconds_of(note["at"]) or 0.0, {(level, resource, cls): count for level, resource, cls, count in lines}
    at, _, rest = note.partition(" ")
    found = _COUNT.findall(rest.partition(" ")[0])
    return seconds_of(at) or 0.0, {(Level(level), resource, cls): int(count) for level, resource, cls, count in found}
