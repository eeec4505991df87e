"""Messages of the API types, driven by the schema and a table of field numbers.

A type is compiled once to a plan: field number → name and reader. A reader turns the bytes of one occurrence into a
JSON value and merges it with what earlier occurrences gave, as protobuf wants: lists grow, maps and messages are
merged, the last scalar wins.
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kubeqos.apiserver.protobuf import wire
from kubeqos.codec import JsonError, JsonObject, decode_json
from kubeqos.errors import InputError
from kubeqos.model.schema import Shape, TypeSchema, type_named

MAX_DEPTH = 64
MAX_VALUES = 250_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_INT32_WRAP = 1 << 32


class Message:
    """One request body that is being decoded, with its budget of values."""

    __slots__ = ("buffer", "left")

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.left = MAX_VALUES

    def spend(self) -> None:
        """One more value was met."""
        self.left -= 1
        if self.left < 0:
            raise InputError(f"protobuf body: more than {MAX_VALUES} values", remedy="send a smaller object")

    def read(
        self, key: str, start: int, end: int, depth: int, into: JsonObject, owner: TypeSchema | None = None
    ) -> JsonObject:
        """Decode the message of a type between two offsets into an object."""
        if depth > MAX_DEPTH:
            raise InputError(f"protobuf body: messages are nested deeper than {MAX_DEPTH}", where=f"byte {start}")
        plan = plan_of(key, owner)
        for number, kind, value, stop in wire.fields(self.buffer, start, end):
            entry = plan.get(number)
            if entry is None:
                continue
            name, wanted, reader = entry
            if kind != wanted:
                raise InputError(f"protobuf body: wrong wire type for field {name or number}", where=f"byte {stop}")
            self.spend()
            if name:
                into[name] = reader(self, value, stop, depth + 1, into.get(name))
            else:  # a Go struct that is embedded: its fields are fields of this object
                reader(self, value, stop, depth + 1, into)
        return into


# (message, value or start, end, depth, value so far) -> JSON value
Reader = Callable[[Message, int, int, int, Any], Any]


@cache
def plan_of(key: str, owner: TypeSchema | None = None) -> dict[int, tuple[str, int, Reader]]:
    """Field number → (name, wire type, reader); an embedded struct has no name, and is described by its owner."""
    known = numbers_of(key)
    described = (owner or type_named(key)).fields
    plan: dict[int, tuple[str, int, Reader]] = {}
    for name, number in known.items():
        if name.startswith("<"):
            plan[number] = ("", wire.BYTES, _object_reader(embedded_in(key, name), owner or type_named(key)))
        elif (key, name) in UNIONS:
            plan[number] = (name, wire.BYTES, _union_reader(described[name].shape, UNIONS[key, name]))
        elif (key, name) in WRAPPED:
            plan[number] = (name, wire.BYTES, _strings)
        elif name in described:
            wire_type, reader = _reader(described[name].shape)
            plan[number] = (name, wire_type, reader)
    return plan


def numbers_of(key: str) -> dict[str, int]:
    """The field numbers of a type; those of the proposals alone have none."""
    known = numbers().get(key)
    if known is None:
        raise InputError(f"protobuf body: {key} has no protobuf form", remedy="send the object as application/json")
    return known


def embedded_in(key: str, name: str) -> str:
    """The key of a struct that stands in angle brackets."""
    return f"{key.rpartition('.')[0]}.{name[1:-1]}"


@cache
def numbers() -> dict[str, dict[str, int]]:
    """The field numbers of every type. A name in angle brackets is an embedded struct."""
    out = {}
    for line in Path(__file__).with_name("numbers.txt").read_text(encoding="utf-8").splitlines():
        key, *pairs = line.split(" ")
        out[key] = {name: int(number) for name, number in (pair.split("=") for pair in pairs)}
    return out


@dataclass(frozen=True)
class Union:
    """A value that is a schema or something else: a message with a field for either."""

    schema: int
    other: int
    of: str  # of the other: bool, schemas or strings


SCHEMA = "apiextensions/v1.JSONSchemaProps"
UNIONS = {
    (SCHEMA, "items"): Union(1, 2, "schemas"),
    (SCHEMA, "additionalProperties"): Union(2, 1, "bool"),
    (SCHEMA, "additionalItems"): Union(2, 1, "bool"),
    (SCHEMA, "dependencies"): Union(1, 2, "strings"),
}
"""Fields of definitions' schemas that JSON writes without their wrapping, so that the tables of types call them any."""


WRAPPED = {("meta/v1.APIResource", "verbs")}
"""Lists of a named type: a message whose field 1 repeats."""


def _union_reader(shape: Shape, union: Union) -> Reader:
    def read(message: Message, start: int, end: int, depth: int, _so_far: Any) -> Any:
        schema: JsonObject | None = None
        others: list[Any] = []
        for number, kind, value, stop in wire.fields(message.buffer, start, end):
            message.spend()
            if number == union.schema and kind == wire.BYTES:
                schema = message.read(SCHEMA, value, stop, depth + 1, {})
            elif number == union.other and kind == (wire.VARINT if union.of == "bool" else wire.BYTES):
                others.append(_other(message, union, value, stop, depth + 1))
        if union.of == "bool":
            return bool(others and others[-1]) if schema is None else schema
        return others or schema

    return _map_reader(read) if shape.kind == "map" else read


