"""Strict decoding: does a decoded JSON document fit its type, and what would Kubernetes say if not?

The API server calls `check` on every body. A value of the wrong type is an error in the words of Go's decoder, a field
that nobody knows is a strict-decoding complaint, which the caller turns into an error or a warning. Both are found in
one walk in document order. Kubernetes decodes case-sensitively, takes null for "not set" everywhere, and reports the
first wrong type, unless a later value has a parser of its own (quantity, time, bytes) that gives up at once.
"""

from __future__ import annotations

import binascii
import contextlib
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from kubeqos.codec import JsonNumber, JsonObject, decode_json_pairs
from kubeqos.errors import InputError
from kubeqos.model.quantity import Quantity
from kubeqos.model.schema.gotime import parse_error
from kubeqos.model.schema.types import Field, Shape, TypeSchema

MAX_STRICT_ERRORS = 100
_JSON_NAMES = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "bool"}
_JSON_NAMES[JsonNumber] = "number"
_PYTHON_TYPES: dict[str, Any] = {
    "string": str, "bytes": str, "bool": bool, "int32": int, "int64": int, "float": float, "time": str,
    "microtime": str, "object": dict, "list": list, "map": dict,
}  # fmt: skip
_LIMITS = {"int32": 1 << 31, "int64": 1 << 63}

# A step back towards the root: (parent, field name or map key or index).
Path = tuple[Any, str | int] | None


class Findings(msgspec.Struct):
    """What a walk found. `error` refuses the document; `strict` is for fieldValidation to decide."""

    error: str | None = None
    strict: list[str] = []


class _Abort(Exception):
    """A value with a parser of its own could not be read: nothing after it is looked at."""


def check(raw: JsonObject, schema: TypeSchema, body: bytes | None = None) -> Findings:
    """Walk a document. With `body`, the bytes it was decoded from, duplicate fields are reported too.

    Duplicates are looked for only if the bytes seem to hold more keys than the document, which is cheap to know.
    """
    walk = _Walk()
    try:
        walk.object(raw, schema, None)
    except _Abort as abort:
        walk.error = str(abort)
    strict = walk.strict
    if body is not None and walk.error is None and body.translate(None, b" \t\r\n").count(b'":') != walk.keys:
        strict = _with_duplicates(body, schema)
    return Findings(walk.error, strict[:MAX_STRICT_ERRORS])


def unknown_fields(raw: JsonObject, schema: TypeSchema) -> list[str]:
    """One complaint per unknown field: `unknown field "spec.containers[0].foo"`."""
    return check(raw, schema).strict


def duplicate_fields(body: bytes, schema: TypeSchema) -> list[str]:
    """One complaint per field that a JSON document gives twice."""
    return [line for line in _with_duplicates(body, schema) if line.startswith("duplicate")]


