"""Calls that take longer than a pod should wait without a word.

Pods of the same plugins take turns, so a plugin that hangs in one call and answers all others would hold up all of its
pods, one after the other. A call that outlasts the patience goes on by itself, the pod is told to try again, and finds
the answer when it does. Meanwhile, and until the plugin is quick again, none of its pods waits for it for long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubeqos.plugins.sockets import MISSES
from kubeqos.qrm.endpoint import DOUBT_SECONDS, PROBE_SECONDS, Endpoint, Unusable
from kubeqos.qrm.endpoints import Endpoints

WAIT_SECONDS = DOUBT_SECONDS + MISSES * PROBE_SECONDS + 0.5
"""Long enough to find out whether the plugin answers anything at all."""
TARDY_SECONDS = 0.05
KEEP_SECONDS = 60.0
Slot = tuple[str, str, bytes]  # plugin, method, request


@dataclass(slots=True)
class _Errand:
    pod_uid: str
    answer: asyncio.Future[Any]
    since: float


class Patience:
    """The calls of all admissions that are still under way."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._ask = endpoints.ask
        self._clock = endpoints.clock
        self._errands: dict[Slot, _Errand] = {}
        self._tardy: set[str] = set()

    async def call(self, endpoint: Endpoint, method: str, request: Any) -> Any:
        """`Endpoints.ask` for an admission; `Unusable` when the answer takes too long, to be asked for again."""
        slot = endpoint.name, method, request.SerializeToString(deterministic=True)
        errand = self._errands.pop(slot, None)
        if errand is None:
            answer = asyncio.ensure_future(self._ask(endpoint, method, request))
            errand = _Errand(request.pod_uid, answer, self._clock())
        limit = TARDY_SECONDS if endpoint.name in self._tardy else WAIT_SECONDS
        try:
            done, _ = await asyncio.wait((errand.answer,), timeout=limit)
        except asyncio.CancelledError:
            errand.answer.cancel()
            raise
        if not done:
            self._tardy.add(endpoint.name)
            self._errands[slot] = errand
            raise Unusable(endpoint.name, f"has not answered {method} yet")
        if self._clock() - errand.since < WAIT_SECONDS:
            self._tardy.discard(endpoint.name)
        return errand.answer.result()

    def plugins_of(self, pod_uid: str) -> set[str]:
        """The plugins that may be giving something to this pod right now."""
        return {slot[0] for slot, errand in self._errands.items() if errand.pod_uid == pod_uid}

    def pods(self) -> Iterable[str]:
        return {errand.pod_uid for errand in self._errands.values()}

    def forgotten(self) -> list[tuple[str, str]]:
        """Plugin and pod of calls that nobody came back for; what they were given is to be released."""
        now = self._clock()
        old = {slot: one for slot, one in self._errands.items() if now - one.since > KEEP_SECONDS}
        for slot, errand in old.items():
            del self._errands[slot]
            _drop(errand.answer)
        return [(slot[0], errand.pod_uid) for slot, errand in old.items()]

    async def close(self) -> None:
        for errand in self._errands.values():
            _drop(errand.answer)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(errand.answer for errand in self._errands.values()), return_exceptions=True)
        self._errands.clear()


def _drop(answer: asyncio.Future[Any]) -> None:
    """End a call whose answer nobody wants any more, whatever it was."""
    answer.cancel()
    if answer.done() and not answer.cancelled():
        answer.exception()
