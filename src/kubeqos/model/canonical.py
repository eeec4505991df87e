"""The one spelling of an object: what Kubernetes prints after decoding it, before any default is filled in.

Nulls, empty lists, maps and strings that a Go struct would leave out are dropped, and quantities get their canonical
form. Fields that no type knows stay as they are. The API server runs this on every object before it looks at it, so
that equal objects are equal bytes; server-side apply and patches compare what it returns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kubeqos.codec import JsonObject
from kubeqos.model.quantity import Quantity
from kubeqos.model.schema import Field, TypeSchema

# Plain Go values that are left out when zero. Every other number and boolean is a pointer, whose zero means something,
# or a required field.
_ZERO_IS_ABSENT = frozenset(
    (
        "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly", "unschedulable", "paused",
        "globalDefault", "publishNotReadyAddresses", "minReadySeconds", "nodePort", "hostPort", "initialDelaySeconds",
        "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "signal", "generation",
        "observedGeneration", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas",
        "fullyLabeledReplicas", "terminatingReplicas", "healthCheckNodePort", "count",
    )
)  # fmt: skip
# Go string pointers: the empty string is a value.
_EMPTY_IS_A_VALUE = frozenset(
    ("storageClassName", "volumeAttributesClassName", "runtimeClassName", "holderIdentity", "hostnameOverride")
)
_DROPPED_TIMES = frozenset(("creationTimestamp", "deletionTimestamp"))

_KEEP, _TEXT, _ZERO, _OBJECT, _OBJECTS, _COLLECTION, _QUANTITY, _QUANTITIES, _OBJECT_MAP, _TIME = range(10)
_plans: dict[str, dict[str, tuple[int, Any, bool]]] = {}


def canonical(raw: JsonObject, schema: TypeSchema) -> JsonObject:
    """A new object in canonical form; shares what did not change."""
    plan = _plans.get(schema.key) or _compile(schema)
    out: JsonObject = {}
    for name, value in raw.items():
        action, inner, required = plan.get(name, (_KEEP, None, False))
        if value is None:
            if action == _TIME or (required and action == _COLLECTION):
                out[name] = None
        elif action == _KEEP:
            out[name] = value
        elif action in (_TEXT, _ZERO, _TIME):
            if value or required:
                out[name] = value
        elif action == _OBJECT:
            out[name] = canonical(value, inner) if type(value) is dict else value
        elif action == _OBJECTS:
            if value or required:
                out[name] = [canonical(v, inner) if type(v) is dict else v for v in value]
        elif action == _QUANTITIES:
            if value:
                out[name] = {k: _listed(v) for k, v in value.items()}
        elif action == _QUANTITY:
            out[name] = _exact(value)
        elif action == _OBJECT_MAP:
            if value:
                out[name] = {k: canonical(v, inner) if type(v) is dict else v for k, v in value.items()}
        elif value or required:
            out[name] = value
    return out


def _compile(schema: TypeSchema) -> dict[str, tuple[int, Any, bool]]:
    plan = {name: _plan(name, field) for name, field in schema.fields.items()}
    _plans[schema.key] = plan
    return plan


def _plan(name: str, field: Field) -> tuple[int, Any, bool]:
    shape, required = field.shape, field.required
    inner = shape.of.kind if shape.of else ""
    match shape.kind:
        case "string" | "bytes":
            return (_KEEP if name in _EMPTY_IS_A_VALUE else _TEXT), None, required
        case "bool" | "int32" | "int64":
            return (_ZERO if name in _ZERO_IS_ABSENT else _KEEP), None, required
        case "object":
            return _OBJECT, shape.object_type, required
        case "list":
            return (_OBJECTS if inner == "object" else _COLLECTION), shape.object_type, required
        case "map" if inner == "quantity":
            return _QUANTITIES, None, required
        case "map":
            return (_OBJECT_MAP if inner == "object" else _COLLECTION), shape.object_type, required
        case "quantity":
            return _QUANTITY, None, required
        case "time" | "microtime":
            return (_TEXT if name in _DROPPED_TIMES else _TIME), None, required
    return _KEEP, None, required


@lru_cache(maxsize=4096)
def _listed(value: Any) -> str:
    """A value of a resource list, which holds thousandths at the finest."""
    return str(Quantity.parse(value).round_up_milli())


@lru_cache(maxsize=1024)
def _exact(value: Any) -> str:
    return str(Quantity.parse(value))
