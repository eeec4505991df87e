"""The one right that only a real API server asks for: to tell claims of a driver's devices, on the agent's own node.

The others are taken away one by one on the embedded server (`test_rights`), which has no such check.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NAMESPACES
from kubeqos.model.hardware.loading import load_machine
from kubeqos.stock.cluster import DEVICE_CLAIMS
from kubeqos.stock.cores.devices import DRIVER
from kubeqos.stock.cores.dra import tell
from kubeqos.stock.installer import install
from tests.qrm.harness import until
from tests.stock.kube_apiserver import acting_as, kube_apiserver
from tests.stock.needs import needs_stock
from tests.stock.rights import roles
from tests.stock.test_rights import put, without

pytestmark = needs_stock("kube-apiserver", "etcd")
NODE, TEAM = "n1", "team"
VERB, RESOURCE = "associated-node:patch", "resourceclaims/driver"
Raw = dict[str, Any]


@asynccontextmanager
async def clients() -> AsyncIterator[tuple[HttpApi, HttpApi, HttpApi]]:
    """An administrator, the agent on the claim's node, and one on another node."""
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as kubeconfig:
        async with AsyncExitStack() as stack:
            made = [HttpApi.from_kubeconfig(kubeconfig)]
            made += [
                HttpApi.from_kubeconfig(acting_as(kubeconfig, "kubeqos-agent", node)) for node in (NODE, "elsewhere")
            ]
            for api in made:
                stack.push_async_callback(api.close)
            _ = [line async for line in install(made[0], "kubeqos:test", {})]
            await made[0].create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
            yield made[0], made[1], made[2]


async def claim_of(admin: HttpApi, name: str) -> Raw:
    """A claim that was given a core of the node."""
    wanted = {"name": "cores", "exactly": {"deviceClassName": DRIVER}}
    raw = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    stored = await admin.create(DEVICE_CLAIMS, {**raw, "spec": {"devices": {"requests": [wanted]}}}, TEAM)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    result = {"request": "cores", "driver": DRIVER, "pool": NODE, "device": "core-0"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}
    return await admin.update(DEVICE_CLAIMS, {**stored, "status": {"allocation": allocation}}, subresource="status")


async def refused(api: HttpApi, claim: Raw) -> str:
    """Why an agent may not tell a claim of its CPUs; nothing if it may."""
    try:
        await tell(api, claim, load_machine("laptop8"))
    except ApiError as error:
        if "forbidden" not in error.message.lower():  # said of a field, it is not the answer's own code
            raise
        return error.message
    return ""


@pytest.mark.timeout(600)
async def test_claims_are_told_on_the_agents_own_node_and_with_that_right_alone() -> None:
    async with clients() as (admin, here, elsewhere):
        claim = await claim_of(admin, "one-core")
        await until("told", lambda: _is_allowed(here, claim))
        [told] = (await admin.get(DEVICE_CLAIMS, "one-core", TEAM))["status"]["devices"]
        assert told["device"] == "core-0"
        other = await claim_of(admin, "other-core")  # what a claim says already may be said again by anybody
        assert "cannot arbitrary-node:patch" in await refused(elsewhere, other), "another node's agent may not"
        [role] = [one for one in roles("agent") if any(VERB in rule["verbs"] for rule in one["rules"])]
        number = next(number for number, rule in enumerate(role["rules"]) if VERB in rule["verbs"])
        await put(admin, without(role, number, RESOURCE, VERB))
        await until("denied", lambda: _is_denied(here, other))


async def _is_allowed(api: HttpApi, claim: Raw) -> bool:
    """Roles are known a moment after they were made."""
    return not await refused(api, claim)


async def _is_denied(api: HttpApi, claim: Raw) -> bool:
    return VERB in await refused(api, claim)
