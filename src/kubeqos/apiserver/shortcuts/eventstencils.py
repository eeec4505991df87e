"""What one event has in common with the next: the same thing happened, to another object, at another time.

Only events of the form in which our own components write them (`model.messages.Event`) have an outline, with their
fields in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from msgspec import UNSET

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.writes import Write
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.shortcuts.podoutline import MARK
from kubeqos.apiserver.shortcuts.stamping import Stamp, rehearsed
from kubeqos.apiserver.shortcuts.stencils import (
    MARKS,
    MOMENT,
    NAME_MARK,
    OWN,
    UID_MARK,
    Key,
    Memo,
    Seen,
    Stencil,
    text_of,
)
from kubeqos.codec import JsonError, JsonObject, encode_json, typed_decoder
from kubeqos.model.messages import Event, says_all
from kubeqos.model.names import dns_subdomain
from kubeqos.model.timestamps import seconds_of, timestamp
from kubeqos.web.messages import JSON

_LARGEST_COUNT = 2**31 - 1
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

    def __init__(self, core: Core, chain: Chain) -> None:
        self._core = core
        self._chain = chain
        self._kept: Memo[Stencil] = Memo()
        self._seen = Seen()

    def get(self, outline: Outline) -> Stencil | None:
        return self._kept.get(outline.key)

    def stamp(self, write: Write, request: Request) -> Stamp | None:
        """The event that a request makes, unless it has to go the ordinary way."""
        core, chain = self._core, self._chain
        outline = event_outline(request, write.namespace, write.manager, chain.version)
        if outline is None:
            return None
        stencil = self.get(outline)
        if stencil is None:
            stencil = learn(core, chain, write, request, outline) if self._seen.before(outline.key) else None
            if stencil is None:
                return None
            self._kept.put(outline.key, stencil)
        fresh = (core.new_uid().encode(), timestamp(core.clock()).encode())
        return Stamp(outline.name, stencil.fill((outline.name.encode(), *fresh, *outline.values)), None)


def learn(core: Core, chain: Chain, write: Write, request: Request, outline: Outline) -> Stencil | None:
    """Rehearse the ordinary way for an event, and cut its own values out of what it becomes."""
    obj = rehearsed(core, chain, write, request, request.body)
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


_decode = typed_decoder(Event)
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


def event_outline(request: Request, namespace: str, manager: str, version: object) -> Outline | None:
    """Cut out what is one event's own; None for one that is written in another form, or that may be refused."""
    if request.query or request.content_type != JSON:
        return None
    try:
        event = _decode(request.body)
    except (JsonError, UnicodeDecodeError):
        return None
    if not _is_ordinary(event) or not says_all(event, request.body):
        return None
    subject, source = event.involved_object, event.source
    own = subject.name, subject.uid, subject.resource_version
    given = tuple(value is not UNSET for value in own)
    key = (
        (event.api_version, event.kind, event.type, event.reason, event.metadata.namespace, namespace),
        (subject.api_version, subject.kind, subject.namespace, subject.field_path, given),
        (source.component, source.host, event.reporting_component, event.reporting_instance),
        (manager, version),
    )
    values = [encode_json(value) for value in own if value is not UNSET]
    values += map(encode_json, (event.message, event.first_timestamp, event.last_timestamp, event.count))
    return Outline(key, event.metadata.name, _PATHS[given], tuple(values))


def _is_ordinary(event: Event) -> bool:
    """Whether nothing that is cut out of the event can change what becomes of it."""
    subject = event.involved_object
    return bool(
        event.message
        and event.metadata.annotations is UNSET
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
