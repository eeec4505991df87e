"""Drivers that still have to hear that a container is gone.

The CPUs of a removed container stay held until its driver has said yes (KEP-3675, Figure 3: "on success, the CCI store
will be also cleaned"), but not for ever: after a while they are free again whatever the driver does. Who refuses is
asked again, ever more slowly, and people are told. Held by the manager; what is outstanding is part of the store and so
survives a restart.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from kubeqos.cci.answers import refused
from kubeqos.cci.drivers import Drivers
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.store import Departure, Store
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.topology.claims.holdings import Holding

log = logger("kubeqos.cci")


FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 30.0
MOST_OVERDUE = 1000


@dataclass
class _Trying:
    """How telling a driver goes: since when, when it is tried next, and what was told to people about it."""

    since: float
    due: float
    pause: float = 0.0
    """The first time it is tried again at the next look."""
    told: str = ""
    overdue: bool = False
    """It has held its CPUs for long enough; they are free, and the driver is still to hear of it."""


@dataclass
class Departures:
    """The outstanding removals of one store."""

    store: Store
    drivers: Drivers
    patience_seconds: float
    clock: Callable[[], float]
    emit: Callable[[str, str], None] = lambda _reason, _message: None
    _trying: dict[Departure, _Trying] = field(default_factory=dict)
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
            self._trying.pop(departure, None)

    def withdraw(self, claim_uid: str, container_id: str) -> None:
        """The container is there after all."""
        for departure in [
            one for one in self.store.departures if (one.claim_uid, one.container_id) == (claim_uid, container_id)
        ]:
            self._drop(departure)

    async def all_heard(self, driver: str, claim_uid: str) -> bool:
        """Whether nothing of this claim is outstanding at its driver, after trying once more.

        What is overdue does not count: a driver that refuses for ever must not keep a claim from ever being used.
        """
        if self._waits(claim_uid):
            await self.deliver(driver, at_once=True)
        return not self._waits(claim_uid)

    def _waits(self, claim_uid: str) -> bool:
        return any(
            each.claim_uid == claim_uid and not ((known := self._trying.get(each)) and known.overdue)
            for each in self.store.departures
        )

    def hurry(self, driver: str) -> None:
        """What this driver has still to hear is due: it is well again."""
        now = self.clock()
        for departure, trying in self._trying.items():
            if departure.driver == driver:
                trying.due = now

    async def deliver(self, driver: str, *, at_once: bool = True) -> bool:
        """Tell one driver what it has still to hear, or what is due of it; whether the store has changed."""
        changed = False
        async with self._delivering[driver]:
            for departure in [one for one in self.store.departures if one.driver == driver]:
                now = self.clock()
                trying = self._trying.setdefault(departure, _Trying(now, now))
                if not at_once and now < trying.due:
                    continue
                problem = await self._tell(departure)
                if not problem:
                    changed |= self._drop(departure)
                elif departure in self.store.departures:
                    changed |= self._put_off(departure, trying, problem)
        return changed

    def _put_off(self, departure: Departure, trying: _Trying, problem: str) -> bool:
        """Try again later; CPUs that were held for long enough are free from now on."""
        now = self.clock()
        trying.due = now + trying.pause
        trying.pause = min(max(2 * trying.pause, FIRST_PAUSE_SECONDS), LAST_PAUSE_SECONDS)
        if problem != trying.told:
            trying.told = problem
            log.warning("removal is not taken", driver=departure.driver, claim=departure.claim_name, reason=problem)
            text = f"driver {departure.driver} does not take back claim {departure.claim_name}: {problem}"
            self.emit("ComputeDriverRemoval", f"{text}; it is tried again")
        if trying.overdue or now - trying.since < self.patience_seconds:
            return False
        text = f"driver {departure.driver} has not taken back claim {departure.claim_name}"
        self.emit("ComputeDriverRemoval", f"{text} for {self.patience_seconds:g} s: its CPUs are free for others")
        freed = replace(departure, cpus=NO_CPUS)
        self._drop(departure)
        if sum(one.overdue for one in self._trying.values()) < MOST_OVERDUE and freed not in self.store.departures:
            self.store.departures.append(freed)
            self._trying[freed] = replace(trying, overdue=True)
        return True

    def _drop(self, departure: Departure) -> bool:
        self._trying.pop(departure, None)
        known = departure in self.store.departures  # it may have been withdrawn meanwhile
        if known:
            self.store.departures.remove(departure)
        return known

    async def deliver_to(self, drivers: Collection[str]) -> None:
        """`deliver` for several drivers, none of which waits for another."""
        await asyncio.gather(*map(self.deliver, drivers))

    async def _tell(self, departure: Departure) -> str:
        """Why the driver has not taken it back; empty when it has."""
        driver = self.drivers.choose(departure.driver)
        if isinstance(driver, str):
            return driver
        request = pb.RemoveResourceRequest(
            namespace=departure.namespace,
            claim_uid=departure.claim_uid,
            claim_name=departure.claim_name,
            container_id=departure.container_id,
        )
        try:
            return refused(await self.drivers.invoke(driver, "CCIRemoveContainerResource", request))
        except RemoteError as error:
            return error.what
