"""Static pods run with or without an API server, and are mirrored where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.resources import PODS
from kubeqos.codec import encode_yaml
from kubeqos.errors import InputError
from kubeqos.node.api.staticpods import static_pod
from tests.apiserver.live import LiveServer, live_server
from tests.node.admission.test_admission import OFFERS, classed
from tests.node.pods import container
from tests.node.test_live import get_or_none, running_agent, until
from tests.node.world import World


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


def manifest(name: str, *containers: dict[str, Any]) -> str:
    spec = {"containers": list(containers) or [container()]}
    return encode_yaml({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def statics(node: World) -> dict[str, str]:
    return {pod.view.metadata.name: pod.state.value for pod in node.agent.core.pods.values() if pod.source == "file"}


async def test_the_folder_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "etcd.yaml").write_text(manifest("etcd"))
    async with World(tmp_path, static_pod_dir=folder) as node:
        assert statics(node) == {"etcd-n1": "Running"}
        (folder / "proxy.yaml").write_text(manifest("proxy"))
        await node.advance(5)
        assert statics(node) == {"etcd-n1": "Running", "proxy-n1": "Running"}
        (folder / "etcd.yaml").write_text(manifest("etcd", container("changed")))
        (folder / "proxy.yaml").unlink()
        await node.advance(10)
        assert statics(node) == {"etcd-n1": "Running"}
        assert [one.name for one in node.runtime.core.containers.values()] == ["changed"]


async def test_a_restart_finds_the_same_pods(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "etcd.yaml").write_text(manifest("etcd"))
    async with World(tmp_path, static_pod_dir=folder) as node:
        before = list(node.runtime.core.containers)
        await node.halt()
        await node.boot()
        await node.advance(5)
        assert list(node.runtime.core.containers) == before


async def test_a_bad_manifest_is_told_once_and_harms_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "bad.yaml").write_text("kind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
    (folder / "good.yaml").write_text(manifest("good"))
    async with World(tmp_path, static_pod_dir=folder) as node:
        await node.advance(10)
        assert statics(node) == {"good-n1": "Running"}
        assert node.reasons().count("FailedStaticPod") == 1


async def test_static_pods_are_admitted_like_others(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "a.yaml").write_text(manifest("a", classed(rdt="gold"), {**classed(rdt="gold"), "name": "second"}))
    (folder / "b.yaml").write_text(manifest("b", classed(rdt="gold")))
    async with World(tmp_path, offers=OFFERS, static_pod_dir=folder) as node:
        assert statics(node) == {"a-n1": "Running", "b-n1": "Rejected"}
        assert ("QOSResourcesUnavailable", "QoS class rdt=gold exhausted (2/2 used)") in node.events


def test_what_is_not_a_pod_is_refused() -> None:
    with pytest.raises(InputError, match="not a Pod"):
        static_pod("kind: Service\nmetadata: {}\n", "n1", "x.yaml")


async def test_the_api_shows_a_mirror_that_cannot_be_deleted_for_good(server: LiveServer, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "etcd.yaml").write_text(manifest("etcd"))
    async with running_agent(server, tmp_path, static_pod_dir=folder) as (agent, api):

        async def running() -> Any:
            found = await get_or_none(api, "etcd-n1")
            return found if found and (found.get("status") or {}).get("phase") == "Running" else None

        first = await until("mirror runs", running)
        assert "kubernetes.io/config.mirror" in first["metadata"]["annotations"]
        await api.delete(PODS, "etcd-n1", "default")

        async def back() -> Any:
            found = await running()
            return found if found and found["metadata"]["uid"] != first["metadata"]["uid"] else None

        await until("mirror comes back", back)
        assert len(await agent.runtime.list_containers()) == 1
        (folder / "etcd.yaml").unlink()

        async def gone() -> bool:
            return await get_or_none(api, "etcd-n1") is None

        await until("mirror goes", gone)
