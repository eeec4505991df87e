"""Does a configuration that a client applies fit the schema? The complaints of structured merge, in its words.

Apply is stricter than decoding: every field must be declared, and the items of a list must be told apart by their keys.
"""

from __future__ import annotations

from typing import Any

from kubeqos.apiserver.patch.fieldset import printed
from kubeqos.apiserver.patch.typed import ITEMS, LEAF, Place, place_of_field
from kubeqos.codec import JsonObject
from kubeqos.model.schema import Field, Shape, TypeSchema
from kubeqos.model.text.gotext import quote

_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "bytes": ("string", (str,)),
    "bool": ("boolean", (bool,)),
    "int32": ("numeric (int or float)", (int, float)),
    "int64": ("numeric (int or float)", (int, float)),
    "float": ("numeric (int or float)", (int, float)),
}


def typed_errors(config: JsonObject, schema: TypeSchema) -> str | None:
    """The complaints about a configuration, as one message; None if there are none."""
    found = list(_object(config, schema, ""))
    if len(found) < 2:
        return found[0] if found else None
    return "\n".join(["errors:", *(f"  {line}" for line in found)])


def _object(value: Any, schema: TypeSchema, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [] if value is None else [f"{path or '.'}: expected map, got {_go_value(value)}"]
    out = []
    for key, item in value.items():
        here = f"{path}.{key}"
        field = schema.fields.get(key)
        if field is not None:
            out += _field(item, field, here)
        elif not schema.free:
            out.append(f"{here}: field not declared in schema")
    return out


def _field(value: Any, field: Field, path: str) -> list[str]:
    place = place_of_field(field)
    if field.shape.kind != "list" or place.kind == LEAF:
        return _shape(value, field.shape, path)
    if not isinstance(value, list):
        return [] if value is None else [f"{path}: expected list, got {_go_value(value)}"]
    return _keyed_list(value, place, path)


def _keyed_list(items: list[Any], place: Place, path: str) -> list[str]:
    out: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        if place.kind == ITEMS:
            if not isinstance(item, dict):
                out.append(f"{path}: element {index}: associative list with keys may not have non-map elements")
                continue
            missing = [key for key in place.keys if key not in item and key not in place.defaults]
            if missing:
                out.append(
                    f"{path}: element {index}: associative list with keys has an element that omits key field "
                    f"{quote(missing[0])} (and doesn't have default value)"
                )
                continue
        step = place.step(item)
        if step in seen:
            out.append(f"{path}: duplicate entries for key {printed(step)}")
        seen.add(step)
        assert place.shape.of
        out += _shape(item, place.shape.of, path + printed(step))
    return out


def _shape(value: Any, shape: Shape, path: str) -> list[str]:
    if value is None:
        return []
    if shape.kind == "object" and (inner := shape.object_type):
        return _object(value, inner, path)
    if shape.kind == "list" and shape.of:
        if not isinstance(value, list):
            return [f"{path}: expected list, got {_go_value(value)}"]
        return [line for index, item in enumerate(value) for line in _shape(item, shape.of, f"{path}[{index}]")]
    if shape.kind == "map" and shape.of:
        if not isinstance(value, dict):
            return [f"{path}: expected map, got {_go_value(value)}"]
        return [line for key, item in value.items() for line in _shape(item, shape.of, f"{path}.{key}")]
    wanted = _SCALARS.get(shape.kind)
    if wanted is None or type(value) in wanted[1]:
        return []
    return [f"{path}: expected {wanted[0]}, got {_go_value(value)}"]


def _go_value(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{_go_syntax(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value as Go's %#v prints it."""
    if isinstance(value, dict):
        return "map[string]interface {}{" + ", ".join(f"{quote(k)}:{_go_syntax(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_go_syntax(item) for item in value) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "interface {}(nil)"
    return quote(value) if isinstance(value, str) else f"{value}"
