"""Whoever is killed on a stock cluster: nothing is lost, no promise is broken, and who asks for nothing never waits.

One kill of each part here; `KUBEQOS_KILLS=20 make test-stock ARGS="-k killed -s"` is the campaign (docs/stock.md).
"""

from __future__ import annotations

import os

import pytest

from kubeqos.client.http import HttpApi
from tests.stock.kills import MORTALS, Siege, besieged_cluster, report
from tests.stock.needs import needs_stock
from tests.stock.whole import PARTS

KILLS = int(os.environ.get("KUBEQOS_KILLS", "1"))
pytestmark = [
    *needs_stock(*PARTS, "kube-controller-manager", root=True),
    pytest.mark.kubectl,
    pytest.mark.timeout(600 + 600 * KILLS),
]


@pytest.mark.proves("restart", "exclusive-cpus", "cci-claims", "class-cpu", on="stock")
async def test_whoever_is_killed_nothing_is_lost_and_nothing_is_shared() -> None:
    with besieged_cluster() as cluster:
        api = HttpApi.from_kubeconfig(cluster.kubeconfig)
        siege = Siege(cluster, api)
        try:
            with cluster.watched() as watched:
                await siege.run(KILLS)
            [seen] = watched
            print(report(siege.tally, seen))
            assert seen["violations"] == []
            assert seen["owners"] > KILLS, "one after the other, and each was seen"
            assert await siege.held_up() == []
            assert siege.tally.kills == dict.fromkeys(MORTALS, KILLS)
        finally:
            await api.close()
