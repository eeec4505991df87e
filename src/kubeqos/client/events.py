"""Records what happened to an object as a Kubernetes Event; what repeats is counted, not written again.

`record` never waits and never fails its caller: events are told to people, nothing depends on them. A background task
writes them, within limits (`eventlimits`); repeats that arrive meanwhile become one patch of `count` and
`lastTimestamp`. In a burst, warnings go first and what finds the line full is dropped: ten thousand pods that are
scheduled in a few seconds do not cost ten thousand events. A server that is away is waited for; an event that it could
not be told for about two minutes is dropped.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from msgspec import UNSET

from kubeqos.client.api import Api, Refused, Submission
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.eventlimits import BURST, RATE, ObjectLimits
from kubeqos.client.resources import EVENTS
from kubeqos.codec import JsonObject
from kubeqos.model.messages import Event, EventMetadata, EventSource, ObjectReference
from kubeqos.model.timestamps import timestamp
from kubeqos.ratelimit import RateLimit

REMEMBERED = 4096  # series
QUEUED = 1000  # that wait to be written, as many as in Kubernetes
CONTINUED = 6 * 60.0
"""How long after its last time an event goes on counting: longer than any back-off, which is five minutes at most."""
AT_ONCE = 32
SIMILAR = 10  # texts about one object for one reason; more are combined, or a changing number would flood the server
COMBINED = "(combined from similar events): "
LONGEST_MESSAGE = 1024
MOST_TRIES, FIRST_PAUSE, LONGEST_PAUSE = 16, 0.5, 10.0  # while the server is away
Reference = tuple[str, str, str, str, str]


@dataclass(slots=True)
class Series:
    """One event and how often it happened."""

    regarding: JsonObject
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    first: str
    last: str
    name: str
    annotations: Mapping[str, str] | None = None
    count: int = 1
    written: int = 0  # the count that the server knows
    tries: int = 0  # that found no server


@dataclass(slots=True)
class Recorded:
    """What became of the events, for metrics."""

    written: int = 0
    dropped: int = 0
    because: str = field(default="")


class EventRecorder:
    """Events of one component. `run` it in a task."""

    def __init__(
        self,
        api: Api,
        component: str,
        *,
        host: str = "",
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._source = EventSource(component, host or UNSET)
        self._clock = clock
        self._series: OrderedDict[tuple[Reference, str, str, str], Series] = OrderedDict()
        self._texts: OrderedDict[tuple[Reference, str, str], set[str]] = OrderedDict()
        self._unwritten: dict[str, dict[str, Series]] = {"Warning": {}, "Normal": {}}  # by name, urgent ones first
        self._timer = timer
        self._limits = ObjectLimits()
        self._tokens = RateLimit(RATE, BURST)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.result = Recorded()

    def record(
        self,
        regarding: JsonObject,
        reason: str,
        message: str,
        type: Literal["Normal", "Warning"] = "Normal",
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Something happened to `regarding`, an object or a reference to one; `annotations` are for machines."""
        reference = reference_to(regarding)
        story = (identity_of(reference), type, reason)
        text, message = self._combine(story, message)
        key = (*story, text)
        moment = self._clock().timestamp()
        now = timestamp(moment)
        self._forget_before(timestamp(moment - CONTINUED))
        series = self._series.get(key)
        if series is None:
            name = f"{reference.get('name', '')}.{random.getrandbits(64):016x}"
            series = self._series[key] = Series(reference, type, reason, message, now, now, name, annotations)
            if len(self._series) > REMEMBERED:
                self._series.popitem(last=False)
        else:
            self._series.move_to_end(key)
            series.count += 1
            series.last = now
            series.message = message
        self._enqueue(series, story[0])

    def _enqueue(self, series: Series, about: Reference) -> None:
        waiting = self._unwritten[series.type]
        if series.name in waiting or not self._limits.allows(about, self._timer()):
            return  # the next write tells how often it happened
        if sum(map(len, self._unwritten.values())) >= QUEUED:
            less_urgent = self._unwritten["Normal"]
            if series.type == "Normal" or not less_urgent:
                self._drop("more events at once than are written")
                return
            del less_urgent[next(iter(less_urgent))]
            self._drop("more events at once than are written")
        waiting[series.name] = series
        self._idle.clear()
        self._wake.set()

    def _forget_before(self, moment: str) -> None:
        """A component of a long life tells of many objects that are gone: of each it would keep all it ever told."""
        while self._series:
            key, oldest = next(iter(self._series.items()))
            if oldest.last >= moment:
                return
            del self._series[key]
            self._texts.pop(key[:3], None)

    def _combine(self, story: tuple[Reference, str, str], message: str) -> tuple[str, str]:
        """What makes the event one of a series, and the message it carries."""
        texts = self._texts.setdefault(story, set())
        self._texts.move_to_end(story)
        if len(self._texts) > REMEMBERED:
            self._texts.popitem(last=False)
        if message in texts or len(texts) < SIMILAR:
            texts.add(message)
            return message, shortened(message)
        return COMBINED, shortened(COMBINED + message)

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pause = FIRST_PAUSE
            while any(self._unwritten.values()):
                batch = self._next()
                if not batch:
                    await asyncio.sleep(self._tokens.seconds_until_one())
                elif await self._write(batch):
                    pause = FIRST_PAUSE
                else:
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                    pause = min(pause * 2, LONGEST_PAUSE)
            self._idle.set()

    def _next(self) -> list[Series]:
        """Those to write together, so that they share the server's trips to the disk; none while the limit holds."""
        waiting = sum(map(len, self._unwritten.values()))
        left = self._tokens.take(min(AT_ONCE, waiting), self._timer())
        batch: list[Series] = []
        for urgency in self._unwritten.values():
            batch += [urgency.pop(name) for name in list(islice(urgency, left - len(batch)))]
        return batch

    async def flushed(self) -> None:
        """Wait until everything recorded so far has been written or dropped."""
        await self._idle.wait()

    async def _write(self, batch: list[Series]) -> bool:
        """False when the server is away."""
        fresh = [(series, series.count) for series in batch if not series.written]
        known = [(series, series.count) for series in batch if series.written]
        counted = asyncio.gather(*(self._count(*one) for one in known))
        made = await self._create(fresh) if fresh else []
        for (series, count), refused in zip((*fresh, *known), (*made, *await counted), strict=True):
            self._told(series, count, refused)
        return not any(isinstance(refused, Unreachable) for refused in (*made, *counted.result()))

    def _told(self, series: Series, count: int, refused: Refused) -> None:
        if refused is None:
            series.written, series.tries = count, 0
            self.result.written += 1
        elif isinstance(refused, ApiError):
            if not (refused.already_exists and series.tries):  # an earlier try may have got through
                self._drop(refused.what)
        else:
            series.tries += 1
            if series.tries < MOST_TRIES:
                self._unwritten[series.type].setdefault(series.name, series)
            else:
                self._drop(refused.what)

    def _drop(self, because: str) -> None:
        self.result.dropped += 1
        self.result.because = because

    async def _count(self, series: Series, count: int) -> Refused:
        patch = {"count": count, "lastTimestamp": series.last, "message": series.message}
        try:
            await self._api.patch(EVENTS, series.name, patch, namespace_of(series))
        except Unreachable as error:
            return error
        except ApiError as error:
            if not error.not_found:
                return error
            return (await self._create([(series, count)]))[0]  # the server has let it expire
        return None

    async def _create(self, batch: list[tuple[Series, int]]) -> Sequence[Refused]:
        found = [Submission(self._body(series, count), namespace_of(series)) for series, count in batch]
        return await self._api.submit(EVENTS, found)

    def _body(self, series: Series, count: int) -> Event:
        source = self._source
        return Event(
            api_version="v1",
            kind="Event",
            metadata=EventMetadata(series.name, namespace_of(series), dict(series.annotations or {}) or UNSET),
            involved_object=_subject(series.regarding),
            type=series.type,
            reason=series.reason,
            message=series.message,
            source=source,
            reporting_component=source.component,
            reporting_instance=source.host or "",
            first_timestamp=series.first,
            last_timestamp=series.last,
            count=count,
        )


def _subject(reference: JsonObject) -> ObjectReference:
    part = reference.get
    return ObjectReference(
        api_version=part("apiVersion", UNSET),
        kind=part("kind", UNSET),
        namespace=part("namespace", UNSET),
        name=part("name", UNSET),
        uid=part("uid", UNSET),
        resource_version=part("resourceVersion", UNSET),
        field_path=part("fieldPath", UNSET),
    )


def shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"


def reference_to(regarding: JsonObject) -> JsonObject:
    """An ObjectReference, from an object or from one that is a reference already."""
    metadata = regarding.get("metadata")
    if not isinstance(metadata, dict):
        return regarding
    found = {
        "apiVersion": regarding.get("apiVersion", ""),
        "kind": regarding.get("kind", ""),
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    return {name: value for name, value in found.items() if value}


def identity_of(reference: JsonObject) -> Reference:
    """What makes two references mean the same object; its resourceVersion does not."""
    part = reference.get
    return part("apiVersion", ""), part("kind", ""), part("namespace", ""), part("name", ""), part("uid", "")


def namespace_of(series: Series) -> str:
    """Events about cluster-wide objects live in `default`."""
    return str(series.regarding.get("namespace") or "default")
