"""How a patch is refused: the error with its Status fields, and values printed as Go prints them.

Every module of this package raises PatchError; the API server's error funnel renders it.
"""

from __future__ import annotations

from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.text.gotext import quote


class PatchError(InputError):
    """A patch that cannot be applied. `reason` and `causes` go into the Status as they are."""

    def __init__(self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes or []


def bad_request(message: str) -> PatchError:
    """The patch document itself is wrong."""
    return PatchError(400, "BadRequest", message)


def rejected() -> PatchError:
    """The patch is well formed but does not fit the object; Kubernetes does not say why."""
    return PatchError(422, "Invalid", "the server rejected our request due to an error in our request")


def invalid(value: str, detail: str) -> PatchError:
    """The patched object cannot be decoded. Kubernetes reports the patch, or the result, as the bad value."""
    text = f"Invalid value: {quote(value)}: {detail}"
    cause = {"reason": "FieldValueInvalid", "field": "patch", "message": text}
    return PatchError(422, "Invalid", f' "" is invalid: patch: {text}', [cause])


def go_print(value: Any) -> str:
    """A decoded JSON value as Go's %v prints it: `map[a:[1 2] b:<nil>]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_print(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_print(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


_GO_KINDS = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "bool"}


def require_object(patch: Any, prefix: str = "") -> None:
    """Refuse a merge patch that is not an object. Null is an empty patch."""
    if patch is not None and not isinstance(patch, dict):
        given = _GO_KINDS[type(patch)]
        raise bad_request(f"{prefix}json: cannot unmarshal {given} into Go value of type map[string]interface {{}}")
