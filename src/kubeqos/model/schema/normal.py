"""The canonical form of an object: what Kubernetes would store after reading a document.

A real API server decodes into Go structs and encodes them again. That drops unknown fields, nulls and empty optional
values, prints quantities and times in their canonical form, and adds what a struct cannot leave out (`resources: {}`,
`lastProbeTime: null`). The API server calls `normalise` on every body, after `check` found nothing wrong with it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from kubeqos.codec import JsonObject
from kubeqos.model.quantity import Quantity, canonical_amounts
from kubeqos.model.schema.types import Field, Shape, TypeSchema

_ZEROS: dict[str, Any] = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0, "float": 0, "intstr": 0}
_ZEROS["quantity"] = "0"
Convert = Callable[[Any], Any]


def normalise(raw: JsonObject, schema: TypeSchema) -> JsonObject:
    """The canonical form of a document that fits its type. The result shares nothing that could be modified.

    Fields stand in the order of their type, whatever order a client wrote them in.
    """
    plan = _plan(schema)
    out: JsonObject = {}
    last, ordered = -1, True
    for key, value in raw.items():
        entry = plan.fields.get(key)
        if entry is None or value is None:
            if entry is None and schema.free:
                out[key] = value
                ordered = False
            continue
        convert, droppable, place = entry
        if convert is not None:
            value = convert(value)
        if value or not droppable:
            out[key] = value
            if place < last:
                ordered = False
            last = place
    if not ordered:
        known = {key: out[key] for key in plan.fields if key in out}
        out = known | out
    for key, zero in plan.written:
        if key not in out:
            out[key] = zero() if zero else None
    return out


class _Plan:
    """A type compiled: per field a conversion, whether an empty value is dropped, and its place among the fields; then
    what is always written."""

    __slots__ = ("fields", "written")

    def __init__(self, schema: TypeSchema) -> None:
        self.fields = {
            f.name: (_conversion(f.shape), _droppable(f), place) for place, f in enumerate(schema.fields.values())
        }
        self.written = [(f.name, _zero(f)) for f in schema.fields.values() if _is_written(f)]


def _plan(schema: TypeSchema) -> _Plan:
    plan: _Plan | None = schema.normal_plan
    if plan is None:
        plan = schema.normal_plan = _Plan(schema)
    return plan


def _droppable(field: Field) -> bool:
    return not field.keep_zero and field.shape.kind not in ("object", "intstr", "any", "free") and (
        not field.required or field.shape.kind in ("list", "map")
    )  # fmt: skip


def _is_written(field: Field) -> bool:
    return field.always_written or (field.required and field.shape.kind in (*_ZEROS, "list"))


def may_be_null(field: Field) -> bool:
    """Whether the canonical form says null where nothing is set, as Go does for a required list, time or pointer."""
    return _is_written(field) and _zero(field) is None


def _zero(field: Field) -> Callable[[], Any] | None:
    if field.shape.kind == "object" and (inner := field.shape.object_type):
        return lambda: normalise({}, inner)
    zero = None if field.keep_zero else _ZEROS.get(field.shape.kind)
    return None if zero is None else lambda: zero


def _conversion(shape: Shape) -> Convert | None:
    """What turns a value into its canonical form; None if it already is."""
    if shape.kind == "object":
        inner = shape.object_type
        assert inner
        return lambda value: normalise(value, inner)
    if shape.kind == "quantity":
        return lambda value: Quantity.from_document(value).text()
    if shape.kind == "time":
        return _canonical_time
    if shape.kind == "microtime":
        return _canonical_micro_time
    if shape.kind == "map" and shape.of and shape.of.kind == "quantity":
        return canonical_amounts
    if shape.kind in ("list", "map") and shape.of:
        item = _conversion(shape.of)
        empty = _ZEROS.get(shape.of.kind, None if shape.of.kind in ("time", "microtime") else {})
        if shape.kind == "list":
            return _list_conversion(item, empty)
        return _map_conversion(item, empty)
    return None


def _list_conversion(item: Convert | None, empty: Any) -> Convert:
    """Null inside a list is the zero value of the items."""
    if item is None:
        return lambda values: [empty if v is None else v for v in values]
    return lambda values: [item(empty if value is None else value) for value in values]


def _map_conversion(item: Convert | None, empty: Any) -> Convert:
    def convert(values: JsonObject) -> JsonObject:
        if item is None:
            return {k: empty if v is None else v for k, v in values.items()}
        return {k: item(empty if v is None else v) for k, v in values.items()}

    return convert


def _canonical_time(text: str | None) -> str | None:
    return text if text is None or (len(text) == 20 and text[-1] == "Z") else _utc(text, "seconds")


def _canonical_micro_time(text: str | None) -> str | None:
    return text if text is None or (len(text) == 27 and text[-1] == "Z") else _utc(text, "microseconds")


def _utc(text: str, precision: str) -> str:
    """The time in UTC. Outside the years that Python knows a text stays as it is."""
    date, _, rest = text.replace(",", ".").partition(".")
    zone = rest.lstrip("0123456789")
    digits = rest.removesuffix(zone)
    whole = f"{date}.{digits[:6]:0<6}{zone}" if digits else date
    try:
        # Not strftime, which writes the year 11 as "11".
        found = datetime.datetime.fromisoformat(whole).astimezone(datetime.UTC).replace(tzinfo=None)
        return found.isoformat(timespec=precision) + "Z"
    except (ValueError, OverflowError):
        return text