class _Walk:
    """One walk over one document."""

    __slots__ = ("error", "keys", "strict")

    def __init__(self) -> None:
        self.error: str | None = None
        self.keys = 0
        self.strict: list[str] = []

    def object(self, raw: JsonObject, schema: TypeSchema, path: Path) -> None:
        plan = schema.plan or _compile(schema)
        self.keys += len(raw)
        for key, value in raw.items():
            entry = plan.get(key)
            if entry is None:
                if not schema.free:
                    self.strict.append(f'unknown field "{_render((path, key))}"')
                self.keys += _count_keys(value)
                continue
            expected, code, extra, field = entry
            if type(value) is not expected:
                if value is not None:
                    self._unexpected(value, field.shape, schema, (path, key))
            elif code == _SCALAR:
                continue
            elif code == _OBJECT:
                self.object(value, extra, (path, key))
            elif code == _OBJECTS:
                self._objects(value, extra, field, schema, (path, key))
            elif code == _STRINGS and _ONLY_STRINGS.issuperset(map(type, value.values())):
                self.keys += len(value)
            elif code == _QUANTITIES:
                self.keys += len(value)
                _check_quantities(value.values())
            else:
                self.value(value, field.shape, schema, (path, key))

    def _objects(self, items: list[Any], inner: TypeSchema, field: Field, schema: TypeSchema, path: Path) -> None:
        for index, item in enumerate(items):
            if type(item) is dict:
                self.object(item, inner, (path, index))
            elif item is not None:
                assert field.shape.of
                self._unexpected(item, field.shape.of, schema, path)

    def value(self, value: Any, shape: Shape, schema: TypeSchema, path: Path) -> None:
        """A value that the plan of its object does not settle."""
        kind = shape.kind
        if value is None or kind in ("any", "free"):
            self.keys += _count_keys(value)
            return
        wanted: Any = _PYTHON_TYPES.get(kind)
        if type(value) is not wanted:
            self._unexpected(value, shape, schema, path)
        elif kind == "list" and shape.of:
            for index, item in enumerate(value):
                self.value(item, shape.of, schema, (path, index))
        elif kind == "map" and shape.of:
            self.keys += len(value)
            for key, item in value.items():
                # Go's error context leaves map keys out, as it does indexes.
                self.value(item, shape.of, schema, (path, _MapKey(key)))
        elif kind == "object" and (inner := shape.object_type):
            self.object(value, inner, path)
        elif kind in _LIMITS:
            limit = _LIMITS[kind]
            if not -limit <= value < limit:
                self._mismatch(f"number {value}", shape, schema, path)
        elif kind == "bytes":
            _check_base64(value)
        elif kind in ("time", "microtime") and (problem := parse_error(value)):
            raise _Abort(problem)

    def _unexpected(self, value: Any, shape: Shape, schema: TypeSchema, path: Path) -> None:
        """A value that is not of the one Python type of its shape: some shapes allow several."""
        kind, given = shape.kind, type(value)
        if kind == "quantity":
            _check_quantities((value,))
        elif kind == "float" and given is int:
            return
        elif kind == "intstr":
            self._int_or_string(value, schema, path)
        elif kind == "float" and given is JsonNumber:
            return
        elif isinstance(value, float) and kind in _LIMITS:
            self._mismatch(f"number {_written(value)}", shape, schema, path)
        elif kind in ("any", "free"):
            self.keys += _count_keys(value)
        else:
            self._mismatch(_JSON_NAMES[given], shape, schema, path)

    def _int_or_string(self, value: Any, schema: TypeSchema, path: Path) -> None:
        if type(value) is int:
            if not -_LIMITS["int32"] <= value < _LIMITS["int32"]:
                self._abort_mismatch(f"number {value}", "int32", schema, path)
        elif isinstance(value, float):
            self._abort_mismatch(f"number {_written(value)}", "int32", schema, path)
        elif type(value) is not str:
            self._abort_mismatch(_JSON_NAMES[type(value)], "int32", schema, path)

    def _mismatch(self, given: str, shape: Shape, schema: TypeSchema, path: Path) -> None:
        if self.error is None:
            self.error = _cannot_unmarshal(given, _go_name(shape, schema), schema, path)

    def _abort_mismatch(self, given: str, wanted: str, schema: TypeSchema, path: Path) -> NoReturn:
        raise _Abort(_cannot_unmarshal(given, wanted, schema, path))


class _MapKey(str):
    """A key of a map, which the messages of Go's decoder leave out."""

    __slots__ = ()


_SCALAR, _OBJECT, _OBJECTS, _STRINGS, _QUANTITIES, _OTHER = range(6)
_PLAIN = frozenset({"string", "bool", "float"})
_ONLY_STRINGS = frozenset({str})


def _compile(schema: TypeSchema) -> dict[str, tuple[Any, int, Any, Field]]:
    """Per field: the Python type that settles it, what to do next, and the type of objects below it."""
    plan: dict[str, tuple[Any, int, Any, Field]] = {}
    for name, field in schema.fields.items():
        shape = field.shape
        code = _OTHER
        if shape.kind in _PLAIN:
            code = _SCALAR
        elif shape.kind == "object":
            code = _OBJECT
        elif shape.kind == "list" and shape.of and shape.of.kind == "object":
            code = _OBJECTS
        elif shape.kind == "map" and shape.of:
            code = {"string": _STRINGS, "quantity": _QUANTITIES}.get(shape.of.kind, _OTHER)
        plan[name] = (_PYTHON_TYPES.get(shape.kind), code, shape.object_type, field)
    schema.plan = plan
    return plan


