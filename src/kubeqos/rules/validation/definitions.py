"""Validation of CustomResourceDefinitions: names, versions, and schemas that say for every field what it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kubeqos.model import names
from kubeqos.model.kinds import RESOURCES
from kubeqos.rules.customresources import rules_left_out
from kubeqos.rules.fielderror import forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_immutable, complain
from kubeqos.rules.validation.meta import check_meta, meta_of

_SCOPES = ("Cluster", "Namespaced")
_BUILT_IN = frozenset(each.group for each in RESOURCES)


def check_definition(out: Errors, raw: Raw) -> None:
    spec = raw.get("spec") or NO_MAP
    named, group = spec.get("names") or NO_MAP, spec.get("group", "")
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=False)
    wanted = f"{named.get('plural', '')}.{group}"
    if meta_of(raw).get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        out.append(invalid("metadata.name", meta_of(raw).get("name", ""), why))
    if not group:
        out.append(required("spec.group"))
    elif group in _BUILT_IN:
        out.append(forbidden("spec.group", f"{group} is built in: kinds cannot be added to it"))
    else:
        complain(out, "spec.group", group, names.dns_subdomain(group))
    if spec.get("scope") not in _SCOPES:
        out.append(not_supported("spec.scope", spec.get("scope", ""), _SCOPES))
    for field in ("plural", "kind"):
        if not named.get(field):
            out.append(required(f"spec.names.{field}"))
        else:
            complain(out, f"spec.names.{field}", named[field], names.dns_1035_label(named[field].lower()))
    strategy = (spec.get("conversion") or NO_MAP).get("strategy", "None")
    if strategy != "None":
        out.append(not_supported("spec.conversion.strategy", strategy, ("None",)))
    _check_versions(out, spec.get("versions") or NO_LIST)


def _check_versions(out: Errors, versions: Sequence[Raw]) -> None:
    if not versions:
        out.append(required("spec.versions", "must have at least one version"))
        return
    if sum(bool(one.get("storage")) for one in versions) != 1:
        out.append(invalid("spec.versions", len(versions), "must have exactly one version marked as storage version"))
    seen: set[str] = set()
    for index, one in enumerate(versions):
        path, name = f"spec.versions[{index}]", one.get("name", "")
        complain(out, f"{path}.name", name, names.dns_1035_label(name))
        if name in seen:
            out.append(invalid(f"{path}.name", name, "must have no duplicates"))
        seen.add(name)
        schema = (one.get("schema") or NO_MAP).get("openAPIV3Schema")
        if schema is None:
            out.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
            continue
        where = f"{path}.schema.openAPIV3Schema"
        if schema.get("type") != "object":
            out.append(invalid(f"{where}.type", schema.get("type", ""), "must be object at the root"))
        _check_structural(out, where, schema)
        for number, column in enumerate(one.get("additionalPrinterColumns") or NO_LIST):
            if not str(column.get("jsonPath", "")).startswith("."):
                why = "must be a simple json path starting with ."
                out.append(invalid(f"{path}.additionalPrinterColumns[{number}].jsonPath", column.get("jsonPath"), why))


def _check_structural(out: Errors, path: str, schema: Any) -> None:
    """Every field has a type, or says that it may be anything."""
    if not isinstance(schema, dict):
        return
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type") and not free:
        out.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if schema.get("type") == "array" and "items" not in schema:
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


def check_definition_change(out: Errors, raw: Raw, old: Raw) -> None:
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    for field in ("group", "scope"):
        check_immutable(out, f"spec.{field}", spec.get(field), before.get(field))
    for field in ("plural", "kind"):
        new, known = ((one.get("names") or NO_MAP).get(field) for one in (spec, before))
        check_immutable(out, f"spec.names.{field}", new, known)


def definition_warnings(raw: Raw) -> list[str]:
    """What a definition asks for and does not get."""
    told = "x-kubernetes-validations: CEL rules are not evaluated here"
    return [
        f"version {one.get('name')}: {path}.{told}"
        for one in (raw.get("spec") or NO_MAP).get("versions") or NO_LIST
        for path in rules_left_out((one.get("schema") or NO_MAP).get("openAPIV3Schema"))
    ]
