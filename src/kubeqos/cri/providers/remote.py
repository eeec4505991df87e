"""A class provider in another process: the relay's end, and a server that gives any provider a socket.

A vendor who writes Python can use `serve`; others implement `classprovider.proto` in their own language.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from kubeqos.codec import encode_json
from kubeqos.cri.providers import classprovider_pb2 as pb
from kubeqos.cri.providers.edge import edit_problems, offer_problems, sample_problems
from kubeqos.cri.providers.protocol import (
    Advertisement,
    ClassInfo,
    ClassProvider,
    ClassRefusal,
    Edit,
    Level,
    Place,
    Sample,
    Subject,
)
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger
from kubeqos.plugins.sockets import Deadline, PluginCallError, call

CALL_SECONDS = 4.0
SERVICE = "kubeqos.classprovider.v1.ClassProvider"
LEVELS = {Level.CONTAINER: pb.CONTAINER, Level.POD: pb.POD}
ADVERTISE = "Advertise"
NEWS_SECONDS = 0.2
"""How often the provider's end looks whether there is something new to tell."""
_CHANNEL = (
    ("grpc.default_authority", "localhost"),
    # One that comes back is found within a second, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
METHODS: dict[str, tuple[Any, Any]] = {
    "Check": (pb.ClassRequest, pb.CheckResponse),
    "Apply": (pb.ClassRequest, pb.ApplyResponse),
    "Enter": (pb.ClassRequest, pb.Done),
    "Move": (pb.ClassRequest, pb.Done),
    "Report": (pb.ReportRequest, pb.ReportResponse),
    "Withdraw": (pb.ClassRequest, pb.Done),
}
T = TypeVar("T")
log = logger("kubeqos.relay")


def connect(name: str, endpoint: str, config: Any) -> ClassProvider:
    return RemoteProvider(name, endpoint, config)


class RemoteProvider(ClassProvider):
    """Calls a provider over its socket."""

    def __init__(self, name: str, endpoint: str, config: Any) -> None:
        self.name = name
        self.endpoint = endpoint
        self.config = config
        path = endpoint.removeprefix("unix://")
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=_CHANNEL)
        self._offers: tuple[Advertisement, ...] = ()
        self._listening: asyncio.Task[None] | None = None

    async def advertise(self) -> Sequence[Advertisement]:
        """What the provider said last on its stream, which is opened when there is none."""
        if self._listening is None or self._listening.done():
            request = pb.AdvertiseRequest(config_json=encode_json(self.config).decode())
            opening = self._channel.unary_stream(
                f"/{SERVICE}/{ADVERTISE}",
                request_serializer=pb.AdvertiseRequest.SerializeToString,
                response_deserializer=pb.AdvertiseResponse.FromString,
            )
            stream: Any = opening(request)
            answers, deadline = aiter(stream), Deadline(stream, CALL_SECONDS)
            try:
                first = await anext(answers, None)
            except asyncio.CancelledError as error:
                if not deadline.passed:
                    raise
                raise self._failed(ADVERTISE, f"no answer within {CALL_SECONDS:g} s") from error
            except grpc.aio.AioRpcError as error:
                raise self._failed(ADVERTISE, f"{error.details()} ({error.code().name})") from error
            finally:
                deadline.end()
            if first is None:
                raise self._failed(ADVERTISE, "the stream ended without an offer")
            offers = _offers(first)
            if wrong := list(offer_problems(offers)):
                stream.cancel()
                raise self._failed(ADVERTISE, f"it offers what cannot be: {'; '.join(wrong[:3])}")
            self._offers = offers
            self._listening = asyncio.create_task(self._listen(answers))
        return self._offers

    async def _listen(self, answers: AsyncIterator[pb.AdvertiseResponse]) -> None:
        """Take what else the provider says, until it goes."""
        with contextlib.suppress(grpc.aio.AioRpcError):  # gone, as at the stream's end: who asks next learns why
            async for said in answers:
                offers = _offers(said)
                if wrong := list(offer_problems(offers)):
                    log.warning("a class provider's offer is not believed", provider=self.name, error=wrong[0])
                    continue
                self._offers = offers
                self.news += 1
        self.news += 1

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        answer: pb.CheckResponse = await self._call("Check", _request(subject, resource, class_name))
        return ClassRefusal(answer.refusal, answer.remedy) if answer.refusal else None

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        answer: pb.ApplyResponse = await self._call("Apply", _request(subject, resource, class_name))
        edit = Edit(dict(answer.annotations), {**answer.numbers, **answer.texts}, dict(answer.unified))
        if wrong := list(edit_problems(edit)):
            raise self._failed("Apply", f"its edit cannot be made: {'; '.join(wrong[:3])}")
        return edit

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        await self._call("Enter", _request(subject, resource, class_name, place))

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        await self._call("Move", _request(subject, resource, new, place, old))

    async def report(self) -> Sequence[Sample]:
        answer: pb.ReportResponse = await self._call("Report", pb.ReportRequest())
        samples = tuple(Sample(s.name, s.help, dict(s.labels), s.value, s.counter) for s in answer.samples)
        if wrong := next(sample_problems(samples), ""):
            raise self._failed("Report", wrong)
        return samples

    async def withdraw(self, subject: Subject, resource: str, class_name: str) -> None:
        await self._call("Withdraw", _request(subject, resource, class_name))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._channel.close(None)

    async def _call(self, method: str, request: Any) -> Any:
        try:
            return await call(self._channel, f"/{SERVICE}/{method}", request, METHODS[method][1], seconds=CALL_SECONDS)
        except PluginCallError as error:
            raise self._failed(method, error.said) from error

    def _failed(self, method: str, why: str) -> RemoteError:
        what = f"class provider {self.name!r}: {method}: {why}"
        return RemoteError(what, where=self.endpoint, remedy="check that the provider runs")


