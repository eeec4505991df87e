"""Kinds that CustomResourceDefinitions add to a server: what a stored definition means for serving its objects.

`Catalog` belongs to one server; admission tells it of definitions as they come and go, routing and discovery ask it for
what the table of built-in kinds does not have. Versions of one kind are views of the one that is stored: only their
`apiVersion` differs (conversion strategy None).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kubeqos.apiserver.present.columns import AGE, NAME, Cell, Column
from kubeqos.apiserver.registry.kinds import GROUPS, KINDS, SCALE, STATUS, Kind, at
from kubeqos.apiserver.registry.lifecycle import Lifecycle
from kubeqos.apiserver.registry.views import View
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.schema import TypeSchema, structural_type
from kubeqos.model.timestamps import age_since, timestamp
from kubeqos.rules import conforming, customresources, embedded
from kubeqos.rules.fielderror import FieldError

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([\w.]+)==\"([^\"]*)\"\)\]|\[\*\]")


@dataclass(frozen=True)
class Definition:
    """One version of a kind, as its definition describes it."""

    schema: JsonObject
    type_schema: TypeSchema
    scale: JsonObject | None = None

    def complete(self, obj: JsonObject) -> list[str]:
        """Prune what is not known, fill in what has a default; the paths of what was pruned."""
        if self._conforms(obj):
            return []
        gone = customresources.prune(obj, self.schema)
        gone += embedded.prune_metadata(obj, self.schema)
        customresources.apply_defaults(obj, self.schema)
        return gone

    def judge(self, obj: JsonObject) -> list[FieldError]:
        """Complete an object, and what is wrong with it then."""
        if self._conforms(obj):
            return []
        self.complete(obj)
        return [*embedded.problems(obj, self.schema), *customresources.validate(obj, self.schema)]

    def malformed(self, obj: JsonObject) -> str:
        """What of an object within an object cannot be read, if anything."""
        return "" if self._conforms(obj) else str(embedded.malformed(obj, self.schema) or "")

    @cached_property
    def _conforms(self) -> conforming.Check:
        return conforming.compiled(self.schema)


def established(definition: JsonObject, now: float) -> None:
    """What the server says about a definition that it serves from now on."""
    spec, since = definition["spec"], timestamp(now)
    stored = next((one["name"] for one in spec["versions"] if one.get("storage")), "")
    known = (definition.get("status") or {}).get("storedVersions") or []
    conditions = [
        {"type": type, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message}
        for type, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    definition["status"] = {
        "conditions": conditions,
        "acceptedNames": spec["names"],
        "storedVersions": known if stored in known else [*known, stored],
    }


def kinds_of(definition: JsonObject) -> tuple[Kind, ...]:
    """The kinds that a definition serves, the stored version first."""
    spec = definition["spec"]
    versions = sorted(spec["versions"], key=lambda one: not one.get("storage"))
    stored = _kind(spec, versions[0], None)
    others = [_kind(spec, one, stored) for one in versions[1:] if one.get("served")]
    return (*([stored] if versions[0].get("served") else []), *others)


def _kind(spec: JsonObject, version: JsonObject, storage: Kind | None) -> Kind:
    names, group, name = spec["names"], spec["group"], version["name"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    below = version.get("subresources") or {}
    status, scale = below.get("status") is not None, below.get("scale")
    # Paths are plain (`.spec.color`): validation lets no others pass.
    selectable = [one["jsonPath"][1:] for one in version.get("selectableFields") or ()]
    subresources = (*((SCALE,) if scale else ()), *((STATUS,) if status else ()))
    view = None
    if storage is not None:
        view = View(names["kind"], group, _shown_as(f"{group}/{name}", schema), _as(storage.api_version), storage)
    return Kind(
        group,
        name,
        names["plural"],
        names["kind"],
        spec.get("scope") == "Namespaced",
        tuple(names.get("shortNames") or ()),
        True,
        categories=tuple(names.get("categories") or ()),
        subresources=subresources,
        columns=_columns(version.get("additionalPrinterColumns")),
        fields={path: at(*path.split(".")) for path in selectable},
        declares_fields=bool(selectable),
        lifecycle=Lifecycle(
            generation=True, status=status, needs_version=True, on_create=_without_status if status else None
        ),
        view=view,
        definition=Definition(schema, structural_type(schema, f"{group}/{name}.{names['kind']}"), scale),
    )


def _without_status(obj: JsonObject) -> None:
    obj.pop("status", None)


def _as(api_version: str) -> Any:
    return lambda obj: {**obj, "apiVersion": api_version}


def _shown_as(api_version: str, schema: JsonObject) -> Any:
    """An object in a version that it is not stored in: without what that does not know."""

    def shown(obj: JsonObject) -> JsonObject:
        made = copy.deepcopy({**obj, "apiVersion": api_version})
        customresources.prune(made, schema)
        return made

    return shown


# -- columns -----------------------------------------------------------------------------------------------------


def _columns(found: list[JsonObject] | None) -> tuple[Column, ...]:
    if not found:
        return (NAME, AGE)
    return (NAME, *(_column(one) for one in found))


def _column(one: JsonObject) -> Column:
    kind = one.get("type", "string")
    return Column(
        one["name"],
        json_path(one["jsonPath"], as_age=kind == "date", as_text=kind == "string"),
        kind,
        one.get("format", ""),
        one.get("priority", 0),
        one.get("description") or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}",
    )


def json_path(path: str, *, as_age: bool = False, as_text: bool = False) -> Cell:
    """A cell that follows a simple JSON path; of several values the first, of a date the time since."""

    def cell(obj: JsonObject, now: float) -> Any:
        found = list(_follow(obj, path))
        if not found:
            return None
        if as_age:
            return age_since(str(found[0]), now)
        return _text_of(found[0]) if as_text else found[0]

    return cell


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _follow(value: Any, path: str) -> Iterator[Any]:
    values = [value]
    for match in _STEP.finditer(path):
        values = [inner for one in values for inner in _steps(one, match)]
    return (one for one in values if one is not None)


def _steps(value: Any, match: re.Match[str]) -> list[Any]:
    name, index, field_path, wanted = match[1] or match[2], match[3], match[4], match[5]
    if name is not None:
        return [value.get(name)] if isinstance(value, dict) else []
    items = value if isinstance(value, list) else []
    if index is not None:
        return items[int(index) : int(index) + 1]
    if field_path is not None:
        return [one for one in items if list(_follow(one, f".{field_path}")) == [wanted]]
    return items


# -- the catalog -------------------------------------------------------------------------------------------------


@dataclass
class Catalog:
    """Every kind that one server serves."""

    definitions: dict[str, tuple[Kind, ...]] = field(default_factory=dict)
    by_path: dict[tuple[str, str, str], Kind] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GROUPS)
    kinds: tuple[Kind, ...] = KINDS
    documents: dict[Any, Any] = field(default_factory=dict)
    """What was worked out about these kinds: discovery, OpenAPI. Thrown away when they change."""

    def define(self, definition: JsonObject) -> None:
        self.definitions[definition["metadata"]["name"]] = kinds_of(definition)
        self._changed()

    def forget(self, name: str) -> None:
        if self.definitions.pop(name, None) is not None:
            self._changed()

    def clear(self) -> None:
        self.definitions.clear()
        self._changed()

    @property
    def added(self) -> tuple[Kind, ...]:
        return self.kinds[len(KINDS) :]

    def _changed(self) -> None:
        found = [kind for kinds in self.definitions.values() for kind in kinds]
        self.kinds = (*KINDS, *found)
        self.by_path = {(kind.group, kind.version, kind.plural): kind for kind in found}
        groups = dict(GROUPS)
        for kind in found:
            groups[kind.group] = tuple(dict.fromkeys((*groups.get(kind.group, ()), kind.version)))
        self.groups = groups
        self.documents.clear()
