"""A conformance kit for class providers: asks one at a socket what a relay would, and what a broken one might.

`kubeqos provider conformance unix:///run/turbo.sock` prints the report. The kit assigns classes to a process of its
own; a provider under test should not serve a node at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeqos.cri.providers import classprovider_pb2 as pb
from kubeqos.cri.providers.edge import offer_problems
from kubeqos.cri.providers.protocol import Advertisement, Level, Place, Subject
from kubeqos.cri.providers.remote import CALL_SECONDS, METHODS, SERVICE, RemoteProvider
from kubeqos.errors import RemoteError
from kubeqos.plugins.examined import Check, NotApplicable, Step, checked

SETTLE_SECONDS = 0.5
"""How long a stream has to stay open to be one."""
AT_ONCE = 100
_LONG = "x" * 1_000_000
_NOWHERE = "no-such-class"


class Kit:
    """One run against one provider."""

    def __init__(self, socket: Path, config: Any = None) -> None:
        self.provider = RemoteProvider("under test", f"unix://{socket}", config)
        self.config = config
        self.report: list[Check] = []
        self.offers: tuple[Advertisement, ...] = ()
        self.place = Place()
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")])

    async def run(self) -> list[Check]:
        """Every check, in the order of a container's life, the hostile ones last; stops early when nobody listens."""
        async with _somebody() as self.place:
            try:
                if await self._check("Advertise says what is on offer, and can be believed", self._advertise):
                    for name, step in self._steps():
                        await self._check(name, step)
            finally:
                await self.provider.close()
                await self._channel.close(None)
        return self.report

    def _steps(self) -> list[tuple[str, Step]]:
        return [
            ("Advertise keeps its stream open", self._stays),
            ("Advertise says the same to whoever asks", self._again),
            ("Check agrees to every class that is offered", self._agrees),
            ("Apply gives edits that can be made, and the same again", self._edits),
            ("Enter can be repeated", self._enters),
            ("Move goes to another class and back, and out of all", self._moves),
            ("Withdraw can be repeated, and of somebody unknown", self._withdraws),
            ("Report gives measurements that can be exported", self._reports),
            ("hostile: a class that is not offered is refused", self._unknown_class),
            ("hostile: a resource that is not offered is refused", self._unknown_resource),
            ("hostile: an empty request to every call", self._empty),
            ("hostile: bytes that are no message", self._garbage),
            ("hostile: a name of a million letters", self._long),
            (f"hostile: {AT_ONCE} calls at once are answered", self._crowd),
            ("after all this the stream is still open", self._stays),
        ]

    async def _check(self, name: str, step: Step) -> bool:
        self.report.append(await checked(name, step))
        return self.report[-1].passed is not False

    # ---- what is on offer

    async def _advertise(self) -> str | None:
        self.offers = tuple(await self.provider.advertise())
        return next(offer_problems(self.offers), None if self.offers else "nothing is on offer")

    async def _stays(self) -> str | None:
        news = self.provider.news
        await asyncio.sleep(SETTLE_SECONDS)
        still = tuple(await self.provider.advertise())
        if self.provider.news == news or still != self.offers:
            return None if still == self.offers else "what is on offer changed although nobody asked for it"
        return "the stream ended: its classes would be taken off the node"

    async def _again(self) -> str | None:
        other = RemoteProvider("under test", self.provider.endpoint, self.config)
        try:
            said = tuple(await other.advertise())
        finally:
            await other.close()
        return None if said == self.offers else f"{said} is not {self.offers}"

    # ---- a life

    def _pairs(self) -> list[tuple[Subject, str, str]]:
        return [(_subject(offer.level), offer.name, one.name) for offer in self.offers for one in offer.classes]

    async def _agrees(self) -> str | None:
        for subject, resource, cls in self._pairs():
            first, second = [await self.provider.check(subject, resource, cls) for _ in range(2)]
            if first != second:
                return f"{resource}={cls}: {first} became {second}; Check changes nothing"
            if first is not None:
                return f"{resource}={cls} is offered and refused: {first}"
        return None

    async def _edits(self) -> str | None:
        for subject, resource, cls in self._pairs():
            first, second = [await self.provider.apply(subject, resource, cls) for _ in range(2)]
            if first != second:
                return f"{resource}={cls}: {first} became {second}"
        return None

    async def _enters(self) -> str | None:
        for subject, resource, cls in self._pairs():
            for _ in range(2):
                await self.provider.enter(subject, self.place, resource, cls)
            await self.provider.withdraw(subject, resource, cls)
        return None

    async def _moves(self) -> str | None:
        movable = [offer for offer in self.offers if offer.mutable]
        if not movable:
            raise NotApplicable("no resource of it can be changed while somebody runs")
        for offer in movable:
            subject, names = _subject(offer.level), [one.name for one in offer.classes]
            way = ["", names[0], names[-1], names[0], ""]
            for old, new in itertools.pairwise(way):
                await self.provider.move(subject, self.place, offer.name, old, new)
        return None

    async def _withdraws(self) -> str | None:
        for subject, resource, cls in self._pairs():
            for _ in range(2):
                await self.provider.withdraw(replace(subject, id="nobody"), resource, cls)
        return None

    async def _reports(self) -> str | None:
        await self.provider.report()
        return None

    # ---- what nobody should send

    async def _unknown_class(self) -> str | None:
        return await self._refused(self.offers[0].name, _NOWHERE)

    async def _unknown_resource(self) -> str | None:
        return await self._refused("example.com/no-such-resource", self.offers[0].classes[0].name)

    async def _refused(self, resource: str, cls: str) -> str | None:
        """A refusal is an answer; so is an error."""
        try:
            refusal = await self.provider.check(_subject(self.offers[0].level), resource, cls)
            edit = await self.provider.apply(_subject(self.offers[0].level), resource, cls) if refusal is None else None
        except RemoteError:
            return await self._alive()
        return f"{resource}={cls} was given {edit}" if refusal is None else await self._alive()

    async def _empty(self) -> str | None:
        return await self._survives(dict.fromkeys(METHODS, b""))

    async def _garbage(self) -> str | None:
        return await self._survives(dict.fromkeys(METHODS, b"\xff\xff\xff\xff no message"))

    async def _long(self) -> str | None:
        subject = pb.Subject(id=_LONG, pod_name=_LONG)
        body = pb.ClassRequest(subject=subject, resource=_LONG, class_name=_LONG).SerializeToString()
        return await self._survives({name: body for name in METHODS if name != "Report"})

    async def _survives(self, sent: dict[str, bytes]) -> str | None:
        """Whatever it answers, it answers, and goes on."""
        for method, body in sent.items():
            call = self._channel.unary_unary(
                f"/{SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
            )
            try:
                await call(body, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return f"{method} did not answer within {CALL_SECONDS:g} s"
        return await self._alive()

    async def _crowd(self) -> str | None:
        subject, resource, cls = self._pairs()[0]
        calls = [self.provider.check(replace(subject, id=str(n)), resource, cls) for n in range(AT_ONCE)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, RemoteError)]
        return f"{len(failed)} failed: {failed[0].what}" if failed else None

    async def _alive(self) -> str | None:
        """Whether an ordinary call is still answered."""
        subject, resource, cls = self._pairs()[0]
        await self.provider.check(subject, resource, cls)
        return None


def _subject(level: Level) -> Subject:
    container = "main" if level is Level.CONTAINER else ""
    return Subject(level, "conformance", "conformance-pod", "uid", "default", "conformance", container)


@contextlib.asynccontextmanager
async def _somebody() -> AsyncIterator[Place]:
    """A process that runs, for calls that say where."""
    process = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        lines = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
        yield Place(process.pid, lines[-1].split(":", 2)[2] if lines else "")
    finally:
        process.kill()
        await process.wait()