def _offers(said: pb.AdvertiseResponse) -> tuple[Advertisement, ...]:
    return tuple(
        Advertisement(
            item.name,
            Level.POD if item.level == pb.POD else Level.CONTAINER,
            item.mutable,
            tuple(ClassInfo(c.name, c.capacity) for c in item.classes),
            item.default_class,
        )
        for item in said.resources
    )


def _request(
    subject: Subject, resource: str, class_name: str, place: Place | None = None, old: str = ""
) -> pb.ClassRequest:
    fields = {name: getattr(subject, name) for name in Subject.__slots__ if name != "level"}
    return pb.ClassRequest(
        subject=pb.Subject(level=LEVELS[subject.level], **fields),
        resource=resource,
        class_name=class_name,
        old_class=old,
        place=pb.Place(pid=place.pid, cgroup=place.cgroup) if place else None,
    )


async def serve(provider: ClassProvider, path: str) -> grpc.aio.Server:
    """Put a provider on a unix socket; the caller keeps the server."""
    servicer = _Servicer(provider)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, name),
            request_deserializer=kinds[0].FromString,
            response_serializer=kinds[1].SerializeToString,
        )
        for name, kinds in METHODS.items()
    }
    handlers[ADVERTISE] = grpc.unary_stream_rpc_method_handler(
        servicer.Advertise,
        request_deserializer=pb.AdvertiseRequest.FromString,
        response_serializer=pb.AdvertiseResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server


class _Servicer:
    """The provider's end: messages to plain values and back."""

    def __init__(self, provider: ClassProvider) -> None:
        self.provider = provider

    async def Advertise(self, request: pb.AdvertiseRequest, context: Any) -> AsyncIterator[pb.AdvertiseResponse]:
        told = -1
        with contextlib.suppress(asyncio.CancelledError):  # the relay hangs up, or this process ends: no error
            while True:
                if self.provider.news != told:
                    told = self.provider.news
                    yield _advertised(await _guarded(self.provider.advertise(), context))
                await asyncio.sleep(NEWS_SECONDS)

    async def Check(self, request: pb.ClassRequest, context: Any) -> pb.CheckResponse:
        call = self.provider.check(_subject(request), request.resource, request.class_name)
        refusal = await _guarded(call, context)
        return pb.CheckResponse(refusal=refusal.what, remedy=refusal.remedy) if refusal else pb.CheckResponse()

    async def Apply(self, request: pb.ClassRequest, context: Any) -> pb.ApplyResponse:
        edit = await _guarded(self.provider.apply(_subject(request), request.resource, request.class_name), context)
        return pb.ApplyResponse(
            annotations=edit.annotations,
            numbers={name: value for name, value in edit.resources.items() if isinstance(value, int)},
            texts={name: value for name, value in edit.resources.items() if isinstance(value, str)},
            unified=edit.unified,
        )

    async def Enter(self, request: pb.ClassRequest, context: Any) -> pb.Done:
        call = self.provider.enter(_subject(request), _place(request), request.resource, request.class_name)
        await _guarded(call, context)
        return pb.Done()

    async def Move(self, request: pb.ClassRequest, context: Any) -> pb.Done:
        old, new = request.old_class, request.class_name
        await _guarded(self.provider.move(_subject(request), _place(request), request.resource, old, new), context)
        return pb.Done()

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportResponse:
        samples = await _guarded(self.provider.report(), context)
        return pb.ReportResponse(
            samples=[
                pb.Sample(name=s.name, help=s.help, labels=s.labels, value=s.value, counter=s.counter) for s in samples
            ]
        )

    async def Withdraw(self, request: pb.ClassRequest, context: Any) -> pb.Done:
        await _guarded(self.provider.withdraw(_subject(request), request.resource, request.class_name), context)
        return pb.Done()


def _advertised(offers: Sequence[Advertisement]) -> pb.AdvertiseResponse:
    return pb.AdvertiseResponse(
        resources=[
            pb.Resource(
                name=o.name,
                level=LEVELS[o.level],
                mutable=o.mutable,
                classes=[pb.Class(name=c.name, capacity=c.capacity) for c in o.classes],
                default_class=o.default,
            )
            for o in offers
        ]
    )


async def _guarded(call: Awaitable[T], context: Any) -> T:
    """A provider's error becomes a gRPC status with its text."""
    try:
        return await call
    except KubeqosError as error:
        await context.abort(grpc.StatusCode.INTERNAL, " ".join(line.strip() for line in error.lines()))
        raise


def _subject(request: pb.ClassRequest) -> Subject:
    sent = request.subject
    fields = {name: getattr(sent, name) for name in Subject.__slots__ if name != "level"}
    return Subject(Level.POD if sent.level == pb.POD else Level.CONTAINER, **fields)


def _place(request: pb.ClassRequest) -> Place:
    return Place(request.place.pid, request.place.cgroup)
