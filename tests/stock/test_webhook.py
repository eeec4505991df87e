"""Our webhooks on a real API server: pods are completed, refused and counted (crowds: `test_real_controllers`)."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import Resource, resource_named
from kubeqos.manifests import read
from kubeqos.model.timestamps import timestamp
from kubeqos.stock.cluster import CLASSES, LIMIT_RANGES, PODS, QUOTAS, Cluster
from kubeqos.stock.quotakeeper import QuotaKeeper
from kubeqos.stock.webhook import Webhook
from kubeqos.web.pki import Pki
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.tls import server_context
from tests.qrm.harness import until
from tests.stock import limits
from tests.stock.kube_apiserver import kube_apiserver
from tests.stock.needs import needs_stock
from tests.stock.test_classquota import BY_OLDER_CONTROLLERS

pytestmark = needs_stock("kube-apiserver", "etcd")
NAMESPACES, RESOURCE_QUOTAS = resource_named("Namespace"), resource_named("ResourceQuota")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
MUTATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
REPLICAS = 3


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kq-") as folder, kube_apiserver(Path(folder)) as path:
        yield path


def configuration(kind: str, replica: int, port: int, authority: bytes) -> dict[str, Any]:
    """Pods with the label `replica: N` are shown to that replica; the others to nobody."""
    mutating = kind == "MutatingWebhookConfiguration"
    hook = {
        "name": f"r{replica}.kubeqos.io",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/{'mutate' if mutating else 'validate'}",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}
        ],
        "objectSelector": {"matchLabels": {"replica": str(replica)}},
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
    }
    if mutating:
        hook["reinvocationPolicy"] = "IfNeeded"
    metadata = {"name": f"kubeqos-{replica}"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": [hook]}


async def ensured(api: HttpApi, resource: Resource, body: dict[str, Any], namespace: str = "") -> None:
    try:
        await api.create(resource, body, namespace=namespace)
    except ApiError as error:
        if not error.already_exists:
            raise


@asynccontextmanager
async def webhooks(kubeconfig: Path, folder: Path) -> AsyncIterator[HttpApi]:
    """As many webhooks as replicas, each with its own view of the cluster; yields an administrator's client."""
    async with AsyncExitStack() as stack:
        api = HttpApi.from_kubeconfig(kubeconfig, None)
        stack.push_async_callback(api.close)
        for manifest in read([str(files("kubeqos.stock") / "crds")]):
            await ensured(api, DEFINITIONS, manifest.raw)
        pki = Pki(folder)
        certificate, key = pki.server_files(["127.0.0.1"])
        for replica in range(REPLICAS):
            own = HttpApi.from_kubeconfig(kubeconfig, None)
            stack.push_async_callback(own.close)
            cluster = Cluster(own)
            following = asyncio.create_task(cluster.run())
            stack.callback(following.cancel)
            await cluster.ready.wait()
            listener = listen("127.0.0.1", 0)
            application = Webhook(cluster, QuotaKeeper(cluster))
            await stack.enter_async_context(serve(application, listener, server_context(certificate, key, pki.ca_file)))
            for resource in (MUTATING, VALIDATING):
                body = configuration(resource.kind, replica, listener.getsockname()[1], pki.ca_pem)
                await api.create(resource, body)
                stack.push_async_callback(api.delete, resource, body["metadata"]["name"])
        yield api


def pod(name: str, namespace: str, replica: int = 0, **annotations: str) -> dict[str, Any]:
    marked = {f"qos.kubeqos.io/{key.replace('__', '.')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": namespace, "labels": {"replica": str(replica)}, "annotations": marked}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }


