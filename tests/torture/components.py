"""Who lives: components, their lives one after the other, and how something is done in one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.torture.virtualtime import Incarnation, VirtualLoop


class Components:
    """The present life of every component, by name."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.lives: dict[str, Incarnation] = {}
        self.graveyard: list[Incarnation] = []
        self.deaths = 0
        loop.kill = self.kill

    def begin(self, name: str) -> Incarnation:
        """A new life; the last one must have ended."""
        before = self.lives.get(name)
        assert before is None or not before.alive, f"{name} lives"
        life = self.lives[name] = Incarnation(name, before.number + 1 if before else 1)
        return life

    def kill(self, life: Incarnation) -> None:
        """As kill -9 does: not one callback more. Who was connected notices."""
        if life.alive:
            life.alive = False
            self.deaths += 1
            self.graveyard.append(life)
            for callback in list(life.on_death):
                callback()

    def spawn(self, life: Incarnation, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something as a part of this component."""
        return self.loop.create_task(work, context=life.context.copy())

    def call(self, life: Incarnation, work: Coroutine[Any, Any, Any], lost: Callable[[], Exception]) -> Any:
        """A future of what a component answers; `lost()` when it dies before it has."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        if not life.alive:
            work.close()
            answer.set_exception(lost())
            return answer

        async def carry_out() -> None:
            try:
                result = await work
            except asyncio.CancelledError:
                died()
                raise
            except Exception as error:  # noqa: BLE001 - the other end is told
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)
            life.on_death.pop(died, None)

        def died() -> None:
            if not answer.done():
                answer.set_exception(lost())

        life.on_death[died] = None
        self.spawn(life, carry_out())
        return answer
