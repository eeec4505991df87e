"""Objects seen through their schema, as server-side apply sees them.

Each place in an object is a leaf (scalar, atomic list, map or struct), a struct, a map, a list of items with keys, or a
list of unique values. From that follow the four operations that apply is made of: which fields an object sets, what
changed between two objects, how a configuration is merged into an object, and how fields are taken out of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeqos.apiserver.patch.fieldset import MEMBER, FieldSet, is_member
from kubeqos.codec import JsonObject, encode_json, encode_json_sorted
from kubeqos.model.schema import Field, Shape, TypeSchema

LEAF, STRUCT, MAP, ITEMS, VALUES = range(5)
MISSING: Any = object()


class _Repeated(list[Any]):
    """Items of a list that share a key: they are owned together or not at all."""


class Place:
    """What may stand in one place of an object."""

    __slots__ = ("_defaults", "_fields", "_item", "keys", "kind", "shape")

    def __init__(self, kind: int, shape: Shape, keys: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.shape = shape
        self.keys = keys
        # Types hold each other, and a pod uses few of the many it could: what lies below is looked at when it is met.
        self._defaults: dict[str, Any] | None = None
        self._fields: dict[str, Place] | None = None
        self._item: Place | None = None

    @property
    def fields(self) -> dict[str, Place]:
        """Fields of a struct."""
        if self._fields is None:
            schema = self.shape.object_type
            assert schema
            self._fields = {name: place_of_field(field) for name, field in schema.fields.items()}
        return self._fields

    @property
    def defaults(self) -> dict[str, Any]:
        """What keys of items count as where they are left out."""
        if self._defaults is None:
            schema = self.shape.object_type
            found = {key: _key_default(schema.fields[key]) for key in self.keys} if schema else {}
            self._defaults = {key: default for key, default in found.items() if default is not None}
        return self._defaults

    @property
    def item(self) -> Place:
        """What stands in each entry of a map or list."""
        if self._item is None:
            assert self.shape.of
            self._item = _place(self.shape.of)
        return self._item

    def below(self, key: str) -> Place:
        """The place of a field or map entry; unknown fields are leaves."""
        return self.item if self.kind == MAP else self.fields.get(key, ANYTHING)

    def step(self, item: Any) -> str:
        """The path step of a list item."""
        if self.kind == VALUES:
            return "v:" + encode_json(item).decode()
        if len(self.keys) == 1 and (key := self.keys[0]) in item:
            return f'k:{{"{key}":{encode_json(item[key]).decode()}}}'
        found = {key: item.get(key, self.defaults.get(key)) for key in self.keys if key in item or key in self.defaults}
        return "k:" + encode_json_sorted(found).decode()


ANYTHING = Place(LEAF, Shape("any"))


def place_of_type(schema: TypeSchema) -> Place:
    """The place of a whole object of this type."""
    return _place(schema.shape)


def place_of_field(field: Field) -> Place:
    """The place of a field, with its list and map semantics."""
    shape = field.shape
    if shape.kind == "list" and field.list_type != "atomic":
        return Place(ITEMS if field.list_type == "map" else VALUES, shape, tuple(sorted(field.list_keys)))
    if shape.kind == "map" and not field.atomic_map:
        return Place(MAP, shape)
    return _place(shape)


def _key_default(field: Field) -> Any:
    """What a key that is left out counts as: its default, or the zero value if it is required."""
    if field.default is not None or not field.required:
        return field.default
    return "" if field.shape.kind == "string" else 0


@cache
def _place(shape: Shape) -> Place:
    schema = shape.object_type if shape.kind == "object" else None
    return Place(STRUCT if schema and not schema.atomic else LEAF, shape)


def fields_set_by(place: Place, value: Any) -> FieldSet:
    """The fields that a configuration sets: its leaves, list items, and maps that it leaves empty."""
    out: FieldSet = {}
    if value is None or place.kind == LEAF:
        return out
    if place.kind in (STRUCT, MAP):
        for key, item in value.items():
            below = fields_set_by(inner := place.below(key), item)
            if below or inner.kind == LEAF or item is None or item == {}:
                out["f:" + key] = below
        return out
    for item in value:
        below = fields_set_by(place.item, item)
        out[place.step(item)] = {MEMBER: {}, **below} if below else below
    return out


def whole(place: Place, value: Any) -> FieldSet:
    """The fields of a value that was not there before, containers included."""
    if place.kind == LEAF or not value or isinstance(value, _Repeated):
        return {}
    out: FieldSet = {MEMBER: {}}
    if place.kind == STRUCT:
        fields = place.fields
        for key, item in value.items():
            inner = fields.get(key, ANYTHING)
            out["f:" + key] = {} if inner.kind == LEAF or not item else whole(inner, item)
    elif place.kind == MAP:
        for key in value:
            out["f:" + key] = {}
    elif place.kind == ITEMS:
        for step, item in _keyed(place, value).items():
            out[step] = whole(place.item, item)
    else:
        for item in value:
            out[place.step(item)] = {}
    return out


class Comparison:
    """What differs between two objects."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: FieldSet = {}
        self.modified: FieldSet = {}
        self.removed: FieldSet = {}


