"""What a quota limits and how much of it is used, in its scopes. For `kubeqos quota` and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.quantity import Quantity, QuantityError

UNLIMITED = "inf"


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that a quota limits, as its status writes the numbers."""

    resource: str
    used: str
    hard: str

    @property
    def share(self) -> float | None:
        """How much of it is used; None where it is unlimited."""
        try:
            taken, limit = Quantity.parse(self.used), Quantity.parse(self.hard)
        except QuantityError:
            return None
        return 1.0 if limit.is_zero else taken.nanos / limit.nanos


def limits(raw: Mapping[str, Any]) -> Iterator[Limit]:
    """Resources, then classes."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    used = status.get("used") or {}
    for resource, hard in sorted((status.get("hard") or spec.get("hard") or {}).items()):
        yield Limit(resource, str(used.get(resource, "0")), str(hard))
    yield from _classes(spec.get("qosResources") or {}, status.get("qosResourcesUsage") or {})


def _classes(allowed: Mapping[str, Any], usage: Mapping[str, Any]) -> Iterator[Limit]:
    for level in ("pod", "container"):
        used = {
            (resource["name"], cls["name"]): cls.get("capacity", 0)
            for resource in usage.get(level) or ()
            for cls in resource.get("classes") or ()
        }
        for resource in allowed.get(level) or ():
            for cls in resource.get("classes") or ():
                taken, capacity = used.get((resource["name"], cls["name"]), 0), cls.get("capacity")
                label = f"{resource['name']}={cls['name']} ({level})"
                yield Limit(label, str(taken), UNLIMITED if capacity is None else str(capacity))


def scopes(raw: Mapping[str, Any]) -> list[str]:
    """The scopes of a quota, as people write them."""
    spec = raw.get("spec") or {}
    found = list(spec.get("scopes") or ())
    for one in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = f" ({', '.join(one['values'])})" if one.get("values") else ""
        found.append(f"{one['scopeName']} {one['operator']}{values}")
    return found
