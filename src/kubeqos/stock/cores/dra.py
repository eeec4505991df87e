"""The driver `cci.kubeqos.io` of Dynamic Resource Allocation: publishes a node's cores, prepares claims for a kubelet.

A claim is prepared when its pod is admitted, which asks the compute driver; NRI then gives the containers their cores.
So there is no state here: after a restart the kubelet asks again, and the ledger knows. Run by `stock.agent`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeqos.client import Api, ApiError, PatchType, Unreachable
from kubeqos.logs import logger
from kubeqos.model.machine import Machine
from kubeqos.model.timestamps import timestamp
from kubeqos.node.runtime.executor import Claims
from kubeqos.plugins.managers import Refusal
from kubeqos.plugins.proto import dra_pb2 as dra
from kubeqos.plugins.registration import Introduction, keep_registered
from kubeqos.plugins.sockets import services
from kubeqos.stock.cluster import DEVICE_CLAIMS
from kubeqos.stock.cores.devices import (
    API_VERSION,
    DRIVER,
    are_told,
    claim_names,
    resolved,
    results,
    told_devices,
)
from kubeqos.stock.cores.keeper import CoreKeeper
from kubeqos.stock.cores.publishing import MANAGER, PublishedCores
from kubeqos.topology.claims.resolving import Unresolved

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
METHODS = (
    ("NodePrepareResources", dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
    ("NodeUnprepareResources", dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse),
)
log = logger("kubeqos.agent")


def stock_claims(api: Api, machine: Machine) -> Claims:
    """The claims of a pod for our cores, as a stock API server has them."""

    async def claims(raw: Mapping[str, Any]) -> Mapping[str, Any] | Refusal:
        found: dict[str, Any] = {}
        for name, claim_name in claim_names(raw).items():
            if not claim_name:
                found[name] = Unresolved(f"the claim {name!r} of the pod is not made yet")
                continue
            try:
                claim = await api.get(DEVICE_CLAIMS, claim_name, raw["metadata"]["namespace"])
            except (ApiError, Unreachable) as error:
                return Refusal("CCIClaimUnreadable", f"cannot read the pod's claims: {error.what}", retry=True)
            if (one := resolved(name, claim, machine)) is not None:
                found[name] = one
        return found

    return claims


async def tell(api: Api, claim: Mapping[str, Any], machine: Machine) -> None:
    """Let the claim itself say which CPUs were prepared for it."""
    wanted, metadata = told_devices(claim, machine, timestamp(time.time())), claim["metadata"]
    if are_told(claim, wanted):
        return
    name, place = metadata["name"], metadata["namespace"]
    body = {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": place, "uid": metadata["uid"]},
        "status": {"devices": wanted},
    }
    await api.patch(
        DEVICE_CLAIMS, name, body, place, subresource="status", type=PatchType.APPLY, manager=MANAGER, force=True
    )


class DraDriver:
    """One node's driver."""

    def __init__(self, api: Api, keeper: CoreKeeper, node: str, kubelet: Path) -> None:
        self._api, self._keeper, self._node = api, keeper, node
        self._socket = kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"
        self.registered = asyncio.Event()

    async def run(self) -> None:
        """Publish cores and serve the kubelet until cancelled."""
        introduction = Introduction("DRAPlugin", DRIVER, ("v1.DRAPlugin",))
        async with asyncio.TaskGroup() as tasks:
            parts = self._keeper.parts
            cores = PublishedCores(self._api, self._node, parts.machine, parts.settings.reserved_cpus)
            tasks.create_task(cores.run())
            await self._keeper.ready.wait()
            serving = keep_registered(
                self._socket,
                introduction,
                lambda server: server.add_generic_rpc_handlers((services(SERVICE, self, METHODS),)),
                self._told,
            )
            tasks.create_task(serving)

    def _told(self, registered: bool, error: str) -> None:
        if registered:
            self.registered.set()
        else:
            log.error("the kubelet does not take the driver of claims", reason=error)

    # ---- What the kubelet asks

    async def NodePrepareResources(
        self, request: dra.NodePrepareResourcesRequest, _context: object
    ) -> dra.NodePrepareResourcesResponse:
        answer = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].CopyFrom(await self._prepare(claim))
        return answer

    async def NodeUnprepareResources(
        self, request: dra.NodeUnprepareResourcesRequest, _context: object
    ) -> dra.NodeUnprepareResourcesResponse:
        """Cores are given back when the containers of their pod have ended, which is before the kubelet asks this."""
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = ""
        return answer

    async def _prepare(self, asked: dra.Claim) -> dra.NodePrepareResourceResponse:
        try:
            claim = await self._api.get(DEVICE_CLAIMS, asked.name, asked.namespace)
        except (ApiError, Unreachable) as error:
            return dra.NodePrepareResourceResponse(error=f"cannot read the claim: {error.what}")
        if claim["metadata"]["uid"] != asked.uid:
            return dra.NodePrepareResourceResponse(error="another claim has this name now")
        pods = [one for one in (claim.get("status") or {}).get("reservedFor") or () if one.get("resource") == "pods"]
        if len(pods) != 1:
            why = f"cores belong to one pod, and this claim is reserved for {len(pods)}"
            return dra.NodePrepareResourceResponse(error=why)
        refusal = await self._keeper.prepared(pods[0]["uid"])
        if refusal:
            return dra.NodePrepareResourceResponse(error=refusal)
        try:
            await tell(self._api, claim, self._keeper.parts.machine)
        except (ApiError, Unreachable) as error:
            log.warning("a claim cannot be told of its cores", claim=asked.name, reason=error.what)
        found = dra.NodePrepareResourceResponse()
        for one in results(claim):
            found.devices.add(request_names=[one["request"]], pool_name=one["pool"], device_name=one["device"])
        return found
