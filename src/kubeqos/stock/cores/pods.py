"""The pods of a stock node: what the API server says of each, and which of its containers the runtime has. No I/O.

Kept by `keeper`; read by `node.updates`, which takes it for the pod machine of the embedded home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.annotations.computepolicies import wanted_compute
from kubeqos.node.pod.observed import SeenContainer, SeenPod, Stage
from kubeqos.plugins.managers import AdmittedPod, ContainerKind, ContainerRef, Refusal
from kubeqos.stock.asking import asks_for_cores
from kubeqos.stock.cores.devices import only_claims

Raw = Mapping[str, Any]
MIRROR = "kubernetes.io/config.mirror"
"""On the API server's copy of a static pod: the uid by which the kubelet and the runtime know it."""


def identity(raw: Raw) -> str:
    """The uid by which the runtime knows a pod."""
    metadata = raw["metadata"]
    return str((metadata.get("annotations") or {}).get(MIRROR) or metadata["uid"])


def admitted(raw: Raw) -> AdmittedPod:
    """A pod as managers see it: under the uid that the runtime has for it."""
    return AdmittedPod.of({**raw, "metadata": {**raw["metadata"], "uid": identity(raw)}})


@dataclass(slots=True)
class PodOnNode:
    """One pod. `bound` is false while only the runtime knows of it, `over` once it needs nothing any more."""

    admitted: AdmittedPod
    api_uid: str = ""
    """The API server's uid of it: another one than the runtime's, of a static pod."""
    bound: bool = False
    over: bool = False
    is_admitted: bool = False
    refusal: Refusal | None = None
    """Why it was not admitted, last time."""
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it was admitted or refused at least once."""
    containers: dict[str, SeenContainer] = field(default_factory=dict)
    cgroups: dict[str, str] = field(default_factory=dict)
    """Where the runtime keeps each container, as it writes it."""

    @property
    def uid(self) -> str:
        return self.admitted.uid

    @property
    def key(self) -> str:
        metadata = self.admitted.view.metadata
        return f"{metadata.namespace}/{metadata.name}"

    @property
    def asks(self) -> bool:
        """Whether it asks for something that it must not run without."""
        view = self.admitted.view
        return bool(wanted_compute(view)) or asks_for_cores({**view.metadata.labels, **view.metadata.annotations})

    @property
    def why_not(self) -> str:
        """Why it is not admitted."""
        if self.refusal is not None:
            return f"{self.refusal.reason}: {self.refusal.message}"
        if not self.bound:
            return "the API server has not told of the pod yet; it is tried again"
        return "the pod's cores are still being asked for; it is tried again"

    @property
    def seen(self) -> SeenPod:
        metadata = self.admitted.view.metadata
        return SeenPod(self.uid, metadata.namespace, metadata.name, (), tuple(self.containers.values()))

    @property
    def live(self) -> bool:
        return any(one.live for one in self.containers.values())

    def ref(self, container: str) -> ContainerRef:
        """A container by its name; one that the pod does not describe, such as a debugger's, stands beside them."""
        return self.admitted.refs.get(container) or ContainerRef(self.uid, container, ContainerKind.APP, 0)


class PodTable:
    """All of them, by uid. `takes_claims`: claims may be for cores of this node; elsewhere they are none of ours."""

    def __init__(self, *, takes_claims: bool = False) -> None:
        self.pods: dict[str, PodOnNode] = {}
        self._takes_claims = takes_claims
        self._made = 0

    def bind(self, raw: Raw) -> PodOnNode:
        """The API server has this pod for this node."""
        known = self.pods.get(identity(raw))
        ours = known.admitted.claims if known is not None and known.is_admitted else ()
        settled = not self._takes_claims or (known is not None and known.is_admitted)
        pod = admitted(only_claims(raw, ours) if settled else raw)
        if known is None:
            known = self.pods[pod.uid] = PodOnNode(pod)
        known.bound, known.api_uid = True, str(raw["metadata"]["uid"])
        known.admitted = pod.with_claims(known.admitted.claims)
        known.over = (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        return known

    def met(self, uid: str, namespace: str, name: str, annotations: Mapping[str, str]) -> PodOnNode:
        """The runtime has this pod; nothing more is known of it unless the API server has told it."""
        if uid not in self.pods:
            metadata = {"uid": uid, "namespace": namespace, "name": name, "annotations": dict(annotations)}
            self.pods[uid] = PodOnNode(admitted({"metadata": metadata, "spec": {"containers": []}}))
        return self.pods[uid]

    def container(self, pod: PodOnNode, id: str, name: str, stage: Stage, cgroup: str = "") -> None:
        """A container was made, or has come to another stage; older ones of its name that have ended are forgotten."""
        self._made += 1
        known = pod.containers.get(id)
        for one in [one for one in pod.containers.values() if one.name == name and one.id != id and not one.live]:
            del pod.containers[one.id]
            pod.cgroups.pop(one.id, None)
        created = known.created if known else float(self._made)
        pod.containers[id] = SeenContainer(id, name, 0, stage, created)
        if cgroup:
            pod.cgroups[id] = cgroup

    def ended(self, id: str) -> PodOnNode | None:
        """A container has ended. It is remembered as such, so that nobody takes it for one that is yet to be seen."""
        for pod in self.pods.values():
            known = pod.containers.get(id)
            if known is not None:
                pod.containers[id] = SeenContainer(id, known.name, 0, Stage.EXITED, known.created)
                return pod
        return None

    def by_api_uid(self, uid: str) -> PodOnNode | None:
        return next((pod for pod in self.pods.values() if pod.api_uid == uid), None)

    def cgroup(self, id: str) -> str:
        return next((pod.cgroups[id] for pod in self.pods.values() if id in pod.cgroups), "")