def compare(place: Place, old: Any, new: Any) -> Comparison:
    """The fields that `new` adds, changes and lacks."""
    out = Comparison()
    _compare(place, old, new, out)
    return out


def _compare(place: Place, old: Any, new: Any, out: Comparison) -> None:
    olds, news = _keyed(place, old), _keyed(place, new)
    prefix = "f:" if place.kind in (STRUCT, MAP) else ""
    fields = place.fields if place.kind == STRUCT else None
    added = out.added
    for key, value in news.items():
        before = olds.get(key, MISSING)
        if before is not MISSING and before == value:
            continue
        inner = place.item if fields is None else fields.get(key, ANYTHING)
        if before is MISSING:
            added[prefix + key] = whole(inner, value) if value and inner.kind != LEAF else {}
        elif inner.kind == LEAF or isinstance(value, _Repeated) or isinstance(before, _Repeated):
            out.modified[prefix + key] = {}
        elif before or value:  # null, {} and [] are the same to whoever owns fields below
            deeper = Comparison()
            _compare(inner, before, value, deeper)
            for name in Comparison.__slots__:
                if found := getattr(deeper, name):
                    getattr(out, name)[prefix + key] = found
    for key, value in olds.items():
        if key not in news:
            out.removed[prefix + key] = whole(place.below(key) if prefix else place.item, value)


def _keyed(place: Place, value: Any) -> dict[str, Any]:
    """The entries of a container by name, or by path step for items of a list."""
    if not value or place.kind in (STRUCT, MAP):
        return value or {}
    found: dict[str, Any] = {}
    for item in value:
        step = place.step(item)
        if step not in found:
            found[step] = item
        elif isinstance(found[step], _Repeated):
            found[step].append(item)
        else:
            found[step] = _Repeated((found[step], item))
    return found


def merge(place: Place, live: Any, config: Any) -> Any:
    """The live value with the configuration merged in."""
    if config is MISSING:
        return live
    if live is MISSING or live is None or place.kind == LEAF:
        return config
    if config is None:  # says nothing about what is in a container
        return live
    if place.kind in (STRUCT, MAP):
        out = dict(live)
        for key, value in config.items():
            out[key] = merge(place.below(key), live.get(key, MISSING), value)
        return out
    return _merge_items(place, live, config)


def _merge_items(place: Place, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of the configuration in its order; items that only the server has stay near their neighbours."""
    lefts, rights = [place.step(item) for item in live], [place.step(item) for item in config]
    left_items = dict(zip(lefts, live, strict=True))
    right_items = dict(zip(rights, config, strict=True))
    shared = [step for step in rights if step in left_items]
    out: list[Any] = []
    merged: set[str] = set()

    def take(step: str) -> None:
        merged.add(step)
        if shared and shared[0] == step:
            shared.pop(0)
        out.append(merge(place.item, left_items.get(step, MISSING), right_items[step]))

    # Two fingers, one on each list. `shared` holds what both have, in the order of the configuration: an item of the
    # server that both have waits until the configuration has come to it.
    i = j = 0
    while i < len(lefts) or j < len(rights):
        if i < len(lefts):
            left = lefts[i]
            if left not in right_items:
                out.append(live[i])
                i += 1
                continue
            if left in merged or (j < len(rights) and left != rights[j] and shared and shared[0] != left):
                i += 1
                continue
        if j < len(rights):
            take(rights[j])
            j += 1
        else:
            i += 1
    return out


def remove(place: Place, value: Any, fields: FieldSet) -> Any:
    """The value without the members of a set."""
    if not fields or not value or place.kind == LEAF:
        return value
    if place.kind in (STRUCT, MAP):
        out: JsonObject = {}
        for key, item in value.items():
            node = fields.get("f:" + key)
            if node is None:
                out[key] = item
            elif not is_member(node):
                out[key] = remove(place.below(key), item, node)
        return out
    kept = []
    for item in value:
        node = fields.get(place.step(item))
        if node is None:
            kept.append(item)
        elif not is_member(node):
            kept.append(remove(place.item, item, node))
    return kept


def with_containers(place: Place, fields: FieldSet) -> FieldSet:
    """A set that also holds every declared field on the way to its members."""
    out: FieldSet = {}
    for step, node in fields.items():
        if step == MEMBER:
            continue
        inner = place.below(step[2:]) if place.kind in (STRUCT, MAP) else place.item if place.kind != LEAF else ANYTHING
        below = with_containers(inner, node)
        declared = place.kind == STRUCT and step[2:] in place.fields
        out[step] = {MEMBER: {}, **below} if below and (declared or is_member(node)) else below
    return out
