"""Kinds that are stored as another: what turns the objects of one into those of the other, and back.

A newer form of events is such a kind: whoever writes one sees it in the older form, too. Handlers convert bodies on
their way in and answers on their way out; everything between knows the stored kind alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import JsonObject

Convert = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class View:
    """The kind that is stored, by its name, and both directions; of a definition's kinds the kind itself."""

    kind: str
    group: str
    shown: Convert
    stored: Convert
    of: Any = None


# newer (events.k8s.io) → older (core)
_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OLDER_FIELDS = {old: new for new, old in _EVENT_FIELDS.items()}


def _renamed(obj: JsonObject, names: dict[str, str], api_version: str) -> JsonObject:
    return {**{names.get(name, name): value for name, value in obj.items()}, "apiVersion": api_version}


EVENT_VIEW = View(
    "Event",
    "",
    shown=lambda obj: _renamed(obj, _OLDER_FIELDS, "events.k8s.io/v1"),
    stored=lambda obj: _renamed(obj, _EVENT_FIELDS, "v1"),
)