def _written(number: float) -> str:
    """A number as the document has it."""
    return number.text if isinstance(number, JsonNumber) else f"{number:g}"


def _check_quantities(values: Iterable[Any]) -> None:
    try:
        for value in values:
            if value is not None:
                Quantity.from_document(value)
    except InputError as error:
        raise _Abort(error.what) from error


def _check_base64(text: str) -> None:
    try:
        binascii.a2b_base64(text.replace("\n", "").replace("\r", ""), strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise _Abort(f"illegal base64 data at input byte {_bad_base64_at(text)}") from error


def _bad_base64_at(text: str) -> int:
    """The offset that Go reports: the odd byte, or the start of a last group of four that is not whole."""
    held = 0  # characters of the group of four that is being read
    for position, char in enumerate(text):
        if char in "\r\n":
            continue
        if char == "=":
            if held < 2:
                return position
            after = position + 1
            if held == 2 and text[after : after + 1] != "=":
                return after
            return after + (held == 2)
        if not (char.isascii() and (char.isalnum() or char in "+/")):
            return position
        held = (held + 1) % 4
    return len(text) - held


def _cannot_unmarshal(given: str, wanted: str, schema: TypeSchema, path: Path) -> str:
    names = [str(step) for step in _steps(path) if isinstance(step, str) and not isinstance(step, _MapKey)]
    return f"json: cannot unmarshal {given} into Go struct field {schema.name}.{'.'.join(names)} of type {wanted}"


def _go_name(shape: Shape, schema: TypeSchema) -> str:
    if shape.kind == "list" and shape.of:
        return "[]" + _go_name(shape.of, schema)
    if shape.kind == "map" and shape.of:
        return "v1.ResourceList" if shape.of.kind == "quantity" else "map[string]" + _go_name(shape.of, schema)
    if inner := shape.object_type:
        return inner.go_name
    if shape.alias:
        return shape.alias if "." in shape.alias else f"{schema.package.rpartition('/')[2]}.{shape.alias}"
    return {"bytes": "[]uint8", "time": "string", "microtime": "string", "float": "float64"}.get(shape.kind, shape.kind)


def _steps(path: Path) -> list[str | int]:
    steps = []
    while path:
        path, step = path
        steps.append(step)
    return steps[::-1]


def _render(path: Path) -> str:
    """`spec.containers[0].foo`."""
    out = ""
    for step in _steps(path):
        out += f"[{step}]" if isinstance(step, int) else f".{step}"
    return out.removeprefix(".")


def _count_keys(value: Any) -> int:
    """How many keys all objects below a value have; without recursion, since an unknown value may be deep."""
    count = 0
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if type(value) is dict:
            count += len(value)
            waiting.extend(value.values())
        elif type(value) is list:
            waiting.extend(value)
    return count


def _with_duplicates(body: bytes, schema: TypeSchema) -> list[str]:
    """Unknown and duplicate fields in document order, read from the tokens of a JSON document."""
    out: list[str] = []
    with contextlib.suppress(RecursionError):  # deeper than any API type: what was found so far is all there is
        _pairs(decode_json_pairs(body), schema.shape, None, out)
    return out


def _pairs(value: Any, shape: Shape | None, path: Path, out: list[str]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _pairs(item, shape.of if shape and shape.kind == "list" else None, (path, index), out)
    elif isinstance(value, tuple):
        schema = shape.object_type if shape and shape.kind == "object" else None
        seen = set()
        for key, item in value:
            here = (path, key)
            if schema and key not in schema.fields:
                out.append(f'unknown field "{_render(here)}"')
                continue
            if key in seen:
                out.append(f'duplicate field "{_render(here)}"')
            seen.add(key)
            inner = schema.fields[key].shape if schema else shape.of if shape and shape.kind == "map" else None
            _pairs(item, inner, here, out)
