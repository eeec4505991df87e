"""JSON patch (RFC 6902) as the API server applies it.

The operations are those of the jsonpatch library. Kubernetes is laxer than the RFC: replacing a member that is not
there adds it, a member that is not there equals null, a value that is left out is null, and a pointer need not start
with a slash. It does not tell why a patch does not fit.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch as library
import jsonpointer

from kubeqos.apiserver.patch.errors import PatchError, bad_request, rejected
from kubeqos.codec import JsonObject, decode_json, encode_json

MAX_OPERATIONS = 10_000
_JSON_NAMES = {dict: "object", str: "string", int: "number", float: "number", bool: "bool"}


def json_patch(base: JsonObject, patch: Any) -> JsonObject:
    """The object after every operation; all of them apply or none does."""
    operations = _operations(patch)
    document: Any = decode_json(encode_json(base))  # a copy, several times faster than copy.deepcopy
    try:
        for operation in operations:
            document = _apply(document, operation)
    except (library.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, IndexError) as error:
        raise rejected() from error
    if not isinstance(document, dict):
        raise rejected()
    return document


def _operations(patch: Any) -> list[JsonObject]:
    if patch is None:
        return []
    if not isinstance(patch, list):
        given = _JSON_NAMES[type(patch)]
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {given} into Go value of type []handlers.jsonPatchOp"
        )
    if len(patch) > MAX_OPERATIONS:
        raise PatchError(
            413,
            "RequestEntityTooLarge",
            "Request entity is too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(patch)}",
        )
    for operation in patch:
        if operation is None:  # an operation without a kind
            raise rejected()
        if not isinstance(operation, dict):
            given = "array" if isinstance(operation, list) else _JSON_NAMES[type(operation)]
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {given} into Go value of type handlers.jsonPatchOp"
            )
    return patch


def _apply(document: Any, operation: JsonObject) -> Any:
    # The library stores the very value of the operation, which a later operation could then modify.
    operation = copy.deepcopy(operation)
    for name in ("path", "from"):
        if name in operation:
            operation[name] = _pointer(operation[name])
    kind = operation.get("op")
    if kind in ("add", "replace", "test"):
        operation.setdefault("value", None)
    if kind in ("replace", "test") and _is_new_member(document, operation["path"]):
        if kind == "test" and operation["value"] is None:
            return document
        operation["op"] = "add" if kind == "replace" else kind
    return library.apply_patch(document, [operation], in_place=True)


def _pointer(path: Any) -> str:
    """Kubernetes ignores what stands before the first slash, and never addresses the whole document."""
    if not isinstance(path, str) or "/" not in path:
        raise rejected()
    return "/" + path.partition("/")[2]


def _is_new_member(document: Any, path: str) -> bool:
    parent, last = jsonpointer.JsonPointer(path).to_last(document)
    return isinstance(parent, dict) and last not in parent
