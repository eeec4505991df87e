"""Objects of kinds that a CustomResourceDefinition defines: what is pruned, what is filled in, what is refused.

All of it follows the schema of the definition, in the words of Kubernetes. Called by the API server on every write of
such an object. Rules in CEL (`x-kubernetes-validations`) are not evaluated; who defines some is told.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kubeqos.model.timestamps import seconds_of
from kubeqos.rules.fielderror import ErrorType, FieldError, duplicate, invalid, not_supported, required, too_long

Raw = dict[str, Any]
_ALWAYS = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip
_NAMES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_VALIDATIONS = "x-kubernetes-validations"


def prune(value: Any, schema: Raw, path: str = "", *, root: bool = True) -> list[str]:
    """Take out of an object what its schema does not know, in place; the paths of what was taken."""
    if isinstance(value, list):
        inner = schema.get("items") or {}
        return [one for index, item in enumerate(value) for one in prune(item, inner, f"{path}[{index}]", root=False)]
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or others is True
    embedded = schema.get("x-kubernetes-embedded-resource")
    gone: list[str] = []
    for name in list(value):
        where = f"{path}.{name}" if path else name
        if (root or embedded) and name in _ALWAYS:
            continue
        if name in known:
            gone += prune(value[name], known[name], where, root=False)
        elif isinstance(others, dict):
            gone += prune(value[name], others, where, root=False)
        elif not keeps:
            del value[name]
            gone.append(where)
    return gone


def apply_defaults(value: Any, schema: Raw) -> None:
    """Fill in the defaults of a schema, in place; also inside of what was filled in."""
    if isinstance(value, list):
        for item in value:
            apply_defaults(item, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    for name in [name for name, item in value.items() if item is None]:
        inner = known.get(name, schema.get("additionalProperties"))
        if isinstance(inner, dict) and not inner.get("nullable"):
            del value[name]  # a null where none may be is as good as nothing
    for name, inner in known.items():
        missing = name not in value or (value[name] is None and not inner.get("nullable"))
        if missing and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
    for name, item in value.items():
        inner = known.get(name, schema.get("additionalProperties"))
        if isinstance(inner, dict):
            apply_defaults(item, inner)


def validate(value: Any, schema: Raw, path: str = "") -> list[FieldError]:
    """Everything in an object that does not fit its schema."""
    return list(_problems(value, schema, path))


def _problems(value: Any, schema: Raw, path: str) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    wrong = _type_problem(value, schema, path)
    if wrong is not None:
        yield wrong
        return
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        yield not_supported(path, value, [one if isinstance(one, str) else str(one) for one in choices])
    if isinstance(value, str):
        yield from _text_problems(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(value, schema, path)
    elif isinstance(value, list):
        yield from _list_problems(value, schema, path)
    elif isinstance(value, dict):
        yield from _object_problems(value, schema, path)
    yield from _combined_problems(value, schema, path)


def _type_problem(value: Any, schema: Raw, path: str) -> FieldError | None:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, int | str) and not isinstance(value, bool)
        kind = "integer,string"
    else:
        wanted = _TYPES.get(str(kind))
        whole = kind == "integer" and isinstance(value, float) and value.is_integer()
        is_flag = isinstance(value, bool) and kind in ("integer", "number")
        fits = wanted is None or whole or (isinstance(value, wanted) and not is_flag)
    if fits:
        return None
    given = _NAMES[type(value)]
    return _mistyped(path, given, str(kind), given)


def _mistyped(path: str, value: Any, kind: str, given: str) -> FieldError:
    return FieldError(ErrorType.TYPE_INVALID, path, value, f'{path} in body must be of type {kind}: "{given}"')


def _text_problems(value: str, schema: Raw, path: str) -> Iterator[FieldError]:
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield too_long(path, most)
    if (least := schema.get("minLength")) is not None and len(value) < least:
        yield invalid(path, value, f"{path} in body should be at least {least} chars long")
    if (pattern := schema.get("pattern")) is not None and not pattern_of(pattern).search(value):
        yield invalid(path, value, f"{path} in body should match '{pattern}'")

    if schema.get("format") == "date-time" and seconds_of(value) is None:
        yield _mistyped(path, value, "date-time", value)


@lru_cache(maxsize=256)
def pattern_of(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _number_problems(value: float, schema: Raw, path: str) -> Iterator[FieldError]:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        equal = "" if schema.get("exclusiveMinimum") else " or equal to"
        yield invalid(path, value, f"{path} in body should be greater than{equal} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        equal = "" if schema.get("exclusiveMaximum") else " or equal to"
        yield invalid(path, value, f"{path} in body should be less than{equal} {high}")
    if step and value % step:
        yield invalid(path, value, f"{path} in body should be a multiple of {step}")


def _list_problems(value: list[Any], schema: Raw, path: str) -> Iterator[FieldError]:
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} items")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield invalid(path, len(value), f"{path} in body should have at most {most} items")
    inner = schema.get("items") or {}
    for index, item in enumerate(value):
        yield from _problems(item, inner, f"{path}[{index}]")
    yield from _repeated(value, schema, path)


def _repeated(value: list[Any], schema: Raw, path: str) -> Iterator[FieldError]:
    """Items of a set, and keys of a map that is written as a list, are there once."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    if kind not in ("map", "set"):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        told = {key: item[key] for key in keys if key in item} if kind == "map" and isinstance(item, dict) else item
        if repr(told) in seen:
            yield duplicate(f"{path}[{index}]", told)
        seen.add(repr(told))


def _object_problems(value: Raw, schema: Raw, path: str) -> Iterator[FieldError]:
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} properties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield invalid(path, len(value), f"{path} in body should have at most {most} properties")
    for name, item in value.items():
        inner = known.get(name, others if isinstance(others, dict) else None)
        if inner is not None and not (not path and name == "metadata"):
            yield from _problems(item, inner, f"{path}.{name}" if path else name)


def _combined_problems(value: Any, schema: Raw, path: str) -> Iterator[FieldError]:
    for one in schema.get("allOf") or ():
        yield from _problems(value, one, path)
    if (any_of := schema.get("anyOf")) and not any(not validate(value, one, path) for one in any_of):
        yield invalid(path, _shown(value), f'"{path}" must validate at least one schema (anyOf)')
    if one_of := schema.get("oneOf"):
        fitting = sum(not validate(value, one, path) for one in one_of)
        if fitting != 1:
            yield invalid(path, _shown(value), f'"{path}" must validate one and only one schema (oneOf)')
    if (other := schema.get("not")) is not None and not validate(value, other, path):
        yield invalid(path, _shown(value), f'"{path}" must not validate the schema (not)')


def _shown(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else _NAMES[type(value)]


def rules_left_out(schema: Any, path: str = "openAPIV3Schema") -> list[str]:
    """Where a schema has rules that nobody here evaluates."""
    if isinstance(schema, list):
        return [one for index, item in enumerate(schema) for one in rules_left_out(item, f"{path}[{index}]")]
    if not isinstance(schema, dict):
        return []
    here = [path] if schema.get(_VALIDATIONS) else []
    below = ((name, item) for name, item in schema.items() if name not in (_VALIDATIONS, "default", "enum", "example"))
    return here + [one for name, item in below for one in rules_left_out(item, f"{path}.{name}")]
