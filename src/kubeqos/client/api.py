"""The API as its clients see it: verbs on resources, over whatever carries a request.

Controllers, scheduler, node agent and CLI are written against `Api`. `TransportApi` implements it once, over a
`Transport` that moves one request: `http.HttpTransport` by network, the embedded API server in-process. Lists and
watches hand out the objects' own bytes, because caches keep bytes; single objects are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import Resource
from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json, typed_decoder
from kubeqos.model.messages import Message

JSON = "application/json"
T = TypeVar("T")


class PatchType(Enum):
    """How a patch is to be read."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object's metadata that caches need."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-wide objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Head(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


class WatchEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the object's bytes."""

    type: str
    object: bytes

    def metadata(self) -> Metadata:
        return metadata_of(self.object)


class Listing(msgspec.Struct, frozen=True):
    """The objects of a collection, as bytes, and the revision to watch from."""

    items: list[bytes]
    resource_version: str


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_head = typed_decoder(_Head)
_decode_list = typed_decoder(_List)
_decode_event = typed_decoder(_Event)


def metadata_of(raw: bytes) -> Metadata:
    """Name, namespace, uid and resourceVersion, without decoding the rest."""
    return decoded(_decode_head, raw).metadata


class Call(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = JSON


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A complete response."""

    status: int
    body: bytes


class Transport(Protocol):
    """Carries requests. It raises `Unreachable`; that a server refuses is an answer."""

    async def send(self, call: Call) -> Answer: ...

    def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The body as it comes, in pieces of any size; `ApiError` when the answer is a failure."""

    async def close(self) -> None: ...


@runtime_checkable
class SendsTogether(Protocol):
    """A transport for which many requests at once are less work than one after the other."""

    async def send_all(self, calls: Sequence[Call]) -> Sequence[Answer | Unreachable]: ...


class Submission(msgspec.Struct, frozen=True, gc=False):
    """A new object, or a subresource that is created (`binding`) of a named one."""

    body: JsonObject | Message
    namespace: str = ""
    name: str = ""
    subresource: str = ""


Refused = ApiError | Unreachable | None
"""Why something was not done; None: it was."""


class Followed(Protocol):
    """What an informer asks: all of a kind, then what changes of it, and whether there is such a kind."""

    async def read(self, path: str) -> JsonObject:
        """What the server says at a path that is no object's, such as discovery."""

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", page: int = 0
    ) -> Listing: ...

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent, None]: ...


class Api(Followed, Protocol):
    """What the rest of kubeqos may ask of an API server. Refusals are `ApiError`."""

    async def get(self, resource: Resource, name: str, namespace: str = "", *, subresource: str = "") -> JsonObject: ...

    async def create(
        self, resource: Resource, body: JsonObject, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> JsonObject: ...

    async def submit(self, resource: Resource, objects: Sequence[Submission]) -> Sequence[Refused]:
        """`create` of many at once, for those who need not read what was made of them: what became of each."""

    async def update(self, resource: Resource, body: JsonObject, *, subresource: str = "") -> JsonObject: ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        manager: str = "",
        force: bool = False,
    ) -> JsonObject: ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> JsonObject: ...


