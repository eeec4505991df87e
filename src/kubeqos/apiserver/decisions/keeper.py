"""Gathers what was decided about pods and keeps it, behind everything else.

Twice a second it looks at what happened to pods since the last time, by itself: no write wakes it. Of those that came
it tells what admission decided, of those that went it keeps the last object. What others tell (`answers`) is gathered
in between. All of it goes to the file in one transaction, in a thread of its own. In a burst it keeps what it can and
counts the rest as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.decisions.journal import Departed, Item, Journal
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.codec import JsonObject, decode_json, encode_json, typed_decoder
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.model.decisions import REFUSED, Entry, PodDecisions, PodRef
from kubeqos.model.timestamps import timestamp
from kubeqos.ratelimit import RateLimit
from kubeqos.rules import recorded
from kubeqos.rules.requests import AdmissionRequest, Operation, RequestRefused
from kubeqos.store import Event, Store

T = TypeVar("T")
LOOK_SECONDS = 0.5
SWEEP_SECONDS = 60.0
MOST_GATHERED = 4096
"""Entries between two looks; more are lost."""
ADMISSIONS_PER_SECOND, ADMISSIONS_AT_ONCE = 50.0, 512
"""Pods whose admission is worked out again to be told."""
MOST_HELD = 200
"""Refusals and evictions between two looks; more are lost."""
_POD, _QUOTA, _NODE = kind_named("Pod"), kind_named("ResourceQuota"), kind_named("Node")
_DISRUPTED, _BOUND, _GENERATION = b'"DisruptionTarget"', b'"nodeName":"', b'"generation":'
log = logger("kubeqos.apiserver")


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""


class _Glance(msgspec.Struct, gc=False):
    """What has to be known of a pod that is gone; the rest is kept as it came."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_read_glance = typed_decoder(_Glance)