def own(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def prepared(api: HttpApi, namespace: str, gold: int) -> None:
    await ensured(api, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name, more in (("gold", {"counted": True}), ("bronze", {})):
        spec = {"resource": "rdt", "class": name, "level": "container", **more}
        await ensured(api, CLASSES, own("QOSClass", f"rdt.{name}", spec))
    classes = [{"name": "gold", "capacity": gold}, {"name": "bronze"}]
    quota = own("QOSClassQuota", "q", {"qosResources": {"container": [{"name": "rdt", "classes": classes}]}})
    await ensured(api, QUOTAS, quota, namespace)


async def created(api: HttpApi, body: dict[str, Any]) -> str:
    """Whether a pod was taken, or the words with which it was not."""
    try:
        await api.create(PODS, body, namespace=body["metadata"]["namespace"])
    except ApiError as error:
        return error.message
    return ""


async def test_a_pod_is_completed_counted_and_kept_to_what_it_asked(kubeconfig: Path, tmp_path: Path) -> None:
    async with webhooks(kubeconfig, tmp_path) as api:
        await prepared(api, "one", gold=1)
        defaults = [{"type": "Container", "qosResources": [{"name": "rdt", "default": "bronze"}]}]
        await api.create(LIMIT_RANGES, own("QOSClassLimits", "l", {"limits": defaults}), namespace="one")

        async def with_default() -> bool:
            name = f"plain-{asyncio.get_running_loop().time():.3f}".replace(".", "-")
            assert await created(api, pod(name, "one")) == ""
            stored = await api.get(PODS, name, "one")
            return "qos.kubeqos.io/container.main" in stored["metadata"].get("annotations", {})

        await until("the namespace's default is known", with_default)
        assert await created(api, pod("gold", "one", container__main="rdt=gold")) == ""
        stored = await api.get(PODS, "gold", "one")
        assert stored["spec"]["containers"][0]["resources"]["requests"] == {"qos.kubeqos.io/rdt.gold": "1"}
        over = await created(api, pod("second", "one", container__main="rdt=gold"))
        assert "exceeded quota: q, requested: container.rdt/gold=1, used: container.rdt/gold=1" in over
        assert "there is no class rdt=purple" in await created(api, pod("bad", "one", container__main="rdt=purple"))
        stored["metadata"]["annotations"]["qos.kubeqos.io/container.main"] = "rdt=bronze"
        with pytest.raises(ApiError, match="cannot be changed after its creation"):
            await api.update(PODS, stored)


async def test_limits_of_a_pod_and_namespaces_of_a_class_hold(kubeconfig: Path, tmp_path: Path) -> None:
    async with webhooks(kubeconfig, tmp_path) as api:
        await limits.hold(api, replica="0")


async def test_a_quota_of_the_cluster_itself_can_count_a_class_too(kubeconfig: Path, tmp_path: Path) -> None:
    """The class is an extended resource of the pod, which the server's own admission charges."""
    counted = "requests.qos.kubeqos.io/rdt.gold"
    async with webhooks(kubeconfig, tmp_path) as api:
        await prepared(api, "native", gold=5)
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "stock"}}
        stored = await api.create(RESOURCE_QUOTAS, {**quota, "spec": {"hard": {counted: "1"}}}, "native")
        status = {"hard": {counted: "1"}, "used": {counted: "0"}}  # as a controller-manager would
        await api.update(RESOURCE_QUOTAS, {**stored, "status": status}, subresource="status")

        async def refused() -> bool:
            name = f"gold-{asyncio.get_running_loop().time():.3f}".replace(".", "-")
            answer = await created(api, pod(name, "native", container__main="rdt=gold"))
            return f"exceeded quota: stock, requested: {counted}=1, used: {counted}=1, limited: {counted}=1" in answer

        await until("the second one is refused", refused)
        assert len((await api.list(PODS, "native")).items) == 1


async def test_pods_that_are_seen_are_noted_no_longer_and_what_older_controllers_noted_counts_on(
    kubeconfig: Path, tmp_path: Path
) -> None:
    async with webhooks(kubeconfig, tmp_path) as api:
        await prepared(api, "noted", gold=3)
        assert await created(api, pod("a", "noted", container__main="rdt=gold")) == ""
        quota = await api.get(QUOTAS, "q", "noted")
        stored = await api.get(PODS, "a", "noted")
        [(uid, note)] = quota["status"]["reserved"].items()
        assert uid == stored["metadata"]["uid"]
        assert note.endswith(" container:rdt=gold*1 a")
        older = BY_OLDER_CONTROLLERS | {"at": timestamp(time.time())}
        await api.update(QUOTAS, {**quota, "status": {**quota["status"], "reserved": {uid: note, "old": older}}},
                         subresource="status")  # fmt: skip
        cluster = Cluster(api)
        following = asyncio.create_task(cluster.run())
        await cluster.ready.wait()
        keeper = QuotaKeeper(cluster)
        keeper.saw("noted", uid)
        assert await keeper.confirm("noted", 0.0) is None
        quota = await api.get(QUOTAS, "q", "noted")
        assert quota["status"]["reserved"] == {"old": older}, "as the server has kept it"
        await keeper.count("noted", "q")
        over = await created(api, pod("b", "noted", container__main="rdt=gold"))
        following.cancel()
        assert "exceeded quota: q, requested: container.rdt/gold=1, used: container.rdt/gold=3" in over
