"""Puts a container's claims to their drivers, and believes only what is true (`cci.answers`).

One claim at a time is put to a driver, and what it gives is reserved until the container has all of its claims; so two
drivers never wait for each other, and no CPU is given twice. Called by the manager's admission.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kubeqos.cci.answers import Lie, refused, verified
from kubeqos.cci.claims.devices import DeviceLocator
from kubeqos.cci.departures import Departures
from kubeqos.cci.drivers import Driver, Drivers
from kubeqos.cci.metrics import Metrics
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.store import Store
from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.objects import ContainerView
from kubeqos.plugins.managers import AdmittedPod, Refusal
from kubeqos.topology.claims.asks import Ask
from kubeqos.topology.claims.holdings import Holding, ResourceSet, taken_by
from kubeqos.topology.claims.parameters import Parameters
from kubeqos.topology.claims.sharing import offered

INVALID = "CCIClaimInvalid"
UNAVAILABLE = "CCIDriverUnavailable"
REFUSED = "CCIAdmissionError"
MISBEHAVED = "CCIDriverMisbehaved"
Sets = tuple[ResourceSet, ...]


@dataclass
class Claiming:
    """The drivers of one node, as pods ask them."""

    store: Store
    drivers: Drivers
    departures: Departures
    metrics: Metrics
    locate_devices: DeviceLocator
    threads: bool = False
    """EXCLUSIVE owns single threads on this node."""
    _asking: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def put(
        self, pod: AdmittedPod, view: ContainerView, asks: Sequence[Ask], holdings: list[Holding]
    ) -> Refusal | None:
        """Put each claim to its driver; what they give goes to `holdings`, and is reserved."""
        key = pod.uid, view.name
        for ask in asks:
            found = await self._put_one(pod, view, ask, holdings)
            if isinstance(found, Refusal):
                self.metrics.refused(ask.driver, found.reason)
                return found
            holdings.append(found)
            self.store.reservations[key] = self.store.reservations.get(key, NO_CPUS) | found.whole
        return None

    async def _put_one(
        self, pod: AdmittedPod, view: ContainerView, ask: Ask, before: Sequence[Holding]
    ) -> Holding | Refusal:
        """Put one claim to its driver, which has one at a time, and verify what it says."""
        name = ask.driver or next(iter(self.drivers.table), "")
        async with self._asking[name]:
            driver = self.drivers.choose(ask.driver)
            self.metrics.requested(ask.driver if isinstance(driver, str) else driver.name)
            if isinstance(driver, str):
                return Refusal(UNAVAILABLE, driver, retry=True)
            devices = self.locate_devices(self.store.machine, pod, view)
            if isinstance(devices, str):
                return Refusal(INVALID, devices)
            asked = ask.parameters.by_threads() if self.threads else ask.parameters
            parameters = replace(asked, device_numa=devices)
            holding = Holding(driver.name, ask.namespace, ask.claim_uid, ask.claim_name, parameters, ())
            # A removal that arrived after this admission would take away what it gives.
            if not await self.departures.all_heard(driver.name, ask.claim_uid):
                text = f"compute driver {driver.name} did not confirm an earlier removal"
                return Refusal(UNAVAILABLE, text, retry=True)
            available = offered(self.store.machine, parameters, self._available_to(pod, before))
            if ask.within and all(group.exclusive for group in parameters.groups):
                available &= ask.within
            sets = await self._sets_of(driver, _admit_request(pod, view.name, ask, parameters, available), holding)
            if isinstance(sets, Refusal):
                return sets
            # Another driver's pod may have come first.
            taken = taken_by(sets) - self._available_to(pod, before)
            if taken:
                await self.undo([holding])
                text = f"compute driver {driver.name} gave CPUs {taken}, which another pod was given meanwhile"
                return Refusal(UNAVAILABLE, text, retry=True)
            return replace(holding, sets=sets)

    def _available_to(self, pod: AdmittedPod, before: Sequence[Holding]) -> CpuSet:
        """What may still be given to a container that has something already."""
        return self.store.available_resources(pod.uid) - taken_by(held for one in before for held in one.sets)

    async def _sets_of(self, driver: Driver, request: pb.AdmitRequest, holding: Holding) -> Sets | Refusal:
        """What a driver gives for a claim, if that can be believed."""
        try:
            answer = await self.drivers.invoke(driver, "CCIAdmit", request)
        except asyncio.CancelledError:
            self.departures.add(holding)  # it may reserve something that nobody waits for any more
            raise
        except RemoteError as error:
            self.departures.add(holding)
            return Refusal(UNAVAILABLE, f"compute driver {driver.name}: {error.what}", retry=True)
        if why := refused(answer):
            return Refusal(REFUSED, f"compute driver {driver.name}: {why}")
        sets = verified(self.store.machine, CpuSet.parse(request.availableCpus), holding.parameters, answer)
        if isinstance(sets, Lie):
            self.drivers.refused.refuse(driver.name, "CCIAdmit", str(sets))
            await self.undo([holding])
            return Refusal(MISBEHAVED, f"the answer of compute driver {driver.name} is not usable: {sets}", retry=True)
        self.drivers.refused.accept(driver.name, "CCIAdmit")
        return sets

    async def undo(self, holdings: Sequence[Holding]) -> None:
        """Tell drivers that what they reserved is not wanted."""
        for holding in holdings:
            self.departures.add(holding)
        await self.departures.deliver_to({holding.driver for holding in holdings})


def _admit_request(
    pod: AdmittedPod, container: str, ask: Ask, parameters: Parameters, available: CpuSet
) -> pb.AdmitRequest:
    return pb.AdmitRequest(
        namespace=ask.namespace,
        claim_uid=ask.claim_uid,
        claim_name=ask.claim_name,
        availableCpus=str(available),
        pod=pod.uid,
        container=container,
        resource_handle=parameters.handle(),
    )
