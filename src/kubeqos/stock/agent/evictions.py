"""Evicts pods that run without what they asked for, each by a task of its own: one that is refused keeps nobody else.

A disruption budget may say no for hours. That is told once, in the log and as an event of the pod, and asked again
until the pod is gone. Kept by `report`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubeqos.client import Api, ApiError, EventRecorder, Unreachable
from kubeqos.client.resources import PODS
from kubeqos.cri.providers.protocol import Subject
from kubeqos.logs import logger

Raw = dict[str, Any]
REASON = "QoSClassMissed"
AGAIN_SECONDS = 10.0
"""After a refusal, unless the server says how long."""
log = logger("kubeqos.agent")


class Evictions:
    """Those of one node."""

    def __init__(self, api: Api, events: EventRecorder, again_seconds: float = AGAIN_SECONDS) -> None:
        self._api, self._events, self._again_seconds = api, events, again_seconds
        self._asked: asyncio.Queue[tuple[Subject, str]] = asyncio.Queue()
        self.waiting: dict[str, str] = {}
        """Pods that are to go, by uid, and why."""

    def ask(self, subject: Subject, reason: str) -> None:
        """The pod of this container is to start anew; nobody waits for that here."""
        if subject.pod_uid not in self.waiting:
            self.waiting[subject.pod_uid] = reason
            self._asked.put_nowait((subject, reason))

    async def run(self) -> None:
        """Evict until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._see_to(*await self._asked.get()))

    async def _see_to(self, subject: Subject, reason: str) -> None:
        pod: Raw = {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {"name": subject.pod_name, "namespace": subject.pod_namespace, "uid": subject.pod_uid}
        is_told = False
        while (refusal := await self._refused(subject)) is not None:
            if not is_told:
                is_told = True
                log.warning("an eviction is refused; trying again", pod=subject.describe(), reason=refusal.what)
                what = f"cannot be evicted yet, which is tried again: {refusal.what}; it is to go because {reason}"
                self._events.record(pod, REASON, what, "Warning")
            later = refusal.retry_after if isinstance(refusal, ApiError) else None
            await asyncio.sleep(later or self._again_seconds)
        self._events.record(pod, REASON, f"evicted: {reason}", "Warning")
        del self.waiting[subject.pod_uid]

    async def _refused(self, subject: Subject) -> ApiError | Unreachable | None:
        """Ask once; None when the pod goes, or has gone."""
        name, namespace = subject.pod_name, subject.pod_namespace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": subject.pod_uid}},
        }
        try:
            await self._api.create(PODS, body, namespace, name=name, subresource="eviction")
        except ApiError as error:
            # A conflict is about the uid: another pod has the name now.
            return None if error.not_found or error.conflict else error
        except Unreachable as error:
            return error
        return None
