"""The schema tables and their lookup.

`types.txt` starts with the kinds (group version kind type), then holds one type per paragraph and one field per line:

    core/v1.Container
    name! string
    ports []core/v1.ContainerPort patch=merge key=containerPort list=map:containerPort,protocol

`!` marks a required field, `[]` a list, `{}` a map with string keys, `string(PullPolicy)` a named string type,
`zero=keep` and `write=always` say how a field is written back. A type marked `atomic` is always replaced as a whole by
apply. Reading the file takes well under a millisecond; the fields of a type are parsed when they are first asked for,
and are values from then on: whoever walks a document follows attributes from type to type and calls nobody here.
`descriptions.txt` has the same order and is read only for documentation.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from kubeqos.codec import decode_json
from kubeqos.errors import InputError

Kind = Literal[
    "string", "bytes", "bool", "int32", "int64", "float", "quantity", "intstr", "time", "microtime", "any",
    "free", "object", "list", "map",
]  # fmt: skip


class Shape(msgspec.Struct, frozen=True):
    """The type of a value: a scalar, an object of a known type, or a list or map of a shape.

    Of `any` and `free` nothing is known. The former is one value; what the latter holds is told apart, field by field.
    """

    kind: Kind
    ref: str = ""
    """Key of the object's type, for kind `object`."""
    of: Shape | None = None
    """Shape of the items, for kinds `list` and `map`."""
    alias: str = ""
    """Name of a named string type, such as PullPolicy."""
    object_type: TypeSchema | None = None
    """The type of the object, or of the objects inside a list or map; None if there is none."""


class Field(msgspec.Struct, frozen=True):
    """One field of a type, with its merge semantics."""

    name: str
    shape: Shape
    required: bool = False
    patch: tuple[str, ...] = ()
    """Strategies of strategic merge patch: `merge`, `replace`, `retainKeys`. None means replace for lists."""
    merge_key: str = ""
    """Key that strategic merge patch uses for the items of a list."""
    list_type: Literal["atomic", "set", "map"] = "atomic"
    list_keys: tuple[str, ...] = ()
    """Keys that apply uses for the items of a list of type `map`."""
    atomic_map: bool = False
    keep_zero: bool = False
    """Its zero value is written back: a scalar for which Go has a pointer, a list that says something while empty."""
    always_written: bool = False
    """Written back even if it is not set: an object as {}, a time or list as null."""
    default: Any = None


class TypeSchema:
    """One API type. Fields are parsed when they are first needed."""

    def __init__(self, key: str, atomic: bool, lines: list[str]) -> None:
        self.key = key
        self.package, _, self.name = key.rpartition(".")
        self.atomic = atomic
        self._lines = lines
        self.free = False
        """Whether objects have fields that the type does not name; such fields are kept, and are of shape `free`."""
        self.plan: Any = None
        self.normal_plan: Any = None
        """Scratch for strict decoding and for the canonical form, which compile a type once."""

    def __repr__(self) -> str:
        return f"TypeSchema({self.key})"

    @cached_property
    def fields(self) -> dict[str, Field]:
        """The fields by their JSON name."""
        return {field.name: field for field in map(_parse_field, self._lines)}

    @cached_property
    def shape(self) -> Shape:
        """The shape of a value of this type."""
        return _parse_shape(self.key)

    @property
    def go_name(self) -> str:
        """The name a Go decoder has for the type: `v1.Container`."""
        return f"{self.package.rpartition('/')[2]}.{self.name}"

    @property
    def openapi_name(self) -> str:
        """The name of the type in OpenAPI documents: `io.k8s.api.core.v1.Container`."""
        group, _, version = self.package.partition("/")
        prefix = "io.k8s.apimachinery.pkg.apis" if group == "meta" else "io.k8s.api"
        return f"{prefix}.{group}.{version}.{self.name}"

    def child(self, field: str) -> TypeSchema | None:
        """The type of the object (or of the items) in a field; None for scalars and unknown fields."""
        found = self.fields.get(field)
        return found.shape.object_type if found else None


def kind(group: str, version: str, kind: str) -> TypeSchema:
    """The type of a kind that is served; the core group is the empty string."""
    key = kinds().get((group, version, kind))
    if key is None:
        where = f"{group}/{version}" if group else version
        raise InputError(f'no kind "{kind}" is registered for version "{where}"')
    return type_named(key)


def kinds() -> dict[tuple[str, str, str], str]:
    """Every kind as (group, version, kind), with the key of its type."""
    return _tables()[0]


def type_named(key: str) -> TypeSchema:
    """The type with this key, such as `core/v1.Container`."""
    return _tables()[1][key]


def description(key: str, field: str = "") -> str:
    """The text that explains a type, or one of its fields; empty if there is none."""
    return _descriptions().get(key, {}).get(field, "")


@cache
def _tables() -> tuple[dict[tuple[str, str, str], str], dict[str, TypeSchema]]:
    head, *paragraphs = _read("types.txt").split("\n\n")
    served = {}
    for line in head.splitlines():
        group, version, name, key = line.split(" ")
        served["" if group == "-" else group, version, name] = key
    types = {}
    for paragraph in paragraphs:
        title, *lines = paragraph.rstrip("\n").split("\n")
        key, _, flag = title.partition(" ")
        types[key] = TypeSchema(key, flag == "atomic", lines)
    return served, types


@cache
def _descriptions() -> dict[str, dict[str, str]]:
    out = {}
    for paragraph in _read("descriptions.txt").split("\n\n"):
        title, *lines = paragraph.rstrip("\n").split("\n")
        key, _, about = title.partition(" ")
        entries = (line.partition(" ") for line in lines)
        out[key] = {"": about, **{name: text for name, _, text in entries}}
    return out


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _parse_field(line: str) -> Field:
    name, spec, *flags = line.split(" ")
    options = dict(flag.split("=", 1) for flag in flags)
    list_type, _, list_keys = options.get("list", "atomic").partition(":")
    return Field(
        name=name.rstrip("!"),
        shape=_parse_shape(spec),
        required=name.endswith("!"),
        patch=tuple(options["patch"].split(",")) if "patch" in options else (),
        merge_key=options.get("key", ""),
        list_type=list_type,  # type: ignore[arg-type]  # the generator writes only the three names
        list_keys=tuple(list_keys.split(",")) if list_keys else (),
        atomic_map="map" in options,
        keep_zero="zero" in options,
        always_written="write" in options,
        default=decode_json(options["default"]) if "default" in options else None,
    )


@cache
def _parse_shape(spec: str) -> Shape:
    if spec.startswith(("[]", "{}")):
        of = _parse_shape(spec[2:])
        inner = of.object_type if of.kind == "object" else None
        return Shape("list" if spec.startswith("[") else "map", of=of, object_type=inner)
    if "/" in spec:
        # A type may hold itself further down: its fields are not parsed here, only pointed to.
        return Shape("object", ref=spec, object_type=type_named(spec))
    name, _, alias = spec.partition("(")
    return Shape(name, alias=alias.rstrip(")"))  # type: ignore[arg-type]  # scalars are spelled as their kind