class TransportApi:
    """`Api` over a `Transport`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._together = transport if isinstance(transport, SendsTogether) else None  # asked once: it takes a while

    async def close(self) -> None:
        await self.transport.close()

    async def get(self, resource: Resource, name: str, namespace: str = "", *, subresource: str = "") -> JsonObject:
        """One object."""
        return await self._object(Call("GET", resource.path(namespace, name, subresource)))

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = "", page: int = 0
    ) -> Listing:
        """A collection at one revision; `page` bounds each request. An expired page starts over, unpaged."""
        query = selection(labels, fields)
        items: list[bytes] = []
        if page:
            query["limit"] = str(page)
        while True:
            try:
                answer = await self._answer(Call("GET", resource.path(namespace), query))
            except ApiError as error:
                if not (error.expired and "continue" in query):
                    raise
                query, items = selection(labels, fields), []
                continue
            found = decoded(_decode_list, answer.body)
            items += map(bytes, found.items or ())
            if not found.metadata.continue_:
                return Listing(items, found.metadata.resource_version)
            query["continue"] = found.metadata.continue_

    async def read(self, path: str) -> JsonObject:
        """What the server says at a path that is no object's, such as discovery."""
        return await self._object(Call("GET", path))

    async def create(
        self, resource: Resource, body: JsonObject, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> JsonObject:
        """A new object, or a subresource that is created (`binding`, `eviction`) of a named one."""
        return await self._object(_creation(resource, body, namespace, name, subresource))

    async def submit(self, resource: Resource, objects: Sequence[Submission]) -> Sequence[Refused]:
        """Many at once, without reading the answers, unless they are refusals."""
        calls = [_creation(resource, one.body, one.namespace, one.name, one.subresource) for one in objects]
        if self._together is not None:
            answers = await self._together.send_all(calls)
        else:
            answers = await asyncio.gather(*map(self._sent, calls))
        return [_refused(answer) for answer in answers]

    async def _sent(self, call: Call) -> Answer | Unreachable:
        try:
            return await self.transport.send(call)
        except Unreachable as error:
            return error

    async def update(self, resource: Resource, body: JsonObject, *, subresource: str = "") -> JsonObject:
        """Replace an object; with its resourceVersion, only if nobody else did."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._object(Call("PUT", path, body=encode_json(body)))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        manager: str = "",
        force: bool = False,
    ) -> JsonObject:
        """Change a part of an object; APPLY needs a `manager`."""
        query = {"fieldManager": manager} if manager else {}
        if force:
            query["force"] = "true"
        path = resource.path(namespace, name, subresource)
        return await self._object(Call("PATCH", path, query, encode_json(patch), type.value))

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> JsonObject:
        """Delete an object; with a `uid`, only that one and not a namesake that followed it."""
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        return await self._object(Call("DELETE", resource.path(namespace, name), body=encode_json(options)))

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events after a resourceVersion, bookmarks included; ends as the server ends it, raises its ERROR event."""
        query = {**selection(labels, fields), "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        if seconds:
            query["timeoutSeconds"] = str(seconds)
        stream = self.transport.stream(Call("GET", resource.path(namespace), query))
        async with aclosing(lines(stream)) as found:
            async for whole in found:
                for line in whole:
                    yield _event_of(line)

    async def _object(self, call: Call) -> JsonObject:
        found = decoded(decode_json, (await self._answer(call)).body)
        if not isinstance(found, dict):
            raise ApiError(502, "", "the server's answer is not an object")
        return found

    async def _answer(self, call: Call) -> Answer:
        answer = await self.transport.send(call)
        if answer.status >= 400:
            raise ApiError.of(answer.status, answer.body)
        return answer


def _refused(answer: Answer | Unreachable) -> Refused:
    if isinstance(answer, Unreachable):
        return answer
    return ApiError.of(answer.status, answer.body) if answer.status >= 400 else None


def _creation(resource: Resource, body: JsonObject | Message, namespace: str, name: str, subresource: str) -> Call:
    if not namespace:
        namespace = (
            (body.get("metadata") or {}).get("namespace", "") if isinstance(body, dict) else body.metadata.namespace
        )
    return Call("POST", resource.path(namespace, name, subresource), body=encode_json(body))


_OPENINGS = {f'{{"type":"{kind}","object":'.encode(): kind for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")}


def _event_of(line: bytes) -> WatchEvent:
    """An event of a watch. In the usual form its object is cut out; who looks into it finds whether it is one."""
    start = line.find(b"{", 1)
    kind = _OPENINGS.get(line[:start])
    if kind is not None:
        return WatchEvent(kind, line[start:-1])
    event = decoded(_decode_event, line)
    if event.type == "ERROR":
        raise ApiError.of(500, bytes(event.object))
    return WatchEvent(event.type, bytes(event.object))


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """A server that answers with something else, a proxy's login page for example, is one that failed."""
    try:
        return decode(body)
    except (JsonError, UnicodeDecodeError) as error:
        text = body[:80].decode(errors="replace").strip().partition("\n")[0]
        raise ApiError(502, "", f"the server's answer cannot be read: {error}: {text}") from error


def selection(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


async def lines(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[list[bytes], None]:
    """Whole lines of a stream, as many as come together; what a cut connection leaves of a line is dropped."""
    rest: list[bytes] = []
    async with aclosing(stream):
        async for piece in stream:
            *whole, last = piece.split(b"\n")
            if whole:
                if rest:
                    whole[0] = b"".join([*rest, whole[0]])
                    rest = []
                yield whole
            if last:
                rest.append(last)
