"""Tells a kube-scheduler that there is room where its extender said there was none.

A kube-scheduler asks again about a pod when it hears of something that could help. Of what only we know it hears
nothing, and of a pod that ends it may hear before we do: it asks, is refused, and has no reason to ask again for five
minutes. So every refusal is remembered, looked at again, and when it would not be given any more the node that has
room now is touched: an annotation of a Node is an event that a kube-scheduler hears. Run by `kubeqos scheduler
--stock`, on every replica, for what that replica has answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.client import Api, ApiError, Unreachable
from kubeqos.client.resources import NODES
from kubeqos.logs import logger
from kubeqos.model.timestamps import timestamp
from kubeqos.stock.names import ROOM
from kubeqos.stock.scheduling.extender import filtered
from kubeqos.stock.scheduling.scheduler import StockScheduler

LOOK_SECONDS = 0.5
FORGET_SECONDS = 600.0
"""By then a kube-scheduler has asked again by itself."""
MOST = 200
"""Refusals that are looked at in one turn; the others have the next one."""
log = logger("kubeqos.scheduler")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod, and the nodes that were said not to have room for it."""

    pod: Mapping[str, Any]
    nodes: tuple[str, ...]
    at: float


class Waking:
    """The refusals of one replica."""

    def __init__(self, api: Api, core: StockScheduler, now: Callable[[], float] = time.time) -> None:
        self._api, self._core, self._now = api, core, now
        self.refusals: dict[str, Refusal] = {}

    def answered(self, args: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """What `filter` has answered: nodes that will do are an end of it, others are remembered."""
        uid = str(args["Pod"]["metadata"].get("uid", ""))
        self.refusals.pop(uid, None)
        failed = (*answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"])
        # Where some nodes fit, the kube-scheduler has others to choose; it asks anew if these do not work out.
        if failed and not answer.get("NodeNames") and not (answer.get("Nodes") or {}).get("items"):
            self.refusals[uid] = Refusal(args["Pod"], failed, self._now())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except (ApiError, Unreachable) as error:
                log.warning("a kube-scheduler could not be told of room", error=error.what)

    async def look(self) -> None:
        """Touch the nodes that have room by now."""
        touched: set[str] = set()
        for uid, refusal in list(self.refusals.items())[:MOST]:
            if self._now() - refusal.at > FORGET_SECONDS or uid in self._core.cluster.where:
                del self.refusals[uid]
                continue
            asked = {"Pod": refusal.pod, "NodeNames": refusal.nodes}
            fits = [name for name in filtered(self._core, asked)["NodeNames"] if name in self._core.cluster.row_of]
            if fits and not touched & {*fits}:
                told = {"metadata": {"annotations": {ROOM: timestamp(self._now())}}}
                await self._api.patch(NODES, fits[0], told)
                touched.add(fits[0])
            if fits:
                self.refusals.pop(uid, None)  # asked about again, it is answered again
            else:
                self.refusals[uid] = self.refusals.pop(uid)  # behind the others
