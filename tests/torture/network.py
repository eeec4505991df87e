"""The wires between components and the API server: they delay, lose, cut and repeat (`sockets` has those on a node).

A request is carried out as a part of the server, an answer arrives as a part of the client: when one of them dies the
other goes on, as two processes do. Every message has its own delay, so those of two requests overtake each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer
from kubeqos.client import Answer, ApiError, Call, Unreachable
from kubeqos.web.identity import Identity
from kubeqos.web.messages import JSON
from tests.torture.components import Components
from tests.torture.virtualtime import Incarnation

ANSWER_SECONDS = 30.0
SILENCE_SECONDS = 120.0
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


@dataclass(slots=True)
class Weather:
    """How a link is at the moment; chances are per message."""

    slowest: float = 0.02
    loses: float = 0.0
    cuts: float = 0.0
    repeats: float = 0.0
    away: bool = False


FINE = Weather()


@dataclass
class Network:
    """All links. A link's weather is that of its own, else that of all."""

    components: Components
    chance: random.Random
    weather: dict[str, Weather] = field(default_factory=dict)
    server: Callable[[], tuple[Incarnation, ApiServer] | None] = lambda: None
    acknowledged: Callable[[Call, Answer], None] = lambda _call, _answer: None
    sent: int = 0

    def of(self, link: str) -> Weather:
        return self.weather.get(link) or self.weather.get("*") or FINE

    async def pause(self, weather: Weather) -> None:
        """Mostly short, now and then as long as it can be."""
        slow = self.chance.random()
        await asyncio.sleep(weather.slowest * (slow**3 if slow < 0.95 else slow * 3))

    def lost(self, weather: Weather) -> bool:
        return weather.away or self.chance.random() < weather.loses


class Wire:
    """A `Transport` of one component to the API server."""

    def __init__(self, network: Network, link: str, identity: Identity) -> None:
        self._network = network
        self._link = link
        self._identity = identity

    def _request(self, call: Call) -> Request:
        query = {name: [value] for name, value in call.query.items()}
        return Request(
            call.method, call.path, query, JSON, call.content_type, call.body, f"torture/{self._link}", self._identity
        )

    def _unreachable(self, call: Call, what: str, *, applied: bool) -> Unreachable:
        return Unreachable(what, where=f"{call.method} {call.path}", applied=applied)

    async def send(self, call: Call) -> Answer:
        network, weather = self._network, self._network.of(self._link)
        network.sent += 1
        await network.pause(weather)
        if network.lost(weather):
            await asyncio.sleep(ANSWER_SECONDS)
            raise self._unreachable(call, "no answer", applied=call.method != "GET")
        times = 2 if call.method in _REPEATABLE and network.chance.random() < weather.repeats else 1
        for _ in range(times):
            answer = await self._ask(call)
        await network.pause(weather)
        if network.lost(weather):
            await asyncio.sleep(ANSWER_SECONDS)
            raise self._unreachable(call, "the answer was lost", applied=call.method != "GET")
        return answer

    async def _ask(self, call: Call) -> Answer:
        found = self._network.server()
        if found is None:
            raise self._unreachable(call, "connection refused", applied=False)
        life, server = found

        async def work() -> Answer:
            _, response = await server.application.answer(self._request(call))
            return Answer(response.code, response.body)

        lost = self._unreachable(call, "connection reset", applied=call.method != "GET")
        answer: Answer = await self._network.components.call(life, work(), lambda: lost)
        self._network.acknowledged(call, answer)
        return answer

    async def send_all(self, calls: Sequence[Call]) -> list[Answer | Unreachable]:
        async def one(call: Call) -> Answer | Unreachable:
            try:
                return await self.send(call)
            except Unreachable as error:
                return error

        return list(await asyncio.gather(*(one(call) for call in calls)))

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """Chunks in order, each after its delay; the connection may be cut after any of them."""
        network, weather = self._network, self._network.of(self._link)
        await network.pause(weather)
        if network.lost(weather):
            await asyncio.sleep(ANSWER_SECONDS)
            raise self._unreachable(call, "no answer", applied=False)
        found = network.server()
        if found is None:
            raise self._unreachable(call, "connection refused", applied=False)
        life, server = found
        pipe: asyncio.Queue[bytes | ApiError | None] = asyncio.Queue()
        pump = network.components.spawn(life, self._pump(server, call, pipe))

        def died() -> None:
            pipe.put_nowait(None)

        life.on_death[died] = None
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        piece = await pipe.get()
                except TimeoutError:
                    raise self._unreachable(call, "silence", applied=False) from None
                if piece is None:
                    if life.alive:
                        return
                    raise self._unreachable(call, "connection reset", applied=False)
                if isinstance(piece, ApiError):
                    raise piece
                weather = network.of(self._link)
                await network.pause(weather)
                if weather.away:
                    await asyncio.sleep(SILENCE_SECONDS)
                    raise self._unreachable(call, "silence", applied=False)
                if network.chance.random() < weather.cuts:
                    raise self._unreachable(call, "connection reset", applied=False)
                yield piece
        finally:
            life.on_death.pop(died, None)
            pump.cancel()

    async def _pump(self, server: ApiServer, call: Call, pipe: asyncio.Queue[bytes | ApiError | None]) -> None:
        _, response = await server.application.answer(self._request(call))
        if response.stream is None:
            pipe.put_nowait(ApiError.of(response.code, response.body))
            return
        try:
            async for chunk in response.stream:
                pipe.put_nowait(chunk)
        finally:
            pipe.put_nowait(None)
            close = getattr(response.stream, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """Connections are made for each request."""
