"""Writes pod statuses to the API server, and lets it forget pods that have ended.

One writer per pod at a time; of several statuses only the newest is written; a delete follows the last status. A status
that the server refuses for good is dropped and told, and a delete waits behind no refusal: what must end, ends. An API
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
from kubeqos.logs import logger
from kubeqos.node.pod.effects import Raw, Record

log = logger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
LOGGED_PAUSE = 3.0
"""Who is refused so long says so: what is mended sooner was a moment's trouble."""
PENDING_SECONDS = 0.05
"""A pod that is about to run says so in a moment: its first status waits this long for a better one."""
OPTIONAL_FIELDS = ("reason", "message", "podIP", "podIPs", "qosResources", "resources", "startTime")
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
    sent: Raw | None = None
    """The status that is on its way: who refuses, refuses this one."""
    told: Raw | None = None
    """The status that the server has taken last, as of this version."""
    version: int = 0
    heard: Raw | None = None
    """The pod as the API showed it last: its news may overtake the answer to an older write of ours."""
    is_contradicted: bool = False
    """Whether somebody has said otherwise since."""


class PodWriter:
    """The API side of a node's pods."""

    def __init__(
        self,
        api: Api,
        spawn: Callable[[Any], None],
        tell: Callable[[Raw, Record], None],
        follow: Callable[[Raw, Raw], None] = lambda _pod, _status: None,
    ) -> None:
        """`tell` writes an event about a pod, `follow` is shown every pod with its new status."""
        self._api = api
        self._spawn = spawn
        self._tell = tell
        self._follow = follow
        self._targets: dict[str, _Target] = {}
        self._working: set[str] = set()
        self.written = 0
        self.failed = 0
        self.refused = 0
        """Statuses that were dropped."""

    def write(self, raw: Raw, status: Raw) -> None:
        """Make this the status of the pod."""
        target = self._target(raw)
        target.status, target.known = status, raw.get("status") or {}
        self._follow(raw, status)
        self._wake(target)

    def heard(self, raw: Raw) -> None:
        """The pod as the API shows it: others write into its status too, as for a node that is not heard of."""
        target = self._targets.get(raw["metadata"]["uid"])
        if target is not None:
            target.heard = raw
            self._compare(target)

    def _compare(self, target: _Target) -> None:
        """Whether what was heard last contradicts what the server took before."""
        if target.heard is not None and target.told is not None and version_of(target.heard) > target.version:
            target.known = target.heard.get("status") or {}
            target.is_contradicted = contradicts(target.known, target.told)

    def insist(self) -> None:
        """Say again what others have said otherwise: to be called while this node is known to be well."""
        for target in list(self._targets.values()):
            if target.is_contradicted and target.status is None and not target.delete:
                target.status, target.is_contradicted = target.told, False
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
                    if isinstance(error, ApiError) and self._dropped(target, error):
                        continue
                    if isinstance(error, ApiError) and pause >= LOGGED_PAUSE:
                        log.warning("pod %s/%s: the API server refuses: %s", target.namespace, target.name, error)
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self._working.discard(target.uid)

    def _dropped(self, target: _Target, error: ApiError) -> bool:
        """Give up a status that will not be taken, or that a delete would wait behind; the next one is tried anew."""
        if target.sent is None or not (error.for_good or (target.delete and not error.is_passing)):
            return False
        if target.status is target.sent:
            target.status = None
        target.sent = None
        self.refused += 1
        log.warning("pod %s/%s: its status is refused and dropped: %s", target.namespace, target.name, error)
        reference = {"metadata": {"namespace": target.namespace, "name": target.name, "uid": target.uid}}
        message = f"the API server refuses the pod's status, which is dropped: {error.message}"
        self._tell(reference, Record(target.uid, "Warning", "PodStatusRefused", message))
        return True

    async def _step(self, target: _Target) -> None:
        status = target.sent = target.status
        if status is not None:
            patch = {"metadata": {"uid": target.uid}, "status": status_patch(status, target.known or {})}
            answer = await self._api.patch(
                PODS, target.name, patch, target.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
            self.written += 1
            target.known = answer.get("status") or {}
            target.told, target.version, target.is_contradicted = status, version_of(answer), False
            self._compare(target)
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
        theirs = {one["type"]: one for one in known.get("conditions") or ()}
        patch["conditions"] = [*(_whole(one, theirs.get(one["type"], {})) for one in status["conditions"]), *removed]
    return patch


def _whole(condition: Raw, known: Raw) -> dict[str, Any]:
    """A condition that leaves no reason behind that it does not have: conditions are merged field by field."""
    return {**{field: None for field in ("reason", "message") if known.get(field)}, **condition}


def contradicts(shown: Raw, told: Raw) -> bool:
    """Whether the API shows another phase, or another state of one of our conditions, than we have told."""
    theirs = {one["type"]: one.get("status") for one in shown.get("conditions") or ()}
    return shown.get("phase") != told.get("phase") or any(
        theirs.get(one["type"]) != one["status"] for one in told.get("conditions") or ()
    )


def version_of(raw: Raw) -> int:
    found = str(raw["metadata"].get("resourceVersion") or "")
    return int(found) if found.isdecimal() else 0
