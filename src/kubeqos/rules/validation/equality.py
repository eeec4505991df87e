"""Equality of two raw trees as Kubernetes means it: unset equals empty, and amounts are compared by value.

Used to see whether an update changes what it may not change, and to say where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.model.quantity import Quantity
from kubeqos.rules.validation.common import Raw

_AMOUNTS = frozenset(("requests", "limits", "overhead", "capacity", "allocatable"))
_TRISTATE = frozenset(
    (
        "automountServiceAccountToken", "enableServiceLinks", "shareProcessNamespace", "setHostnameAsFQDN", "hostUsers",
        "privileged", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "optional", "controller",
        "blockOwnerDeletion", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "tolerationSeconds",
        "priority", "runAsUser", "runAsGroup", "fsGroup",
    )
)  # fmt: skip
"""Fields in which false or 0 differs from "not set"."""


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two trees differ, as (path, old, new)."""
    if isinstance(old, dict) or isinstance(new, dict):
        if (old is None or isinstance(old, dict)) and (new is None or isinstance(new, dict)):
            yield from _map_differences(old or {}, new or {}, path)
            return
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
        return
    if _scalar(path, old) != _scalar(path, new):
        yield path, old, new


def _map_differences(old: Raw, new: Raw, path: str) -> Iterator[tuple[str, Any, Any]]:
    amounts = path.rpartition(".")[2] in _AMOUNTS
    for key in [*old, *(key for key in new if key not in old)]:
        left, right = old.get(key), new.get(key)
        if left == right:
            continue
        below = f"{path}.{key}" if path else key
        if amounts:
            if (left is None or right is None) or Quantity.parse(left) != Quantity.parse(right):
                yield below, left, right
        else:
            yield from differences(left, right, below)


def _scalar(path: str, value: Any) -> Any:
    """A value with everything that means "not set" made one."""
    if value or path.rpartition(".")[2] in _TRISTATE:
        return value
    return None


def described(changes: Iterator[tuple[str, Any, Any]]) -> str:
    """Changes as lines of a diff."""
    lines = []
    for path, old, new in changes:
        lines.append(f"- {path}: {encode_json(old).decode()}")
        lines.append(f"+ {path}: {encode_json(new).decode()}")
    return "\n".join(lines)


def same(old: Any, new: Any) -> bool:
    return next(differences(old, new), None) is None
