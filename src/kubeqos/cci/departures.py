"""Drivers that still have to hear that a container is gone.

The CPUs of a removed container stay held until its driver has said yes (KEP-3675, Figure 3: "on success, the CCI store
will be also cleaned"), but not for ever: after a while they are free again whatever the driver does. Held by the
manager; what is outstanding is part of the store and so survives a restart.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kubeqos.cci.drivers import Drivers
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.store import Departure, Holding, Store
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.model.cpuset import NO_CPUS

log = logger("kubeqos.cci")


@dataclass
class Departures:
    """The outstanding removals of one store."""

    store: Store
    drivers: Drivers
    patience_seconds: float
    clock: Callable[[], float]
    since: dict[Departure, float] = field(default_factory=dict)
    _delivering: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Each driver hears one thing after the other; no driver waits for another."""

    def add(self, holding: Holding, container_id: str = "") -> None:
        """A claim of a container is over; without sets, the driver may have reserved something that is not known."""
        whole = NO_CPUS
        for held in holding.sets:
            whole |= held.whole
        departure = Departure(
            holding.driver, holding.namespace, holding.claim_uid, holding.claim_name, container_id, whole
        )
        if departure not in self.store.departures:
            self.store.departures.append(departure)

    def withdraw(self, claim_uid: str, container_id: str) -> None:
        """The container is there after all."""
        gone = [one for one in self.store.departures if (one.claim_uid, one.container_id) == (claim_uid, container_id)]
        for departure in gone:
            self.store.departures.remove(departure)
            self.since.pop(departure, None)

    async def all_heard(self, driver: str, claim_uid: str) -> bool:
        """Whether nothing of this claim is outstanding at its driver, after trying once more."""
        if any(each.claim_uid == claim_uid for each in self.store.departures):
            await self.deliver(driver)
        return all(each.claim_uid != claim_uid for each in self.store.departures)

    async def deliver(self, driver: str) -> bool:
        """Tell one driver what it has still to hear; whether anything was heard."""
        found = False
        async with self._delivering[driver]:
            for departure in [one for one in self.store.departures if one.driver == driver]:
                first = self.since.setdefault(departure, self.clock())
                heard = await self._heard(departure)
                if not heard and self.clock() - first < self.patience_seconds:
                    continue
                if not heard:
                    log.warning("driver was not told", driver=departure.driver, claim=departure.claim_name)
                self.since.pop(departure, None)
                if departure in self.store.departures:  # it may have been withdrawn meanwhile
                    self.store.departures.remove(departure)
                    found = True
        return found

    async def deliver_to(self, drivers: Collection[str]) -> None:
        """`deliver` for several drivers, none of which waits for another."""
        await asyncio.gather(*map(self.deliver, drivers))

    async def _heard(self, departure: Departure) -> bool:
        driver = self.drivers.choose(departure.driver)
        if isinstance(driver, str):
            return False
        request = pb.RemoveResourceRequest(
            namespace=departure.namespace,
            claim_uid=departure.claim_uid,
            claim_name=departure.claim_name,
            container_id=departure.container_id,
        )
        try:
            answer = await self.drivers.invoke(driver, "CCIRemoveContainerResource", request)
        except RemoteError:
            return False
        if answer.err:
            log.warning("driver refuses a removal", driver=departure.driver, reason=answer.err)
        return not answer.err
