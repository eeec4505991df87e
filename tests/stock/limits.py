"""What a pod may use at most (QOSClassLimits), and for whom a class is (QOSClass), through webhooks on API servers."""

from __future__ import annotations

from typing import Any

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NAMESPACES, PODS
from kubeqos.stock.cluster import CLASSES, LIMIT_RANGES
from tests.qrm.harness import until

Raw = dict[str, Any]
LIMITED, FREE = "limited", "vault"
MOST = [
    {"type": "Pod", "qosResources": [{"name": "disk", "max": [{"name": "slow", "capacity": 2}]}]},
    {"type": "Container", "qosResources": [{"name": "disk", "max": [{"name": "fast", "capacity": 0}]}]},
]
"""Two containers of a pod may have the slow class, and none the fast one."""
MOST_SLOW = 'maximum usage of class "slow" of disk per Pod is 2, but 3 is requested'


async def hold(api: HttpApi, **labels: str) -> None:
    """Pods with these labels are shown to webhooks."""
    for namespace in (LIMITED, FREE):
        enforced = {"name": namespace, "labels": {"qos.kubeqos.io/enforce": "true"}}
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": enforced})
    for name, more in {"slow": {}, "fast": {}, "secret": {"allowedNamespaces": [FREE]}}.items():
        spec = {"resource": "disk", "class": name, "level": "container", **more}
        await api.create(CLASSES, own("QOSClass", f"disk.{name}", spec))
    await api.create(LIMIT_RANGES, own("QOSClassLimits", "most", {"limits": MOST}), LIMITED)

    async def refused(namespace: str, *classes: str) -> str:
        try:
            await api.create(PODS, pod(labels, classes), namespace)
        except ApiError as error:
            return error.message
        return ""

    # Webhooks know classes and limits, and the server its webhooks, a moment after they were made.
    async def is_limited() -> bool:
        return MOST_SLOW in await refused(LIMITED, "slow", "slow", "slow")

    async def are_known() -> bool:
        return not await refused(FREE, "slow", "fast", "secret")

    await until("limited", is_limited)
    await until("known", are_known)
    before = len((await api.list(PODS, LIMITED)).items)
    assert MOST_SLOW in await refused(LIMITED, "slow", "slow", "slow")
    assert 'maximum usage of class "fast" of disk per Pod is 0, but 1' in await refused(LIMITED, "fast")
    assert "disk=secret is for namespaces vault" in await refused(LIMITED, "secret")
    assert len((await api.list(PODS, LIMITED)).items) == before
    assert await refused(LIMITED, "slow", "slow") == ""
    assert await refused(FREE, "slow", "slow", "slow") == "", "limits are those of a namespace"
    assert await refused(FREE, "secret") == ""


def own(kind: str, name: str, spec: Raw) -> Raw:
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod(labels: dict[str, str], classes: tuple[str, ...]) -> Raw:
    """One container for each class."""
    asked = {f"qos.kubeqos.io/container.c{number}": f"disk={cls}" for number, cls in enumerate(classes)}
    containers = [{"name": f"c{number}", "image": "app:1"} for number in range(len(classes))]
    metadata = {"generateName": "p-", "labels": labels, "annotations": asked}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
