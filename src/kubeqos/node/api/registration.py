"""Registers the node and keeps its Node object and lease current.

The Node is written when something about it changed, and once in a while so that others see it is alive; the lease is
renewed at a quarter of its duration. An API server without the proposals' fields simply drops them (version skew).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeqos.client.api import Api, PatchType
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import LEASES, NODES, Resource
from kubeqos.clock import NS, Clock
from kubeqos.codec import JsonObject, decode_json
from kubeqos.model.timestamps import micro_timestamp, timestamp
from kubeqos.rules.qos.classes import WELL_KNOWN, Level
from kubeqos.rules.qos.classobjects import QOS_CLASSES_PATH, QOS_RESOURCES_PATH, ClassObjects

QOS_CLASSES = Resource(*QOS_CLASSES_PATH, "QOSClass", namespaced=False)
QOS_RESOURCES = Resource(*QOS_RESOURCES_PATH, "QOSResource", namespaced=False)
LEASE_NAMESPACE = "kube-node-lease"
HEARTBEAT_SECONDS = 300.0
Status = Callable[[list[Any], str], dict[str, Any]]


class Registration:
    """One node's place in the API."""

    def __init__(self, api: Api, name: str, clock: Clock, *, lease_seconds: int, taints: list[Any]) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._taints = taints
        self._written: dict[str, Any] = {}
        self._written_at = 0.0
        self._leased_at = 0.0
        self.node: JsonObject | None = None
        self.strict_names = False
        """Whether somebody asks for the names that the administrator has added."""
        self.class_objects = ClassObjects()

    async def keep(self, labels: Mapping[str, str], annotations: Mapping[str, str], status: Status) -> None:
        """Bring the Node and the lease up to date; cheap when nothing changed."""
        if self.node is None:
            await self._register(labels, annotations)
        if self.strict_names:
            self.class_objects = await self._read_class_objects()
        now = self._clock.now_ns() / NS
        await self._keep_node(labels, annotations, status, now)
        if not _within_the_last(self._lease_seconds / 4, self._leased_at, now):
            await self._renew()
            self._leased_at = now

    async def _read_class_objects(self) -> ClassObjects:
        return ClassObjects.of(await self._described(QOS_CLASSES), await self._described(QOS_RESOURCES))

    async def _described(self, resource: Resource) -> list[JsonObject]:
        try:
            return [decode_json(one) for one in (await self._api.list(resource)).items]
        except ApiError as error:
            if not error.not_found:
                raise
            return []  # nobody has defined them

    async def _register(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._name, "labels": dict(labels), "annotations": dict(annotations)},
            "spec": {"taints": self._taints} if self._taints else {},
        }
        try:
            self.node = await self._api.create(NODES, body)
        except ApiError as error:
            if not error.already_exists:
                raise
            self.node = await self._api.get(NODES, self._name)

    async def _keep_node(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], status: Status, now: float
    ) -> None:
        assert self.node is not None
        stamp = timestamp(now)
        built = status((self.node.get("status") or {}).get("conditions") or [], stamp)
        told = {"labels": dict(labels), "annotations": dict(annotations), "status": _without_heartbeat(built)}
        if told == self._written and _within_the_last(HEARTBEAT_SECONDS, self._written_at, now):
            return
        try:
            # What annotations no longer warn of must be gone by then, or pods are sent for it.
            lost = ((self.node.get("status") or {}).get("allocatable") or {}).keys() - built["allocatable"].keys()
            if lost:
                await self._tell_status(built)
            metadata = self.node["metadata"]
            if not _within(labels, metadata.get("labels")) or not _within(annotations, metadata.get("annotations")):
                patch = {"metadata": {"labels": dict(labels), "annotations": dict(annotations)}}
                self.node = await self._api.patch(NODES, self._name, patch)
            if not lost:
                await self._tell_status(built)
        except ApiError as error:
            if error.not_found:
                self.node = None  # somebody deleted it: register anew next time
                return
            raise
        self._written, self._written_at = told, now

    async def _tell_status(self, built: dict[str, Any]) -> None:
        assert self.node is not None
        patch = {"status": _with_removals(built, self.node.get("status") or {})}
        self.node = await self._api.patch(NODES, self._name, patch, type=PatchType.STRATEGIC, subresource="status")

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": self._lease_seconds,
            "renewTime": micro_timestamp(self._clock.now_ns() / NS),
        }
        try:
            await self._api.patch(LEASES, self._name, {"spec": spec}, LEASE_NAMESPACE)
        except ApiError as error:
            if not error.not_found:
                raise
            body = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            }
            await self._api.create(LEASES, body, LEASE_NAMESPACE)


def _within_the_last(seconds: float, then: float, now: float) -> bool:
    """A time to come is none of the past: a clock that was set back must not silence the node until it catches up."""
    return 0 <= now - then < seconds


def _within(some: Mapping[str, str], all_of: Any) -> bool:
    have = all_of or {}
    return all(have.get(key) == value for key, value in some.items())


def _without_heartbeat(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [
        {key: value for key, value in one.items() if key != "lastHeartbeatTime"} for one in status["conditions"]
    ]
    return {**status, "conditions": conditions}


def _with_removals(status: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A patch only adds: what the node no longer has is taken away by name."""
    out = dict(status)
    for field in ("capacity", "allocatable"):
        gone = set(known.get(field) or ()) - set(status[field])
        out[field] = {**status[field], **dict.fromkeys(gone)}
    classes = dict(status.get("qosResources") or {})
    for level in ("podQoSResources", "containerQoSResources"):
        before = (known.get("qosResources") or {}).get(level)
        if level not in classes and before:
            classes[level] = None
        elif before and before != classes.get(level):
            classes[level] = [*classes[level], {"$patch": "replace"}]  # or a class that is gone would stay
    if classes or known.get("qosResources"):
        out["qosResources"] = classes
    return out


def known_classes(registration: Registration | None, strict: bool) -> Mapping[str, Level]:
    """The resources whose names are known, as of the node's last look at the API; strict names ask for them."""
    if registration is None or not strict:
        return WELL_KNOWN
    registration.strict_names = True
    return registration.class_objects.levels
