"""Objects seen through their schema, as server-side apply sees them.

Each place in an object is a leaf (scalar, atomic list, map or struct), a struct, a map, a list of items with keys, or a
list of unique values. Free places (fields that a definition leaves open) are what their values make them: an object
there is a map, all else is a leaf. From that follow the four operations that apply is made of: which fields an object
sets, what changed between two objects, how a configuration is merged into one, and how fields are taken out of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeqos.apiserver.patch.fieldset import MEMBER, FieldSet, is_member
from kubeqos.codec import JsonObject, encode_json, encode_json_sorted
from kubeqos.model.schema import Field, Shape, TypeSchema

LEAF, STRUCT, MAP, ITEMS, VALUES, FREE = range(6)
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
            self._item = DEDUCED if self.shape.kind == "free" else _place(_of(self.shape))
        return self._item

    def below(self, key: str) -> Place:
        """The place of a field or map entry; unknown fields are leaves, or free where such fields may be."""
        return self.item if self.kind == MAP else self.fields.get(key, self.unknown)

    @property
    def unknown(self) -> Place:
        """The place of a field that a struct does not name."""
        return DEDUCED if self.shape.object_type is not None and self.shape.object_type.free else ANYTHING

    def declares(self, key: str) -> bool:
        """Whether a field of a struct is named by its type."""
        return self.kind == STRUCT and key in self.fields

    def holding(self, *values: Any) -> Place:
        """The place as these values make it, if it is free: a map, if all that is there are objects."""
        if self.kind != FREE:
            return self
        found = [value for value in values if value is not None and value is not MISSING]
        return GRANULAR if found and all(isinstance(value, dict) for value in found) else ANYTHING

    def step(self, item: Any) -> str:
        """The path step of a list item."""
        if self.kind == VALUES:
            return "v:" + encode_json(item).decode()
        if len(self.keys) == 1 and (key := self.keys[0]) in item:
            return f'k:{{"{key}":{encode_json(item[key]).decode()}}}'
        found = {key: item.get(key, self.defaults.get(key)) for key in self.keys if key in item or key in self.defaults}
        return "k:" + encode_json_sorted(found).decode()


ANYTHING = Place(LEAF, Shape("any"))
DEDUCED, GRANULAR = Place(FREE, Shape("free")), Place(MAP, Shape("free"))


def _of(shape: Shape) -> Shape:
    assert shape.of
    return shape.of


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
    if shape.kind == "free":
        return DEDUCED
    schema = shape.object_type if shape.kind == "object" else None
    return Place(STRUCT if schema and not schema.atomic else LEAF, shape)


def fields_set_by(place: Place, value: Any) -> FieldSet:
    """The fields that a configuration sets: its leaves, list items, and maps that it leaves empty."""
    out: FieldSet = {}
    if value is None or place.kind == LEAF:
        return out
    if place.kind in (STRUCT, MAP):
        for key, item in value.items():
            below = fields_set_by(inner := place.below(key).holding(item), item)
            if not below:
                if inner.kind == LEAF or item is None or item == {}:
                    out["f:" + key] = below
            elif place.declares(key):
                out["f:" + key] = below
            else:  # an entry of a map is there, whatever is below it
                out["f:" + key] = {MEMBER: {}, **below}
        return out
    for item in value:
        below = fields_set_by(place.item, item)
        out[place.step(item)] = {MEMBER: {}, **below} if below else below
    return out


def whole(place: Place, value: Any) -> FieldSet:
    """The fields of a value that was not there before, containers included."""
    if place.kind == LEAF or not value or isinstance(value, _Repeated) or not _fits(place, value):
        return {}
    out: FieldSet = {MEMBER: {}}
    if place.kind == STRUCT:
        fields, unknown = place.fields, place.unknown
        for key, item in value.items():
            inner = fields.get(key, unknown).holding(item)
            out["f:" + key] = {} if inner.kind == LEAF or not item else whole(inner, item)
    elif place.kind == MAP:
        for key, item in value.items():
            out["f:" + key] = whole(place.item.holding(item), item)
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
    fields, unknown = (place.fields, place.unknown) if place.kind == STRUCT else (None, ANYTHING)
    added = out.added
    for key, value in news.items():
        before = olds.get(key, MISSING)
        if before is not MISSING and before == value:
            continue
        inner = place.item if fields is None else fields.get(key, unknown)
        if inner.kind == FREE and (inner := inner.holding(before, value)) is ANYTHING:
            _compare_forms(prefix + key, before, value, out)
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
            inner = (place.below(key) if prefix else place.item).holding(value)
            out.removed[prefix + key] = whole(inner, value)


def _compare_forms(step: str, before: Any, value: Any, out: Comparison) -> None:
    """What an object in a free place holds comes and goes with it."""
    if before is MISSING:
        return
    for one, fields in ((before, out.removed), (value, out.added)):
        if isinstance(one, dict) and one:
            fields[step] = {name: below for name, below in whole(GRANULAR, one).items() if name != MEMBER}


def _fits(place: Place, value: Any) -> bool:
    """Whether a value is what its place wants. Who owns what is asked before an object of a defined kind is judged."""
    return isinstance(value, dict if place.kind in (STRUCT, MAP) else list)


def _keyed(place: Place, value: Any) -> dict[str, Any]:
    """The entries of a container by name, or by path step for items of a list."""
    if not value or not _fits(place, value):
        return {}
    if place.kind in (STRUCT, MAP):
        entries: dict[str, Any] = value
        return entries
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
            before = live.get(key, MISSING)
            out[key] = merge(place.below(key).holding(before, value), before, value)
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
                out[key] = remove(place.below(key).holding(item), item, node)
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
        inner = GRANULAR if inner.kind == FREE else inner
        below = with_containers(inner, node)
        member = place.declares(step[2:]) or is_member(node)
        out[step] = {MEMBER: {}, **below} if below and member else below
    return out
