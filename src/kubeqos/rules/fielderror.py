"""Field errors: what is wrong with one field of an object, in the words Kubernetes uses.

Every rule that judges an object returns a list of `FieldError`; `Invalid` joins such a list into the 422 `Status` that
the API server sends. The texts are wire behaviour: clients and people match on them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubeqos.codec import encode_json
from kubeqos.model.quantity import Quantity
from kubeqos.model.text.gotext import quote


class ErrorType(enum.Enum):
    """What is wrong, as `(reason in the cause, words in the message)`."""

    REQUIRED = ("FieldValueRequired", "Required value")
    INVALID = ("FieldValueInvalid", "Invalid value")
    TYPE_INVALID = ("FieldValueTypeInvalid", "Invalid value")
    NOT_SUPPORTED = ("FieldValueNotSupported", "Unsupported value")
    NOT_FOUND = ("FieldValueNotFound", "Not found")
    DUPLICATE = ("FieldValueDuplicate", "Duplicate value")
    FORBIDDEN = ("FieldValueForbidden", "Forbidden")
    TOO_LONG = ("FieldValueTooLong", "Too long")
    TOO_MANY = ("FieldValueTooMany", "Too many")
    INTERNAL = ("InternalError", "Internal error")

    def __init__(self, reason: str, words: str) -> None:
        self.reason = reason
        self.words = words


MAX_TOLD = 1 << 20
"""Characters of all messages together, after which nobody reads on."""
_WITHOUT_VALUE = frozenset((ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL))


class _Omitted:
    def __repr__(self) -> str:
        return "<omitted>"


OMITTED: Final = _Omitted()
"""A bad value that the message leaves out."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. `field` is a path such as `spec.containers[0].name`."""

    type: ErrorType
    field: str
    bad_value: Any = OMITTED
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the field, as causes carry it."""
        said = self.type.words
        if self.type not in _WITHOUT_VALUE and self.bad_value is not OMITTED:
            said = f"{said}: {show(self.bad_value)}"
        return f"{said}: {self.detail}" if self.detail else said

    @property
    def message(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> dict[str, str]:
        """The error as an entry of `details.causes` in a Status."""
        return {"reason": self.type.reason, "message": self.body, "field": self.field}

    def __str__(self) -> str:
        return self.message


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(ErrorType.REQUIRED, path, OMITTED, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(ErrorType.INVALID, path, value, detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """`supported` is printed in the order given."""
    values = ", ".join(quote(one) for one in supported)
    return FieldError(ErrorType.NOT_SUPPORTED, path, value, f"supported values: {values}" if values else "")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(ErrorType.NOT_FOUND, path, value, detail)


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(ErrorType.DUPLICATE, path, value)


def forbidden(path: str, detail: str = "") -> FieldError:
    return FieldError(ErrorType.FORBIDDEN, path, OMITTED, detail)


def too_long(path: str, max_bytes: int) -> FieldError:
    return FieldError(ErrorType.TOO_LONG, path, OMITTED, f"may not be more than {max_bytes} bytes")


def too_many(path: str, actual: int, at_most: int) -> FieldError:
    items = "item" if at_most == 1 else "items"
    return FieldError(ErrorType.TOO_MANY, path, actual, f"must have at most {at_most} {items}")


def internal(path: str, detail: str) -> FieldError:
    return FieldError(ErrorType.INTERNAL, path, OMITTED, detail)


def show(value: Any) -> str:
    """A bad value as messages print it: text quoted, numbers plain, everything else as JSON."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Quantity):
        return quote(str(value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return encode_json(value).decode()


def joined(errors: Sequence[FieldError]) -> str:
    """All messages as one: plain when there is one, else `[a, b]`. A message that occurs twice is said once."""
    told, more = worth_telling(errors)
    messages = list(told)
    if more:
        messages.append(f"and {more} more")
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def worth_telling(errors: Sequence[FieldError]) -> tuple[dict[str, FieldError], int]:
    """The errors by their messages, each once, and how many are left out.

    An object of a few megabytes can be wrong in a hundred thousand places, and each error may show the whole of a list.
    """
    told: dict[str, FieldError] = {}
    seen: set[tuple[ErrorType, str, str, int]] = set()
    size = 0
    for number, error in enumerate(errors):
        key = (error.type, error.field, error.detail, id(error.bad_value))
        if key in seen:
            continue
        if size > MAX_TOLD:
            return told, len(errors) - number
        seen.add(key)
        message = error.message
        if message not in told:
            told[message] = error
            size += len(message)
    return told, 0


@dataclass(frozen=True, slots=True)
class Invalid:
    """The refusal of a whole object: a 422 with every field error as a cause, each said once."""

    kind: str
    group: str
    name: str
    errors: Sequence[FieldError] = field(default=())

    code = 422
    reason = "Invalid"

    @property
    def message(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        said = f"{kind} {quote(self.name)} is invalid"
        return f"{said}: {joined(self.errors)}" if self.errors else said

    @property
    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self.name:
            details["name"] = self.name
        if self.group:
            details["group"] = self.group
        details["kind"] = self.kind
        if self.errors:
            told, _ = worth_telling(self.errors)
            details["causes"] = [error.cause() for error in told.values()]
        return details
