"""The driver under examination: how checks of `cci.kit.conformance` ask it, and what they call broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from kubeqos.cci.answers import MOST_WORDS, Lie, verified
from kubeqos.cci.drivers import METHODS, SERVICE
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.registration import notify
from kubeqos.plugins.sockets import call
from kubeqos.topology.claims.holdings import ResourceSet
from kubeqos.topology.claims.parameters import Parameters

CALL_SECONDS = 5.0
_ANSWERS = {name: answer for name, _, answer in METHODS}


class Broken(Exception):
    """What a driver did wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check; `problem` is empty when it passed."""

    check: str
    problem: str
    milliseconds: float


@dataclass
class Peer:
    """The driver under test and what the checks have admitted so far."""

    socket: Path
    machine: Machine
    channel: grpc.aio.Channel
    serial: int = 0
    admitted: list[pb.AdmitRequest] = field(default_factory=list)

    async def call(self, method: str, request: Any) -> Any:
        return await call(self.channel, f"/{SERVICE}/{method}", request, _ANSWERS[method], seconds=CALL_SECONDS)

    def asking(self, handle: str, available: CpuSet | str, pod: str = "", container: str = "main") -> pb.AdmitRequest:
        """A question about a claim that nobody has asked about before."""
        self.serial += 1
        return pb.AdmitRequest(
            namespace="default",
            claim_uid=f"conformance-{self.serial}",
            claim_name=f"claim-{self.serial}",
            availableCpus=str(available),
            pod=pod or f"pod-{self.serial}",
            container=container,
            resource_handle=handle,
        )

    async def put(self, request: pb.AdmitRequest) -> pb.AdmitResponse:
        """Ask, and see that a no is one in words that fit into a pod's event."""
        answer: pb.AdmitResponse = await self.call("CCIAdmit", request)
        if not answer.err:
            self.admitted.append(request)
        elif not answer.err.strip() or not answer.err.replace("\n", " ").replace("\t", " ").isprintable():
            raise Broken(f"refused without words that can be shown: {answer.err[:40]!r}")
        elif len(answer.err) > MOST_WORDS + 1:
            raise Broken(f"refused in {len(answer.err)} characters; a pod's event takes {MOST_WORDS}")
        return answer

    async def admit(self, handle: str, available: CpuSet | str) -> pb.AdmitResponse:
        return await self.put(self.asking(handle, available))

    async def beside(
        self, parameters: Parameters, taken: CpuSet, pod: str, container: str
    ) -> tuple[ResourceSet, ...] | None:
        """The verified sets for a claim beside others that hold `taken`; None where the driver says no in words."""
        available = self.machine.whole_cores(self.machine.online - taken)
        answer = await self.put(self.asking(parameters.handle(), available, pod, container))
        if answer.err:
            return None
        sets = verified(self.machine, available, parameters, answer)
        if isinstance(sets, Lie):
            raise Broken(f"beside others: {sets}")
        return sets

    async def granted(self, parameters: Parameters, available: CpuSet) -> tuple[ResourceSet, ...]:
        """The verified sets for a claim that the driver must be able to serve, when nobody else holds anything."""
        await self.clean()
        answer = await self.admit(parameters.handle(), available)
        if answer.err:
            raise Broken(f"refused {parameters.handle()} with {len(available)} CPUs available: {answer.err}")
        sets = verified(self.machine, available, parameters, answer)
        if isinstance(sets, Lie):
            raise Broken(str(sets))
        return sets

    async def refused(self, handle: str, available: CpuSet, what: str) -> None:
        answer = await self.admit(handle, available)
        if not answer.err:
            raise Broken(f"admitted {what} and answered {answer.rSet.cpuset!r}")

    async def remove(self, claim_uid: str, claim_name: str, container_id: str) -> None:
        request = pb.RemoveResourceRequest(
            namespace="default", claim_uid=claim_uid, claim_name=claim_name, container_id=container_id
        )
        answer = await self.call("CCIRemoveContainerResource", request)
        if answer.err:
            raise Broken(f"refused a removal: {answer.err}")

    async def register_again(self) -> None:
        """Say what a manager says to a driver that it finds again."""
        await notify(self.channel, None)

    async def clean(self) -> None:
        while self.admitted:
            one = self.admitted.pop()
            await self.remove(one.claim_uid, one.claim_name, "")
