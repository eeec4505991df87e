"""A node that cannot keep a promise refuses the pod: claims and compute policies where no driver can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.pods import container, pod
from tests.node.world import World

CLAIMED = {"resourceClaims": [{"name": "cores", "source": {"resourceClaimName": "late"}}]}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            pod("claims", {**container(), "resources": {"claims": [{"name": "cores"}]}}, **CLAIMED),
            "container 'main' uses claim 'cores'",
        ),
        (pod("names", **CLAIMED), "the pod names claim 'cores'"),
        (
            pod("policy", annotations={"cci.resources.alpha.kubernetes.io/pod": "cci-exclusive"}),
            "container 'main' has the compute policy 'cci-exclusive'",
        ),
        (
            pod("own", annotations={"cci.resources.alpha.kubernetes.io/container.main": "vendors-own"}),
            "container 'main' has the compute policy 'vendors-own'",
        ),
    ],
)
async def test_a_node_without_compute_drivers_refuses_who_asks_for_one(
    tmp_path: Path, wanted: dict[str, Any], why: str
) -> None:
    async with World(tmp_path) as world:
        uid = await world.start(wanted)
        status = world.status(uid)
        assert (status["phase"], status["reason"]) == ("Failed", "CCIUnsupported")
        told = f"{why}, and this node gives no cores to claims: the gate CCIResourceManager is off"
        assert status["message"].endswith(told)
        assert world.running(uid) == {}


async def test_the_default_policy_asks_for_nothing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        uid = await world.start(pod("usual", annotations={"cci.resources.alpha.kubernetes.io/pod": "cci-default"}))
        await world.advance(2)
        assert world.status(uid)["phase"] == "Running"
