"""Which pods are on which node, as the node rule asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.auth.access import StoredFacts
from kubeqos.apiserver.nodes.podindex import PodIndex
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.codec import encode_json
from kubeqos.store import Delete, Put, Store

PODS = kind_named("Pod")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store.open(tmp_path / "kubeqos.db")
    yield opened
    await opened.close()


def pod(name: str, node: str = "", secret: str = "", **labels: str) -> Put:
    spec: dict[str, Any] = {"volumes": [{"name": "v", "secret": {"secretName": secret}}]} if secret else {}
    raw = {"metadata": {"name": name, "labels": labels}, "spec": {**spec, **({"nodeName": node} if node else {})}}
    return Put(PODS.key("default", name), encode_json(raw))


def on(index: PodIndex, node: str, namespace: str = "default") -> list[str]:
    return sorted(stored.key.rpartition("/")[2] for stored in index.pods(node, PODS.range_prefix(namespace)))


async def until(found: Any, wanted: object) -> None:
    for _ in range(1000):
        if found() == wanted:
            return
        await asyncio.sleep(0.01)
    assert found() == wanted


async def test_pods_are_found_by_their_node_from_binding_to_deletion(store: Store) -> None:
    await store.commit([pod("old", "n1")])
    index = PodIndex(store)
    assert on(index, "n1") == ["old"]
    following = asyncio.create_task(index.follow())
    await store.commit([pod("waits")])
    await store.commit([pod("waits", "n1"), pod("other", "n2")])
    await until(lambda: (on(index, "n1"), on(index, "n2")), (["old", "waits"], ["other"]))
    assert on(index, "n1", "elsewhere") == []
    await store.commit([Delete(PODS.key("default", "old"))])
    await until(lambda: on(index, "n1"), ["waits"])
    await store.commit([Delete(PODS.key("default", "waits"))])
    await until(lambda: on(index, "n1"), [])
    following.cancel()


async def test_a_node_reads_what_its_pods_name_and_nothing_else(store: Store) -> None:
    facts = StoredFacts(store, PodIndex(store))  # an index that never follows: what it lacks is looked for
    await store.commit([pod("mine", "n1", secret="key"), pod("claims-to-be", "n2", secret="other", nodeName="n1")])
    followed = StoredFacts(store, PodIndex(store))
    for asked in (facts, followed):
        assert asked.uses("n1", "secrets", "default", "key")
        assert not asked.uses("n2", "secrets", "default", "key")
        assert not asked.uses("n1", "secrets", "default", "other")
        assert not asked.uses("n1", "secrets", "elsewhere", "key")
