"""JSON merge patch (RFC 7386), the patch of `kubectl label`, `annotate` and `--type=merge`."""

from __future__ import annotations

from typing import Any

from kubeqos.apiserver.patch.errors import bad_request, require_object
from kubeqos.codec import JsonObject


def merge_patch(base: JsonObject, patch: Any) -> JsonObject:
    """The object with the patch merged in. Null removes a member, anything but an object replaces."""
    require_object(patch, "error decoding patch: ")
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    merged: JsonObject = _merge(base, patch)
    return merged


def _merge(base: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merge(out.get(key), value)
    return out
