"""A cluster in one process follows each kind once: one watch, and one decode of each event, whoever looks at it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from kubeqos.client import api as client_api
from kubeqos.client.api import Metadata
from kubeqos.client.resources import CONFIG_MAPS, PODS
from kubeqos.cluster.embedded import running
from kubeqos.dashboard.home import mounted
from tests.cluster.test_autoscaler import plan_of, until

FILE = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
nodes:
- {name: one, machine: tiny2}
- {name: two, machine: tiny2}
"""


async def test_scheduler_controllers_nodes_and_dashboard_share_one_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decodes: Counter[str] = Counter()
    really = client_api.metadata_of

    def counted(raw: bytes) -> Metadata:
        found = really(raw)
        decodes[f"{found.key}@{found.resource_version}"] += 1
        return found

    monkeypatch.setattr(client_api, "metadata_of", counted)
    async with (
        running(plan_of(tmp_path, FILE), tmp_path / "data", 0) as cluster,
        mounted(cluster.server, cluster.informers) as page,
    ):
        api = cluster.server.local()
        await asyncio.wait_for(page.answers.feed.synced.wait(), 60)
        spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
        await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")

        async def runs() -> bool:
            return bool((await api.get(PODS, "p", "default"))["status"].get("phase") == "Running")

        await until("it runs", runs)
        made = await api.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
        last = f"default/c@{made['metadata']['resourceVersion']}"

        async def seen() -> bool:
            return decodes[last] > 0

        await until("the last write is seen", seen)
        events = Counter({key: count for key, count in decodes.items() if key.startswith("default/")})
        assert len([key for key in events if key.startswith("default/p@")]) >= 3  # created, bound, running
        assert set(events.values()) == {1}
        assert cluster.server.watching.active == len(cluster.informers)
