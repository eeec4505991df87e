"""The clients people use: the official one, lightkube and kr8s each create, watch, patch and delete."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.apiserver.live import LiveServer

MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "client", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
}


def test_the_official_client(live: LiveServer) -> None:
    import kubernetes

    kubernetes.config.load_kube_config(str(live.kubeconfig))
    core = kubernetes.client.CoreV1Api()
    seen: list[tuple[str, str]] = []
    version = core.list_namespaced_pod("default").metadata.resource_version

    def watch() -> None:
        watched = kubernetes.watch.Watch()
        since = {"resource_version": version, "timeout_seconds": 50}
        for event in watched.stream(core.list_namespaced_pod, "default", **since):
            seen.append((event["type"], event["object"].metadata.name))
            if seen[-1] == ("DELETED", "client"):
                watched.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    created = core.create_namespaced_pod("default", MANIFEST)
    assert created.status.qos_class == "BestEffort"
    patched = core.patch_namespaced_pod("client", "default", {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels == {"a": "b"}
    assert [p.metadata.name for p in core.list_namespaced_pod("default", label_selector="a=b").items] == ["client"]
    core.delete_namespaced_pod("client", "default")
    watcher.join(60)
    assert ("ADDED", "client") in seen
    assert ("DELETED", "client") in seen
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_pod("client", "default")
    assert refused.value.status == 404


def test_lightkube(live: LiveServer) -> None:
    from lightkube import ApiError, Client, KubeConfig
    from lightkube.models.core_v1 import Container, PodSpec
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import Pod

    client = Client(config=KubeConfig.from_file(live.kubeconfig), trust_env=False)
    pod = Pod(
        metadata=ObjectMeta(name="light", namespace="default"),
        spec=PodSpec(containers=[Container(name="c", image="registry.example/app:1")]),
    )
    version = client.create(pod).metadata.resourceVersion
    client.patch(Pod, "light", {"metadata": {"labels": {"x": "y"}}}, namespace="default")
    assert [p.metadata.name for p in client.list(Pod, namespace="default", labels={"x": "y"})] == ["light"]
    operation, found = next(iter(client.watch(Pod, namespace="default", resource_version=version)))
    assert (operation, found.metadata.labels) == ("MODIFIED", {"x": "y"})
    client.delete(Pod, "light", namespace="default")
    with pytest.raises(ApiError, match='pods "light" not found'):
        client.get(Pod, "light", namespace="default")


async def test_kr8s(live: LiveServer) -> None:
    import kr8s.asyncio
    from kr8s.asyncio.objects import Pod

    api = await kr8s.asyncio.api(kubeconfig=str(live.kubeconfig))
    pod = await Pod({**MANIFEST, "metadata": {"name": "kr", "namespace": "default"}}, api=api)
    await pod.create()
    await pod.label({"k": "v"})
    assert [p.name async for p in api.get("pods", namespace="default", label_selector="k=v")] == ["kr"]
    await pod.patch({"metadata": {"annotations": {"note": "patched"}}})
    assert pod.annotations["note"] == "patched"
    seen = []
    async for kind, found in api.watch("pods", namespace="default", label_selector="k=v"):
        seen.append((kind, found.name))
        if kind == "ADDED":
            await pod.delete()
        if kind == "DELETED":
            break
    assert (seen[0], seen[-1]) == (("ADDED", "kr"), ("DELETED", "kr"))
    assert not await pod.exists()
