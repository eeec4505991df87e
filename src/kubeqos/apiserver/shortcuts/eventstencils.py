"""What one event has in common with the next: the same thing happened, to another object, at another time.

`Handlers.create` asks for the stamp of an event before it takes one apart; see `stencils`. Only events in the form in
which our own components write them have an outline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec import UNSET, UnsetType

from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.writes import Write
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.shortcuts.podoutline import MARK
from kubeqos.apiserver.shortcuts.stencils import (
    MARKS,
    MOMENT,
    NAME_MARK,
    OWN,
    UID_MARK,
    Key,
    Memo,
    Seen,
    Stamp,
    Stencil,
    rehearsed,
    text_of,
)
from kubeqos.codec import JsonError, JsonObject, encode_json, typed_decoder
from kubeqos.model.names import dns_subdomain
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.web.messages import JSON

_LARGEST_COUNT = 2**31 - 1
Text = str | UnsetType
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """An event with its name cut out, and what else is its own: JSON values by their paths."""

    key: Key
    name: str
    paths: tuple[Path, ...] = ()
    values: tuple[bytes, ...] = ()


class EventStencils:
    """The stencils of new events."""

    def __init__(self) -> None:
        self._kept: Memo[Stencil] = Memo()
        self._seen = Seen()

    def get(self, outline: Outline) -> Stencil | None:
        return self._kept.get(outline.key)

    def stamp(self, core: Core, write: Write, request: Request) -> Stamp | None:
        """The event that a request makes, unless it has to go the long way."""
        outline = event_outline(request, write.namespace, core.admission.version)
        if outline is None:
            return None
        stencil = self.get(outline)
        if stencil is None:
            stencil = learn(core, write, request, outline) if self._seen.before(outline.key) else None
            if stencil is None:
                return None
            self._kept.put(outline.key, stencil)
        fresh = (core.new_uid().encode(), timestamp(core.clock()).encode())
        return Stamp(outline.name, stencil.fill((outline.name.encode(), *fresh, *outline.values)), None)


def learn(core: Core, write: Write, request: Request, outline: Outline) -> Stencil | None:
    """Rehearse the long way for an event, and cut its own values out of what it becomes."""
    obj = rehearsed(core, write, request, request.body)
    if obj is None:
        return None
    marks = {f'"{MARK}{number:04}"': OWN + number for number in range(len(outline.paths))}
    marked = {**obj, "metadata": {**obj["metadata"], "name": NAME_MARK}}
    for path, mark in zip(outline.paths, marks, strict=True):
        _put(marked, path, mark[1:-1])
    stencil = Stencil.of(text_of(write.kind, marked), MARKS | {mark.encode(): hole for mark, hole in marks.items()})
    # An event may say anything, even what marks a hole: the stencil must make the event that it was made from.
    made = (outline.name.encode(), UID_MARK.encode(), MOMENT, *outline.values)
    return stencil if stencil is not None and stencil.fill(made) == text_of(write.kind, obj) else None


def _put(obj: JsonObject, path: Path, value: str) -> None:
    """Set a field of a copy; the maps on the way are copied too."""
    for step in path[:-1]:
        obj[step] = obj = {**obj[step]}
    obj[path[-1]] = value


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    namespace: str


class _Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: Text = UNSET
    kind: Text = UNSET
    namespace: Text = UNSET
    name: Text = UNSET
    uid: Text = UNSET
    resource_version: Text = UNSET


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    component: str
    host: Text = UNSET


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An Event, its fields in the order in which `client.events` writes them."""

    api_version: str
    kind: str
    metadata: _Metadata
    involved_object: _Subject
    type: str
    reason: str
    message: str
    source: _Source
    reporting_component: str
    reporting_instance: str
    first_timestamp: str
    last_timestamp: str
    count: int


_decode = typed_decoder(_Event)
_SUBJECT: tuple[Path, ...] = (
    ("involvedObject", "name"),
    ("involvedObject", "uid"),
    ("involvedObject", "resourceVersion"),
)
_OWN: tuple[Path, ...] = (("message",), ("firstTimestamp",), ("lastTimestamp",), ("count",))
_PATHS = {
    tuple(given): tuple(path for path, one in zip(_SUBJECT, given, strict=True) if one) + _OWN
    for given in ((name, uid, version) for name in (False, True) for uid in (False, True) for version in (False, True))
}
"""What is each event's own, by whether its subject has a name, a uid and a version."""


def event_outline(request: Request, namespace: str, version: object) -> Outline | None:
    """Cut out what is one event's own; None for one that is written in another form, or that may be refused."""
    if request.query or request.content_type != JSON:
        return None
    try:
        event = _decode(request.body)
    except (JsonError, UnicodeDecodeError):
        return None
    # A body that says anything twice, or in another form, is not the text of what was understood.
    if not _is_ordinary(event) or encode_json(event) != request.body:
        return None
    subject, source = event.involved_object, event.source
    own = subject.name, subject.uid, subject.resource_version
    given = tuple(value is not UNSET for value in own)
    key = (
        (event.api_version, event.kind, event.type, event.reason, event.metadata.namespace, namespace),
        (subject.api_version, subject.kind, subject.namespace, given),
        (source.component, source.host, event.reporting_component, event.reporting_instance),
        (request.user_agent.partition("/")[0], version),
    )
    values = [encode_json(value) for value in own if value is not UNSET]
    values += map(encode_json, (event.message, event.first_timestamp, event.last_timestamp, event.count))
    return Outline(key, event.metadata.name, _PATHS[given], tuple(values))


def _is_ordinary(event: _Event) -> bool:
    """Whether nothing that is cut out of the event can change what becomes of it."""
    subject = event.involved_object
    return bool(
        event.message
        and "" not in (subject.name, subject.uid, subject.resource_version)
        and 1 <= event.count <= _LARGEST_COUNT
        and _is_canonical(event.first_timestamp)
        and _is_canonical(event.last_timestamp)
        and not dns_subdomain(event.metadata.name)
    )


@lru_cache(maxsize=256)
def _is_canonical(time: str) -> bool:
    seconds = seconds_of(time)
    return seconds is not None and timestamp(seconds) == time
