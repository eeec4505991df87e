"""Server-side apply: a client says what it wants, the server works out what that changes and who is in the way.

A configuration is merged into the live object. Fields that its manager applied last time and leaves out now are
removed, unless somebody else owns them. Changing a field of another manager is a conflict unless forced. See
"Server-Side Apply" in the Kubernetes documentation.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeqos.apiserver.patch.errors import PatchError, bad_request
from kubeqos.apiserver.patch.fieldset import (
    FieldSet,
    difference,
    intersection,
    leaves,
    recursive_difference,
    union,
)
from kubeqos.apiserver.patch.managers import (
    BEFORE_FIRST_APPLY,
    ManagedFieldsEntry,
    Writer,
    changes_between,
    decode,
    encode,
    owned,
    take_fields,
    zero_object,
)
from kubeqos.apiserver.patch.typed import (
    Comparison,
    Place,
    fields_set_by,
    merge,
    place_of_type,
    remove,
    with_containers,
)
from kubeqos.apiserver.patch.typed_errors import typed_errors
from kubeqos.codec import JsonObject
from kubeqos.model.schema import TypeSchema, check, kinds, normalise


class Applied(msgspec.Struct):
    """The object after an apply, its managedFields, and whether anything but the managers changed."""

    object: JsonObject
    managed_fields: list[JsonObject]
    changed: bool


def apply_configuration(
    live: JsonObject | None, config: JsonObject, schema: TypeSchema, writer: Writer, *, force: bool = False
) -> Applied:
    """Apply a configuration to an object, or create the object from it when `live` is None."""
    _check_configuration(config, schema, writer)
    place = place_of_type(schema)
    base = zero_object(schema) if live is None else {**live, "metadata": _without_managers(live)}
    entries = _entries(live, schema, writer)
    mine = ManagedFieldsEntry(writer.manager, "Apply", writer.api_version, {}, writer.now, writer.subresource)
    mine.fields = recursive_difference(_fields_applied(place, config), writer.ignored)
    last = next((entry for entry in entries if entry.identity == mine.identity), None)
    others = [entry for entry in entries if entry is not last]
    merged: JsonObject = merge(place, base, config)
    if last and last.fields:
        # The name belongs to the server in the end, but what this very configuration says is not pruned with the rest.
        said = fields_set_by(place, config)
        merged = _prune(place, merged, last.fields, [said, *(entry.fields for entry in others)])
    if problem := check(merged, schema).error:  # quantities and times have no type in structured merge
        raise bad_request(problem)
    result = normalise(merged, schema)
    changes = changes_between(None if live is None else base, result, schema, writer.ignored)
    emptied = intersection(changes.removed, mine.fields)  # null, 0 or "" is a change, and no field in the end
    changes.modified = union(changes.modified, emptied)
    # What was pruned empty stays its owner's, although an object does not show it.
    left = difference(intersection(changes.removed, fields_set_by(place, merged)), mine.fields)
    changes.removed = difference(changes.removed, left)

    def changes_in(version: str) -> Comparison | None:
        return writer.changes_in(version, changes, None if live is None else base, result)

    if not force:
        _refuse_conflicts(others, changes_in)
    others = take_fields(others, changes_in)
    changed = live is None or merged != base or result != base
    if not changed:  # a time says when a manager last changed the object
        mine.time = last.time if last else None
    mine.fields = difference(mine.fields, difference(changes.removed, emptied))
    entries = [*others, mine] if mine.fields else others
    return Applied(result, encode(entries), changed)


def _check_configuration(config: JsonObject, schema: TypeSchema, writer: Writer) -> None:
    version, kind = config.get("apiVersion", ""), config.get("kind", "")
    group, _, short = str(version).rpartition("/")
    if kinds().get((group, short, str(kind)), f"{version}.{kind}") != schema.key:
        raise bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
    metadata = config.get("metadata") or {}
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    try:
        problem = typed_errors(config, schema)
    except RecursionError as error:
        raise bad_request("the configuration is nested deeper than any object can be") from error
    if problem:
        known = metadata if isinstance(metadata, dict) else {}
        where = f"{known.get('namespace', '')}/{known.get('name', '')}; {group}/{short}, Kind={kind}"
        raise bad_request(f"failed to create typed patch object ({where}): {problem}")


def _fields_applied(place: Place, config: JsonObject) -> FieldSet:
    fields = fields_set_by(place, owned(config))
    if fields.get("f:metadata") == {}:  # it held nothing but what belongs to the server
        del fields["f:metadata"]
    return fields


def _entries(live: JsonObject | None, schema: TypeSchema, writer: Writer) -> list[ManagedFieldsEntry]:
    """The managers so far. What an object held before anybody was tracked belongs to a manager of its own."""
    if live is None:
        return []
    if entries := decode(live.get("metadata", {}).get("managedFields")):
        return entries
    changes = changes_between(None, live, schema, writer.ignored)
    fields = union(changes.added, changes.modified)  # a list that is always written is null in an empty object
    return [ManagedFieldsEntry(BEFORE_FIRST_APPLY, "Update", writer.api_version, fields, writer.now)] if fields else []


def _without_managers(live: JsonObject) -> JsonObject:
    return {key: value for key, value in live.get("metadata", {}).items() if key != "managedFields"}


def _prune(place: Place, merged: JsonObject, last: FieldSet, wanted: list[FieldSet]) -> JsonObject:
    """Remove what the manager applied last time and nobody owns now."""
    pruned = remove(place, merged, with_containers(place, last))
    everything = with_containers(place, fields_set_by(place, merged))
    kept: FieldSet = {}
    for fields in wanted:
        kept = union(kept, with_containers(place, fields))
    left = with_containers(place, fields_set_by(place, pruned))
    with_owned = remove(place, merged, difference(everything, union(left, kept)))
    # Items that were never applied by this manager stay, even if their container was removed above.
    left = with_containers(place, fields_set_by(place, with_owned))
    gone = intersection(difference(everything, left), with_containers(place, last))
    result: JsonObject = remove(place, merged, gone)
    return result


def _refuse_conflicts(others: list[ManagedFieldsEntry], changes_in: Callable[[str], Comparison | None]) -> None:
    seen = {version: changes_in(version) for version in {entry.api_version for entry in others}}
    touched = {version: union(one.modified, one.added) for version, one in seen.items() if one is not None}
    conflicts = [
        (entry, path)
        for entry in sorted(others, key=lambda entry: entry.identity)
        if entry.api_version in touched
        for path in leaves(intersection(entry.fields, touched[entry.api_version]))
    ]
    if not conflicts:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {entry}", "field": path}
        for entry, path in conflicts
    ]
    if len(conflicts) == 1:
        entry, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {entry}: {path}"
    else:
        lines: list[str] = []
        for name in dict.fromkeys(str(entry) for entry, _ in conflicts):
            lines += [f"conflicts with {name}:", *(f"- {path}" for owner, path in conflicts if str(owner) == name)]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    raise PatchError(409, "Conflict", message, causes)
