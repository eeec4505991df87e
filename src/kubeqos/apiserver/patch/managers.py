"""Who owns which field: metadata.managedFields, and how ordinary writes change it.

Every create, update and patch hands its fields to its manager and takes them from all others; a field that goes away is
nobody's. The API server calls `track` for every write, with the time of the request. Entries of another form of the
object (another version of it) lose what the write changes in that form (`Elsewhere`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from kubeqos.apiserver.patch.fieldset import FieldSet, difference, is_field_set, recursive_difference, union
from kubeqos.apiserver.patch.typed import Comparison, compare, place_of_type
from kubeqos.codec import JsonObject
from kubeqos.model.schema import TypeSchema, normalise

MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
# The server's own fields of an object belong to nobody.
_SYSTEM_FIELDS = frozenset({"apiVersion", "kind"})
_SYSTEM_METADATA = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip


Elsewhere = Callable[[str, JsonObject | None, JsonObject, FieldSet], Comparison | None]
"""What a write changes in another form of its object: (apiVersion, before, after, what the endpoint does not write) →
changes; None where there is no such form. Both objects are in the form that is written."""


def only_form(_version: str, _live: JsonObject | None, _new: JsonObject, _ignored: FieldSet) -> Comparison | None:
    return None


class Writer(msgspec.Struct, frozen=True):
    """Who writes, how and when."""

    manager: str
    api_version: str
    now: str
    subresource: str = ""
    ignored: FieldSet = {}
    """Fields that this endpoint does not write, such as status on the main resource."""
    elsewhere: Elsewhere = only_form

    def changes_in(self, version: str, own: Comparison, live: JsonObject | None, new: JsonObject) -> Comparison | None:
        """What the write changes as an entry of this version sees it; `own` is what it changes in its own."""
        return own if version == self.api_version else self.elsewhere(version, live, new, self.ignored)


class ManagedFieldsEntry(msgspec.Struct):
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    fields: FieldSet
    time: str | None = None
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two entries the same manager. An applier is one manager in all versions."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.manager, self.operation, version, self.subresource

    def __str__(self) -> str:
        """The manager as conflicts name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


def track(live: JsonObject | None, new: JsonObject, schema: TypeSchema, writer: Writer) -> list[JsonObject]:
    """managedFields of `new`, which is about to replace `live` (None: to be created).

    Kubernetes tracks a write after defaulting and before admission, so what admission adds belongs to nobody.
    """
    entries = _entries_to_start_from(live, new, writer)
    if entries is None:
        return []
    changes = changes_between(live, new, schema, writer.ignored)
    if entries:
        entries = take_fields(entries, lambda version: writer.changes_in(version, changes, live, new))
    gained = union(changes.modified, changes.added)
    if gained:
        own = ManagedFieldsEntry(writer.manager, "Update", writer.api_version, gained, writer.now, writer.subresource)
        for entry in entries:
            if entry.identity == own.identity:
                own.fields = union(gained, entry.fields)
        entries = [entry for entry in entries if entry.identity != own.identity] + [own]
    return encode(_capped(entries))


def changes_between(
    live: JsonObject | None, new: JsonObject, schema: TypeSchema, ignored: FieldSet | None = None
) -> Comparison:
    """What a write changes, without the server's own fields and those that the endpoint does not write."""
    before = zero_object(schema) if live is None else live
    left_out = _SYSTEM_FIELDS | {step[2:] for step, below in (ignored or {}).items() if not below}
    changes = compare(place_of_type(schema), owned(before, left_out), owned(new, left_out))
    if ignored and any(ignored.values()):  # whole fields were left out above
        for name in Comparison.__slots__:
            setattr(changes, name, recursive_difference(getattr(changes, name), ignored))
    return changes


def owned(value: JsonObject, left_out: frozenset[str] = _SYSTEM_FIELDS) -> JsonObject:
    """The part of an object that somebody can own."""
    out = {key: item for key, item in value.items() if key not in left_out}
    if isinstance(metadata := value.get("metadata"), dict):
        out["metadata"] = {key: item for key, item in metadata.items() if key not in _SYSTEM_METADATA}
    return out