def _other(message: Message, union: Union, value: int, stop: int, depth: int) -> Any:
    match union.of:
        case "bool":
            return value != 0
        case "strings":
            return wire.text(message.buffer, value, stop)
        case _:
            return message.read(SCHEMA, value, stop, depth, {})


def _reader(shape: Shape) -> tuple[int, Reader]:
    if shape.kind == "list" and shape.of:
        wire_type, item = _reader(shape.of)
        return wire_type, _list_reader(item)
    if shape.kind == "map" and shape.of:
        return wire.BYTES, _map_reader(_strings if shape.of.kind == "list" else _reader(shape.of)[1])
    if shape.kind == "object":
        return wire.BYTES, _object_reader(shape.ref)
    return _SCALARS[shape.kind]


def _object_reader(key: str, owner: TypeSchema | None = None) -> Reader:
    def read(message: Message, start: int, end: int, depth: int, so_far: Any) -> Any:
        return message.read(key, start, end, depth, {} if so_far is None else so_far, owner)

    return read


def _list_reader(item: Reader) -> Reader:
    def read(message: Message, start: int, end: int, depth: int, so_far: Any) -> Any:
        items = [] if so_far is None else so_far
        items.append(item(message, start, end, depth, None))
        return items

    return read


def _map_reader(item: Reader) -> Reader:
    """An entry is a message with key 1 and value 2; a value that is left out is empty."""

    def read(message: Message, start: int, end: int, depth: int, so_far: Any) -> Any:
        entries = {} if so_far is None else so_far
        key, at, stop = "", end, end
        for number, kind, value, after in wire.fields(message.buffer, start, end):
            if number in (1, 2) and kind != wire.BYTES:
                raise InputError("protobuf body: wrong wire type in a map", where=f"byte {after}")
            if number == 1:
                key = wire.text(message.buffer, value, after)
            elif number == 2:
                at, stop = value, after
        entries[key] = item(message, at, stop, depth, None)
        return entries

    return read


def _string(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> str:
    return wire.text(message.buffer, start, end)


def _bytes(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> str:
    return base64.b64encode(message.buffer[start:end]).decode()


def _bool(_message: Message, value: int, _end: int, _depth: int, _so_far: Any) -> bool:
    return value != 0


def _int64(_message: Message, value: int, _end: int, _depth: int, _so_far: Any) -> int:
    return wire.signed(value)


def _int32(_message: Message, value: int, _end: int, _depth: int, _so_far: Any) -> int:
    low = value % _INT32_WRAP
    return low - _INT32_WRAP if low >= _INT32_WRAP >> 1 else low


def _double(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> float:
    """Go writes whole numbers without a point."""
    found: float = struct.unpack("<d", message.buffer[start:end])[0]
    return int(found) if found.is_integer() else found


def _quantity(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> str:
    for number, kind, value, stop in wire.fields(message.buffer, start, end):
        if number == 1 and kind == wire.BYTES:
            return wire.text(message.buffer, value, stop)
    return "0"


def _int_or_string(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> int | str:
    kind_of, number_value, string_value = 0, 0, ""
    for number, kind, value, stop in wire.fields(message.buffer, start, end):
        if number == 1 and kind == wire.VARINT:
            kind_of = value
        elif number == 2 and kind == wire.VARINT:
            number_value = _int32(message, value, stop, 0, None)
        elif number == 3 and kind == wire.BYTES:
            string_value = wire.text(message.buffer, value, stop)
    return string_value if kind_of == 1 else number_value


def _moment(message: Message, start: int, end: int) -> datetime.datetime | None:
    """Seconds and nanoseconds since 1970; an empty message means that no time is set."""
    if start == end:
        return None
    seconds = nanos = 0
    for number, kind, value, _ in wire.fields(message.buffer, start, end):
        if kind == wire.VARINT and number == 1:
            seconds = wire.signed(value)
        elif kind == wire.VARINT and number == 2:
            nanos = wire.signed(value)
    try:
        return _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise InputError("protobuf body: a time is out of range", where=f"byte {start}") from error


def _time(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> str | None:
    moment = _moment(message, start, end)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _micro_time(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> str | None:
    moment = _moment(message, start, end)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


def _raw(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> Any:
    """JSON inside protobuf: FieldsV1 and RawExtension."""
    for number, kind, value, stop in wire.fields(message.buffer, start, end):
        if number == 1 and kind == wire.BYTES and stop > value:
            try:
                return decode_json(message.buffer[value:stop])
            except (JsonError, RecursionError, UnicodeDecodeError) as error:
                raise InputError("protobuf body: embedded JSON cannot be read", where=f"byte {value}") from error
    return None


def _strings(message: Message, start: int, end: int, _depth: int, _so_far: Any) -> list[str]:
    found = wire.fields(message.buffer, start, end)
    return [wire.text(message.buffer, value, stop) for number, kind, value, stop in found if (number, kind) == (1, 2)]


_SCALARS: dict[str, tuple[int, Reader]] = {
    "string": (wire.BYTES, _string),
    "bytes": (wire.BYTES, _bytes),
    "bool": (wire.VARINT, _bool),
    "int32": (wire.VARINT, _int32),
    "int64": (wire.VARINT, _int64),
    "float": (wire.FIXED64, _double),
    "quantity": (wire.BYTES, _quantity),
    "intstr": (wire.BYTES, _int_or_string),
    "time": (wire.BYTES, _time),
    "microtime": (wire.BYTES, _micro_time),
    "any": (wire.BYTES, _raw),
}
