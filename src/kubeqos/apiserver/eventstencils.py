"""Stencils of events: the same thing happened as before, to another object, at another time.

The idea is that of `stencils`: the outcome of the long way is rehearsed once with marks in place of what is one event's
own (its name, whom it is about, what it says, when and how often), and filled in for the next ones. Only events in the
form in which our own components write them are stamped. No quota counts events.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec
from msgspec import UNSET, UnsetType

from kubeqos.apiserver.bodies import object_body
from kubeqos.apiserver.core import Core
from kubeqos.apiserver.objects import ordered
from kubeqos.apiserver.outlines import MARK
from kubeqos.apiserver.requests import JSON, Request
from kubeqos.apiserver.status import ApiError
from kubeqos.apiserver.stencils import Memo, Stamp, Stencil
from kubeqos.apiserver.writes import Write, rehearse
from kubeqos.codec import JsonError, encode_json, typed_decoder
from kubeqos.model.names import dns_subdomain
from kubeqos.model.timestamps import seconds_of, timestamp

_KEPT = 1024
_LARGEST_COUNT = 2**31 - 1
_NOW, _FIRST, _LAST = 4086543217.0, 4086543218.0, 4086543219.0
_COUNT = 2047483629
Text = str | UnsetType


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
_OWN = ("name", "uid", "resource_version")  # of the subject
_MARKS = {
    f"{MARK}name": 0, f"{MARK}uid": 1, timestamp(_NOW): 2, f"{MARK}message": 3, timestamp(_FIRST): 4,
    timestamp(_LAST): 5, str(_COUNT): 6,
}  # fmt: skip
_SUBJECT_MARKS = {f"{MARK}subject-{name}": 7 + number for number, name in enumerate(_OWN)}


class EventStencils:
    """The event stencils of one server."""

    def __init__(self) -> None:
        self._kept: Memo[Stencil | bool] = Memo(_KEPT)  # True: seen once; False: always goes the long way

    def stamp(self, core: Core, write: Write, request: Request) -> Stamp | None:
        """The event that a request makes, unless it has to go the long way."""
        event = plain_event(request)
        if event is None:
            return None
        key = (*_kind_of_event(event), write.namespace, write.manager, core.admission.version)
        stencil = self._kept.get(key)
        if stencil is True:
            stencil = learn(core, write, request, event) or False
            self._kept.put(key, stencil)
        elif stencil is None:
            self._kept.put(key, True)  # what happens for the first time may never happen again
        if not isinstance(stencil, Stencil):
            return None
        subject, name = event.involved_object, event.metadata.name
        values = [
            name.encode(), core.new_uid().encode(), timestamp(core.clock()).encode(), encode_json(event.message)[1:-1],
            event.first_timestamp.encode(), event.last_timestamp.encode(), b"%d" % event.count,
            *(b"" if one is UNSET else encode_json(one)[1:-1]
              for one in (subject.name, subject.uid, subject.resource_version)),
        ]  # fmt: skip
        return Stamp(name, stencil.fill(values), None)


def plain_event(request: Request) -> _Event | None:
    """An ordinary event; None for one that is written in another form, or about which there may be something to say."""
    if request.query or request.content_type != JSON:
        return None
    try:
        event = _decode(request.body)
    except (JsonError, UnicodeDecodeError):
        return None
    subject = event.involved_object
    if not (
        event.message
        and "" not in (subject.name, subject.uid, subject.resource_version)
        and 1 <= event.count <= _LARGEST_COUNT
        and _is_canonical(event.first_timestamp)
        and _is_canonical(event.last_timestamp)
        and not dns_subdomain(event.metadata.name)
    ):
        return None
    # A body that says anything twice, or in another form, is not the text of what was understood.
    return event if encode_json(event) == request.body else None


def _kind_of_event(event: _Event) -> tuple[object, ...]:
    """Everything that is not one event's own."""
    subject, source = event.involved_object, event.source
    return (
        (event.api_version, event.kind, event.type, event.reason, event.metadata.namespace),
        (subject.api_version, subject.kind, subject.namespace),
        (subject.name is UNSET, subject.uid is UNSET, subject.resource_version is UNSET),
        (source.component, source.host, event.reporting_component, event.reporting_instance),
    )


@lru_cache(maxsize=256)
def _is_canonical(time: str) -> bool:
    seconds = seconds_of(time)
    return seconds is not None and timestamp(seconds) == time


def learn(core: Core, write: Write, request: Request, event: _Event) -> Stencil | None:
    """Rehearse the long way; None when that refuses the event, or has something to say about it."""
    subject = event.involved_object
    given = {name: f"{MARK}subject-{name}" for name in _OWN if getattr(subject, name) is not UNSET}
    body = encode_json(
        msgspec.structs.replace(
            event,
            metadata=_Metadata(f"{MARK}name", event.metadata.namespace),
            involved_object=msgspec.structs.replace(subject, **given),
            message=f"{MARK}message",
            first_timestamp=timestamp(_FIRST),
            last_timestamp=timestamp(_LAST),
            count=_COUNT,
        )
    )
    marks = {text.encode(): hole for text, hole in _MARKS.items()}
    marks |= {text.encode(): _SUBJECT_MARKS[text] for text in given.values()}
    if any(body.count(mark) > 1 for mark in marks):
        return None
    stage = replace(core, clock=lambda: _NOW, new_uid=lambda: f"{MARK}uid")
    asked = replace(request, body=body, warnings=[])
    try:
        obj = rehearse(stage, replace(write, warnings=asked.warnings), object_body(asked, write.kind), limited=True)
    except ApiError:
        return None
    if asked.warnings:
        return None
    return Stencil.of(encode_json(ordered(write.kind, obj, ""))[len(write.kind.head) :], marks)
