"""Validation of CustomResourceDefinitions: names, versions, and schemas that say for every field what it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kubeqos.model import names
from kubeqos.model.kinds import RESOURCES
from kubeqos.rules.customresources import rules_left_out
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required, too_many
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_choice,
    check_immutable,
    complain,
    go_struct,
)
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of

_SCOPES = ("Cluster", "Namespaced")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_SELECTABLE_TYPES = ("boolean", "integer", "string")
_MOST_SELECTABLE = 8
_INTERNAL = (
    "name", "served", "storage", "deprecated", "deprecationWarning", "schema", "subresources",
    "additionalPrinterColumns", "selectableFields",
)  # fmt: skip
_BUILT_IN = frozenset(each.group for each in RESOURCES)


def check_definition(out: Errors, raw: Raw) -> None:
    spec = raw.get("spec") or NO_MAP
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=False)
    wanted = f"{(spec.get('names') or NO_MAP).get('plural', '')}.{spec.get('group', '')}"
    if (name := meta_of(raw).get("name")) and name != wanted:
        out.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    _check_spec(out, spec)
    _check_stored(out, spec.get("versions") or NO_LIST, NO_LIST)


def _check_spec(out: Errors, spec: Raw) -> None:
    named, group = spec.get("names") or NO_MAP, spec.get("group", "")
    if not group:
        out.append(required("spec.group"))
    elif group in _BUILT_IN:
        out.append(forbidden("spec.group", f"{group} is built in: kinds cannot be added to it"))
    else:
        complain(out, "spec.group", group, names.dns_subdomain(group))
    check_choice(out, "spec.scope", spec.get("scope", ""), _SCOPES)
    _check_names(out, "spec.names", named)
    check_choice(out, "spec.conversion.strategy", (spec.get("conversion") or NO_MAP).get("strategy", ""), ("None",))
    _check_versions(out, spec.get("versions"))


def _check_names(out: Errors, path: str, named: Raw) -> None:
    for field in ("plural", "singular", "kind", "listKind"):
        if not named.get(field):
            out.append(required(f"{path}.{field}"))
        else:
            mixed = "may have mixed case, but should otherwise match: " if field in ("kind", "listKind") else ""
            wrong = names.dns_1035_label(named[field].lower() if mixed else named[field])
            complain(out, f"{path}.{field}", named[field], [f"{mixed}{','.join(wrong)}"] if wrong else ())
    for field in ("shortNames", "categories"):
        for index, name in enumerate(named.get(field) or NO_LIST):
            complain(out, f"{path}.{field}[{index}]", name, names.dns_1035_label(name))


def _check_versions(out: Errors, found: Sequence[Raw] | None) -> None:
    versions = found or NO_LIST
    told = None if found is None else [_internal(one) for one in versions]
    if sum(bool(one.get("storage")) for one in versions) != 1:
        out.append(invalid("spec.versions", told, "must have exactly one version marked as storage version"))
    if len({one.get("name", "") for one in versions}) < len(versions):
        out.append(invalid("spec.versions", told, "must contain unique version names"))
    for index, one in enumerate(versions):
        name = one.get("name", "")
        for path in (f"spec.versions[{index}].name", *(["spec.version"] if index == 0 and name else [])):
            complain(out, path, name, names.dns_1035_label(name))
        where = _home(versions, index, "schema", "validation")
        schema = (one.get("schema") or NO_MAP).get("openAPIV3Schema")
        if schema is None:
            out.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        else:
            below = one.get("subresources") or NO_MAP
            _check_schema(out, f"{where}.openAPIV3Schema", schema, status=below.get("status") is not None)
        where = _home(versions, index, "subresources", "subresources")
        if (scale := (one.get("subresources") or NO_MAP).get("scale")) is not None:
            _check_scale(out, f"{where}.scale", scale)
        where = _home(versions, index, "additionalPrinterColumns", "additionalPrinterColumns")
        for number, column in enumerate(one.get("additionalPrinterColumns") or NO_LIST):
            _check_column(out, f"{where}[{number}]", column)
        where = _home(versions, index, "selectableFields", "selectableFields")
        _check_selectable(out, where, one.get("selectableFields") or NO_LIST, schema or NO_MAP)


def _internal(version: Raw) -> Raw:
    """A version as Kubernetes prints it: what all versions have in common is not kept in each of them."""
    flags = {field: bool(version.get(field)) for field in ("served", "storage", "deprecated")}
    shown = go_struct({**version, **flags}, _INTERNAL)
    return {**shown, "Name": version.get("name", ""), "Schema": None, "Subresources": None}


def _home(versions: Sequence[Raw], index: int, field: str, shared: str) -> str:
    """Where Kubernetes looks at a part of a version: what all versions have in common is kept once there."""
    if all(one.get(field) == versions[0].get(field) for one in versions):
        return f"spec.{shared}"
    return f"spec.versions[{index}].{field}"


def _check_scale(out: Errors, path: str, scale: Raw) -> None:
    for field, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        where = scale.get(field, "")
        if not where:
            out.append(required(f"{path}.{field}"))
        elif not where.startswith("."):
            out.append(invalid(f"{path}.{field}", where, "must be a simple json path starting with ."))
        elif not where.startswith(root):
            out.append(invalid(f"{path}.{field}", where, f"should be a json path under {root[:-1]}"))
    where = scale.get("labelSelectorPath") or ""
    if where and not where.startswith("."):
        out.append(invalid(f"{path}.labelSelectorPath", where, "must be a simple json path starting with ."))
    elif where and not where.startswith((".spec.", ".status.")):
        out.append(invalid(f"{path}.labelSelectorPath", where, "should be a json path under either .spec or .status"))


def _check_column(out: Errors, path: str, column: Raw) -> None:
    if not column.get("name"):
        out.append(required(f"{path}.name"))
    kind, where = column.get("type", ""), column.get("jsonPath", "")
    if not kind:
        out.append(required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}"))
    elif kind not in _COLUMN_TYPES:
        out.append(invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
    if not where:
        out.append(required(f"{path}.JSONPath"))
    elif not where.startswith("."):
        out.append(invalid(f"{path}.JSONPath", where, "must be a simple json path starting with ."))


def _check_selectable(out: Errors, path: str, fields: Sequence[Raw], schema: Raw) -> None:
    """Fields by which objects may be selected: each is one string, number or flag that the schema knows."""
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where, told = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        if not told:
            out.append(required(where))
            continue
        found, why = _field_schema(schema, told)
        if why:
            out.append(invalid(where, told, f"is an invalid path: {why}"))
            continue
        if told.startswith(".metadata."):
            out.append(invalid(where, told, "must not point to fields in metadata"))
        if found.get("type") not in _SELECTABLE_TYPES:
            kinds = "must point to a field of type string, boolean or integer."
            out.append(invalid(where, told, f"{kinds} Enum string fields and strings with formats are allowed."))
        if told in seen:
            out.append(duplicate(where, told))
        seen.add(told)
    if len(seen) > _MOST_SELECTABLE:
        out.append(too_many(path, len(seen), _MOST_SELECTABLE))


def _field_schema(schema: Raw, path: str) -> tuple[Raw, str]:
    """The schema of what a plain path names, or why it names nothing."""
    if "[" in path or not path.startswith("."):
        return NO_MAP, "array notation is not allowed" if "[" in path else f"expected [ or . but got: {path}"
    found: Any = schema
    for step in path.split(".")[1:]:
        found = (found.get("properties") or NO_MAP).get(step) or (found.get("additionalProperties") if step else None)
        if not isinstance(found, dict):
            return NO_MAP, "does not refer to a valid field" if step else "unexpected end of JSON path"
    return found, ""


def _check_schema(out: Errors, path: str, schema: Raw, *, status: bool) -> None:
    kind = schema.get("type", "")
    if not kind:
        out.append(required(f"{path}.type", "must not be empty at the root"))
    elif kind != "object":
        out.append(invalid(f"{path}.type", kind, "must be object at the root"))
        if status:
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            out.append(invalid(f"{path}.type", kind, why))
    _check_structural(out, path, schema if kind else {**schema, "type": "object"})


def _check_structural(out: Errors, path: str, schema: Any) -> None:
    """Every field has a type, or says that it may be anything."""
    if not isinstance(schema, dict):
        return
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    kind = schema.get("type")
    if not kind and not free:
        out.append(required(f"{path}.type", "must not be empty for specified object fields"))
    elif kind and kind not in _TYPES:
        out.append(not_supported(f"{path}.type", kind, _TYPES))
    if kind == "array" and "items" not in schema:
        out.append(required(f"{path}.items", "must be specified"))
    if pattern := schema.get("pattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            out.append(invalid(f"{path}.pattern", pattern, f"must be a valid regular expression: {error}"))
    for name, inner in (schema.get("properties") or NO_MAP).items():
        if path.endswith("openAPIV3Schema") and name == "metadata":
            continue
        _check_structural(out, f"{path}.properties[{name}]", inner)
    for field in ("items", "additionalProperties"):
        if isinstance(schema.get(field), dict):
            _check_structural(out, f"{path}.{field}", schema[field])


def check_definition_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    for field in ("group", "scope"):
        check_immutable(out, f"spec.{field}", spec.get(field, ""), before.get(field))
    for field in ("plural", "kind"):
        new, known = ((one.get("names") or NO_MAP).get(field, "") for one in (spec, before))
        check_immutable(out, f"spec.names.{field}", new, known)
    _check_spec(out, spec)
    _check_stored(out, spec.get("versions") or NO_LIST, (old.get("status") or NO_MAP).get("storedVersions") or NO_LIST)


def _check_stored(out: Errors, versions: Sequence[Raw], stored: Sequence[str]) -> None:
    """Objects may be kept in every version that was ever stored, so each of them stays."""
    kept = [one.get("name", "") for one in versions if one.get("storage")]
    told = [*stored, *(name for name in kept[:1] if name not in stored)]
    if not told:
        out.append(invalid("status.storedVersions", [], "must have at least one stored version"))
        return
    left = list(told)
    for one in versions:
        name = one.get("name", "")
        if name in left:
            left.remove(name)
        elif one.get("storage"):
            out.append(invalid("status.storedVersions", told, f"must have the storage version {name}"))
    for index, name in enumerate(stored):
        if name in left:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
                f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
                " status.storedVersions"
            )
            out.append(invalid(f"status.storedVersions[{index}]", name, why))


def definition_warnings(raw: Raw) -> list[str]:
    """What a definition asks for and does not get."""
    told = "x-kubernetes-validations: CEL rules are not evaluated here"
    return [
        f"version {one.get('name')}: {path}.{told}"
        for one in (raw.get("spec") or NO_MAP).get("versions") or NO_LIST
        for path in rules_left_out((one.get("schema") or NO_MAP).get("openAPIV3Schema"))
    ]