def take_fields(
    entries: list[ManagedFieldsEntry], changes_in: Callable[[str], Comparison | None]
) -> list[ManagedFieldsEntry]:
    """The entries without what was changed by somebody else or went away; empty entries vanish."""
    lost: dict[str, FieldSet] = {}
    out = []
    for entry in entries:
        version = entry.api_version
        if version not in lost:
            changes = changes_in(version)
            lost[version] = union(union(changes.modified, changes.added), changes.removed) if changes else {}
        left = difference(entry.fields, lost[version])
        if left:
            out.append(msgspec.structs.replace(entry, fields=left))
    return out


def decode(managed_fields: Any) -> list[ManagedFieldsEntry]:
    """Read managedFields as they are stored, or as a client rewrote them. Nothing is read from a list with an error."""
    out = []
    for raw in managed_fields or []:
        if raw.get("fieldsType") != "FieldsV1" or raw.get("operation") not in ("Apply", "Update"):
            return []
        out.append(
            ManagedFieldsEntry(
                manager=raw.get("manager", ""),
                operation=raw["operation"],
                api_version=raw.get("apiVersion", ""),
                fields=raw.get("fieldsV1", {}),
                time=raw.get("time"),
                subresource=raw.get("subresource", ""),
            )
        )
    return out


def encode(entries: list[ManagedFieldsEntry]) -> list[JsonObject]:
    """managedFields in the order of Kubernetes: appliers first, then by time and name."""
    entries = sorted(entries, key=lambda e: (e.operation, e.time or "", e.manager, e.api_version, e.subresource))
    return [_encode(entry) for entry in entries]


def _encode(entry: ManagedFieldsEntry) -> JsonObject:
    out: JsonObject = {"manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version}
    if entry.time:
        out["time"] = entry.time
    out["fieldsType"] = "FieldsV1"
    out["fieldsV1"] = entry.fields
    if entry.subresource:
        out["subresource"] = entry.subresource
    return out


def _entries_to_start_from(live: JsonObject | None, new: JsonObject, writer: Writer) -> list[ManagedFieldsEntry] | None:
    """A client may rewrite managedFields; leaving them out means no change.

    None if the object is not tracked: it exists and nobody ever applied or created it here, or the client resets the
    fields with an empty list or one empty entry.
    """
    given = new.get("metadata", {}).get("managedFields")
    stored = live.get("metadata", {}).get("managedFields") if live else None
    if not writer.subresource and given is not None and given != stored:
        if given in ([], [{}]):
            return None if live is not None else []
        # Only what a client sends is looked at closely; what is stored went through here.
        if all(is_field_set(entry.get("fieldsV1", {})) for entry in given) and (entries := decode(given)):
            return entries
    if live is None:
        return []
    return decode(stored) if stored else None


def _capped(entries: list[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
    """No more than ten updaters are told apart; the oldest are added up per API version."""
    updaters = [entry for entry in entries if entry.operation == "Update"]
    excess = len(updaters) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return entries
    updaters.sort(key=lambda entry: (entry.time or "", entry.identity))
    buckets: dict[str, ManagedFieldsEntry] = {}
    gone: set[tuple[str, str, str, str]] = set()
    for entry in updaters:
        bucket = buckets.get(entry.api_version)
        if bucket is None:
            buckets[entry.api_version] = msgspec.structs.replace(entry)
            continue
        if excess == 0:
            break
        gone |= {entry.identity, bucket.identity}
        bucket.manager, bucket.subresource, bucket.time = ANCIENT, "", entry.time
        bucket.fields = union(bucket.fields, entry.fields)
        excess -= 1
    kept = [entry for entry in entries if entry.identity not in gone]
    return kept + [bucket for bucket in buckets.values() if bucket.manager == ANCIENT]


@cache
def zero_object(schema: TypeSchema) -> JsonObject:
    """An object of a type with nothing set, as it is before it is created."""
    return normalise({}, schema)
