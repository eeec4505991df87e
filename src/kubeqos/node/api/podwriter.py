"""Writes pod statuses to the API server, and lets it forget pods that have ended.

One writer per pod at a time; of several statuses only the newest is written; a delete waits for the last status. An API
server that is away makes the writers wait, never the pods.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubeqos.client.api import Api, PatchType
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import PODS
from kubeqos.node.pod.effects import Raw

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
PENDING_SECONDS = 0.05
"""A pod that is about to run says so in a moment: its first status waits this long for a better one."""
OPTIONAL_FIELDS = ("reason", "message", "podIP", "podIPs", "qosResources", "startTime")
OUR_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


@dataclass(slots=True)
class _Target:
    namespace: str
    name: str
    uid: str
    status: Raw | None = None
    delete: bool = False
    known: Raw | None = None
    """The status that the server had when we last heard."""


class PodWriter:
    """The API side of a node's pods."""

    def __init__(self, api: Api, spawn: Callable[[Any], None]) -> None:
        self._api = api
        self._spawn = spawn
        self._targets: dict[str, _Target] = {}
        self._working: set[str] = set()
        self.written = 0
        self.failed = 0

    def write(self, raw: Raw, status: Raw) -> None:
        """Make this the status of the pod."""
        target = self._target(raw)
        target.status, target.known = status, raw.get("status") or {}
        self._wake(target)

    def delete(self, raw: Raw) -> None:
        """The pod has ended: remove it from the API once its last status is there."""
        target = self._target(raw)
        target.delete = True
        self._wake(target)

    def forget(self, uid: str) -> None:
        self._targets.pop(uid, None)

    @property
    def idle(self) -> bool:
        return not self._working

    def _target(self, raw: Raw) -> _Target:
        metadata = raw["metadata"]
        uid = metadata["uid"]
        if uid not in self._targets:
            self._targets[uid] = _Target(metadata.get("namespace", ""), metadata["name"], uid)
        return self._targets[uid]

    def _wake(self, target: _Target) -> None:
        if target.uid not in self._working:
            self._working.add(target.uid)
            self._spawn(self._work(target))

    async def _work(self, target: _Target) -> None:
        pause = FIRST_PAUSE
        try:
            if (target.status or {}).get("phase") == "Pending":
                await asyncio.sleep(PENDING_SECONDS)
            while target.status is not None or target.delete:
                try:
                    await self._step(target)
                    pause = FIRST_PAUSE
                except (ApiError, Unreachable) as error:
                    if isinstance(error, ApiError) and (error.not_found or error.conflict):
                        break  # gone, or a namesake has taken its place
                    self.failed += 1
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self._working.discard(target.uid)

    async def _step(self, target: _Target) -> None:
        status = target.status
        if status is not None:
            patch = {"metadata": {"uid": target.uid}, "status": status_patch(status, target.known or {})}
            answer = await self._api.patch(
                PODS, target.name, patch, target.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
            self.written += 1
            target.known = answer.get("status") or {}
            if target.status is status:
                target.status = None
        elif target.delete:
            await self._api.delete(PODS, target.name, target.namespace, grace_seconds=0, uid=target.uid)
            target.delete = False


def status_patch(status: Raw, known: Raw) -> dict[str, Any]:
    """A strategic patch that leaves exactly our status: what is no longer true is taken back."""
    patch: dict[str, Any] = dict(status)
    for field in OPTIONAL_FIELDS:
        if field not in status and known.get(field):
            patch[field] = None
    for field in ("podIPs", "hostIPs"):
        if patch.get(field) and known.get(field) and patch[field] != known[field]:
            patch[field] = [*patch[field], {"$patch": "replace"}]
    if "conditions" in status:
        ours = {condition["type"] for condition in status["conditions"]}
        stale = [one["type"] for one in known.get("conditions") or () if one["type"] in OUR_CONDITIONS]
        removed = [{"type": kind, "$patch": "delete"} for kind in stale if kind not in ours]
        patch["conditions"] = [*status["conditions"], *removed]
    return patch