class DecisionKeeper:
    """The records of one API server. `run` it in a task."""

    def __init__(self, store: Store, chain: Chain, path: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._chain = chain
        self._path = path
        self._clock = clock
        self._watch = store.watch(_POD.prefix, store.revision)
        self._gathered: list[Item] = []
        self._refusals: list[tuple[AdmissionRequest, RequestRefused]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decisions")
        self._journal: Journal | None = None
        self._evicted: dict[str, tuple[str, str]] = {}
        """Pods whose eviction is about to be seen: who asked for it, and by which budget."""
        self._admissions = RateLimit(ADMISSIONS_PER_SECOND, ADMISSIONS_AT_ONCE)
        self.lost = 0
        chain.on_refused(self._refused)

    def tell(self, entries: Iterable[Entry]) -> None:
        """Keep these with the next look. Never waits."""
        for entry in entries:
            self._gather(entry)

    def _gather(self, item: Item) -> None:
        if len(self._gathered) < MOST_GATHERED:
            self._gathered.append(item)
        else:
            self.lost += 1

    async def run(self) -> None:
        """Look twice a second until cancelled."""
        swept = self._clock()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
            if self._clock() - swept >= SWEEP_SECONDS:
                swept = await self._sweep()

    async def _sweep(self) -> float:
        now = self._clock()
        await self._in_thread(lambda journal: journal.sweep(now))
        return now

    async def look(self) -> None:
        """Keep everything that is known by now."""
        self._follow()
        items, self._gathered = self._gathered, []
        if items:
            now = self._clock()
            if not await self._in_thread(lambda journal: journal.write(items, now)):
                self.lost += len(items)

    async def close(self) -> None:
        """Keep the rest, and let the file go."""
        await self.look()
        await self._in_thread(lambda journal: journal.close())
        self._thread.shutdown(wait=False)

    # ---- Reading

    async def record(self, namespace: str, name: str, uid: str = "") -> PodDecisions | None:
        """The record of a pod: the one of this uid, else the one that lives, else the last of this name."""
        await self.look()
        stored = None if uid else self._store.get(_POD.key(namespace, name))
        if stored is not None:
            pod = decode_json(stored.value)
            ref = _reference(pod)
            found = await self._in_thread(lambda journal: journal.of_uid(ref.uid))
            node = (pod.get("spec") or {}).get("nodeName", "")
            return found or PodDecisions(ref, node=node)
        if uid:
            found = await self._in_thread(lambda journal: journal.of_uid(uid))
            mine = found is not None and (found.pod.namespace, found.pod.name) == (namespace, name)
            return found if mine else None
        return await self._in_thread(lambda journal: journal.last_named(namespace, name))

    async def records(self, namespace: str, limit: int) -> Sequence[PodDecisions]:
        """Those that changed last."""
        await self.look()
        return await self._in_thread(lambda journal: journal.listed(namespace, limit)) or []

    async def node_of(self, pod: PodRef) -> str | None:
        """Where a pod is, or was."""
        stored = self._store.get(_POD.key(pod.namespace, pod.name))
        if stored is not None:
            found = decode_json(stored.value)
            if found["metadata"]["uid"] == pod.uid:
                return str((found.get("spec") or {}).get("nodeName", ""))
        known = [one for one in self._gathered if isinstance(one, Departed) and one.pod.uid == pod.uid]
        return known[0].node if known else await self._in_thread(lambda journal: journal.node_of(pod.uid))

    async def _in_thread(self, work: Callable[[Journal], T]) -> T | None:
        """Ask the file. What it cannot do is said once and goes without."""

        def asked() -> T:
            if self._journal is None:
                self._journal = Journal(self._path)
            return work(self._journal)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, asked)
        except (apsw.Error, OSError) as error:
            log.warning("decision records", path=str(self._path), error=str(error))
            return None

    # ---- What happened to pods

    def _follow(self) -> None:
        if self._watch.behind:  # more happened than is remembered: what is lost is lost
            self._watch.close()
            self._watch = self._store.watch(_POD.prefix, self._store.revision)
            self.lost += 1
        refusals, self._refusals = self._refusals, []
        for each in refusals:
            self._tell_refused(*each)
        for event in self._watch.ready():
            if event.type == "DELETED":
                self._departed(event)
            elif event.type == "ADDED":
                self._admitted(event)
            elif event.type == "MODIFIED" and event.previous is not None:
                self._changed(event.previous, event.value)

    def _admitted(self, event: Event) -> None:
        namespace = event.key.removeprefix(_POD.prefix).partition("/")[0]
        quotas = [one for one in self._chain.ledger.quotas(namespace) if self._was_there(namespace, one.name, event)]
        if not recorded.is_worth_telling(event.value, quotas) or not self._admissions.allows(self._clock()):
            return
        pod = decode_json(event.value)
        at = pod["metadata"].get("creationTimestamp") or timestamp(self._clock())
        told = recorded.admission(pod, quotas, self._chain.container_level, at)
        self._gather(Entry(_reference(pod), told))

    def _changed(self, before: bytes, after: bytes) -> None:
        """A pod was changed. Looked at as bytes first: nearly always it is a status that decides nothing."""
        if _DISRUPTED in after and _DISRUPTED not in before:
            self._disrupted(decode_json(after))
        if _BOUND in before and _generation(before) != _generation(after):
            pod = decode_json(after)
            told = recorded.resize(decode_json(before), pod, timestamp(self._clock()))
            if told is not None:
                self._gather(Entry(_reference(pod), told))

    def _disrupted(self, pod: JsonObject) -> None:
        name = (pod.get("spec") or {}).get("nodeName", "")
        stored = self._store.get(_NODE.key("", name)) if name else None
        told = recorded.disruption(pod, decode_json(stored.value) if stored is not None else None)
        if told is None:
            return
        ref = _reference(pod)
        user, budget = self._evicted.pop(ref.uid, ("", ""))
        self._gather(
            Entry(ref, msgspec.structs.replace(told, at=timestamp(self._clock()), asked_by=user, budget=budget))
        )

    def evicted(self, uid: str, user: str, budget: str) -> None:
        """Somebody asked for the eviction of a pod, and a budget allowed it; its change comes next."""
        if len(self._evicted) < MOST_HELD:
            self._evicted[uid] = user, budget

    def _was_there(self, namespace: str, quota: str, event: Event) -> bool:
        """Whether a quota was there when a pod was made: this is told a moment later, and it may have come since."""
        stored = self._store.get(_QUOTA.key(namespace, quota))
        return stored is not None and stored.created < event.revision

    def _departed(self, event: Event) -> None:
        if len(self._gathered) >= MOST_GATHERED:
            self.lost += 1
            return
        value = event.previous or event.value
        pod = _read_glance(value)
        ref = PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        self._gather(Departed(ref, pod.spec.node_name, self._clock(), value))

    def _refused(self, request: AdmissionRequest, refused: RequestRefused) -> None:
        """A pod was asked for and not taken: who asked is answered first."""
        if request.qualified != "pods" or request.subresource or request.operation is not Operation.CREATE:
            return
        if len(self._refusals) < MOST_HELD:
            self._refusals.append((request, refused))
        else:
            self.lost += 1

    def _tell_refused(self, request: AdmissionRequest, refused: RequestRefused) -> None:
        """One that a controller asks for has no name yet: its prefix stands for all of them."""
        pod = request.new or {}
        metadata = pod.get("metadata") or {}
        name = str(metadata.get("generateName") or metadata.get("name") or "")
        ref = PodRef(request.namespace, name, f"{REFUSED}{request.namespace}/{name}")
        quotas, level = self._chain.ledger.quotas(request.namespace), self._chain.container_level
        now = self._clock()
        try:
            told = recorded.refusal(pod, refused, quotas, level, timestamp(now))
        except (KubeqosError, msgspec.ValidationError):  # refused for what it is: it cannot even be counted
            told = recorded.refusal(pod, refused, (), level, timestamp(now))
        self._gather(Entry(ref, told))
        self._gather(Departed(ref, "", now, encode_json(pod)))


def _generation(value: bytes) -> bytes:
    """The number of a pod's spec, as it stands in its bytes; it grows when resources are asked to change."""
    start = value.find(_GENERATION)
    return value[start : value.find(b",", start)] if start >= 0 else b""


def _reference(pod: JsonObject) -> PodRef:
    metadata = pod["metadata"]
    return PodRef(metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))
