"""Questions to answers: puts the feed, what the identity may see and the pure views together.

Called by the routes and by streams: both give the same answer to the same question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubeqos import __version__
from kubeqos.client import ApiError, Call, TransportApi, Unreachable
from kubeqos.client.api import Followed
from kubeqos.client.resources import POD_DECISIONS, PRIORITY_CLASSES, STORING
from kubeqos.codec import JsonObject, decode_json
from kubeqos.dashboard import rehearsal
from kubeqos.dashboard.feed import Feed
from kubeqos.dashboard.objects import Objects, Sight
from kubeqos.dashboard.present.clusters import (
    NO_USE,
    Rows,
    cluster_data,
    pods_data,
    timeline_data,
    visible,
    why_waiting,
)
from kubeqos.dashboard.present.data import (
    CompareQuestion,
    ComparisonData,
    CurveData,
    Data,
    DefragData,
    NodeData,
    PodData,
    ScenarioData,
    WhatIfData,
    WhatIfQuestion,
)
from kubeqos.dashboard.present.nodes import defrag_data, node_data, owners_over_time
from kubeqos.dashboard.present.pods import pod_data
from kubeqos.dashboard.present.rows import seconds
from kubeqos.dashboard.sight import look
from kubeqos.errors import InputError, KubeqosError
from kubeqos.model.objects import PodView
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.storage import mounted_claims
from kubeqos.scheduler.reading.snapshot import snapshot
from kubeqos.scheduler.reading.storage import VolumeIndex, volumes_in
from kubeqos.views import pending
from kubeqos.views.defrag import defrag_plan
from kubeqos.web.identity import Identity

SIGHT_SECONDS = 5.0
"""How long what an identity may see is believed before it is asked again."""
NEAREST_SHARE = 20
"""Looking for the nearest miss of waiting pods may take this part of the time: 1/20."""
MOST_GROUPS = 20
SYNC_SECONDS = 20.0
PINNED_SECONDS = 2.0
MOST_PINS = 1000
MOST_PLANS = 20
_READ_ALL = "this user may not list nodes and pods of all namespaces"


class NotFound(KubeqosError):
    """There is no such thing, or none that this identity may see: it is not told which."""


class Answers:
    """Everything that can be asked."""

    version = __version__

    def __init__(self, feed: Feed, api_of: Callable[[Identity], TransportApi]) -> None:
        self.feed = feed
        self._api_of = api_of
        self._sights: dict[Identity, tuple[float, Sight]] = {}
        self._pins: dict[tuple[Identity, str], tuple[int, float, dict[str, str]]] = {}
        self._rows = Rows()
        self._nearest: dict[str, list[str]] = {}
        self._nearest_again = 0.0
        self._rehearsing = asyncio.Semaphore(1)
        self._planning = asyncio.Lock()
        self._plans: dict[str, tuple[object, DefragData]] = {}

    async def sight(self, identity: Identity) -> Sight:
        """What the identity may see, as the API server said a moment ago."""
        asked, known = self._sights.get(identity, (-SIGHT_SECONDS, Sight()))
        if time.monotonic() - asked >= SIGHT_SECONDS:
            places = {*self.feed.namespaces(), *({self.feed.namespace} - {""})}
            known = await look(self._api_of(identity), places)
            self._sights = {
                who: kept for who, kept in self._sights.items() if time.monotonic() - kept[0] < SIGHT_SECONDS
            }
            self._sights[identity] = time.monotonic(), known
        return known

    async def view(self, identity: Identity, path: str, query: Mapping[str, str]) -> Data:
        """The answer to a GET: cluster, nodes/NODE and what is below it, pods, pods/NAMESPACE/POD, timeline, scenario.

        With `at` it is of that past time.
        """
        await self._followed()
        sight = await self.sight(identity)
        objects = self._objects(query.get("at", ""))
        match path.split("/"):
            case ["cluster"]:
                await self._look_for_nearest(objects)
                nearest = self._nearest if objects.at is None else {}
                return cluster_data(objects, sight, self._rows, self.feed.node_revision, nearest)
            case ["nodes", name]:
                return await self._node(objects, sight, identity, name)
            case ["nodes", name, "owners"]:
                return self._owners(objects, sight, name)
            case ["nodes", name, "defrag"]:
                return await self._defrag(objects, sight, name)
            case ["pods"]:
                return pods_data(objects, sight, query.get("namespace", ""), query.get("text", ""))
            case ["pods", namespace, name]:
                return await self._pod(objects, sight, identity, namespace, name)
            case ["scenario"]:
                return await self._scenario(objects, sight)
            case ["timeline"]:
                history = self.feed.history
                return timeline_data(objects, sight, history.began, self.feed.clock(), history.changes())
        raise NotFound(f"there is no {path}")

    async def _followed(self) -> None:
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self.feed.synced.wait()
        except TimeoutError as error:
            raise NotFound("the cluster has not been read yet", remedy="try again in a moment") from error

    def _objects(self, at: str) -> Objects:
        if not at:
            return self.feed.now()
        try:
            moment = float(at)
        except ValueError as error:
            raise InputError(f"at={at} is no time", remedy="give seconds since 1970") from error
        if not moment >= self.feed.history.began:
            began = timestamp(self.feed.history.began)
            raise InputError(f"the past is known since {began}", remedy="choose a later time")
        return self.feed.then(moment)

    # ---- Nodes and pods

    async def _node(self, objects: Objects, sight: Sight, identity: Identity, name: str) -> NodeData:
        raw = objects.node(name) if sight.nodes.everything else None
        if raw is None:
            raise NotFound(f"there is no node {name}, or none that this user may see")
        seen = [
            pod for pod in objects.pods_on(name) if sight.pods.sees(f"{pod.metadata.namespace}/{pod.metadata.name}")
        ]
        told = visible(objects.of(lambda one: one.kind == "Node" and one.name == name), sight)
        pinned = await self._pinned(identity, name) if objects.at is None and sight.pods.everything else {}
        return node_data(raw, seen, told[-100:], [] if sight.pods.everything else [NO_USE], pinned)

    def _owners(self, objects: Objects, sight: Sight, name: str) -> CurveData:
        raw = objects.nodes.get(name) if sight.all_pods_and_nodes else None
        if raw is None:
            raise NotFound(f"there is no node {name} whose owners this user may see")
        now, history = self.feed.clock(), self.feed.history
        versions = [*history.versions(("Node", name)), (now, raw)]
        decoded = [(until, None if old is None else decode_json(old)) for until, old in versions]
        return owners_over_time(decoded, history.began, now)

    async def _defrag(self, objects: Objects, sight: Sight, name: str) -> DefragData:
        """The plan, kept while what it is made from is the same: on a large machine it takes a second."""
        raw = objects.node(name) if sight.all_pods_and_nodes else None
        if raw is None:
            raise NotFound(f"there is no node {name} whose owners this user may see")
        made_from = raw["metadata"].get("annotations"), list(objects.pods_on(name))
        async with self._planning:
            known = self._plans.get(name)
            if known is None or known[0] != made_from:
                known = made_from, defrag_data(await asyncio.to_thread(defrag_plan, raw, made_from[1]))
                self._plans[name] = known
                while len(self._plans) > MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
        return known[1]

    async def _pinned(self, identity: Identity, node: str) -> dict[str, str]:
        """Where containers really run, asked as the identity every few seconds. An answer from before the node's last
        change is not compared with what came after it."""
        revision, asked, known = self._pins.get((identity, node), (-1, -PINNED_SECONDS, {}))
        if time.monotonic() - asked >= PINNED_SECONDS:
            revision, known = self.feed.node_revision.get(node, 0), await self._ask_pinned(identity, node)
            self._pins[identity, node] = revision, time.monotonic(), known
            while len(self._pins) > MOST_PINS:
                del self._pins[next(iter(self._pins))]
        return known if revision == self.feed.node_revision.get(node, 0) else {}

    async def _ask_pinned(self, identity: Identity, node: str) -> dict[str, str]:
        try:
            call = Call("GET", f"/api/v1/nodes/{node}/proxy/pinned")
            answer = await self._api_of(identity).transport.send(call)
            told = msgspec.json.decode(answer.body, type=_Pins) if answer.status == 200 else _Pins()
        except (Unreachable, msgspec.DecodeError):
            return {}
        return {name: one.cpus for name, one in told.containers.items()}

    async def _pod(self, objects: Objects, sight: Sight, identity: Identity, namespace: str, name: str) -> PodData:
        raw = objects.pod(f"{namespace}/{name}") if sight.pods.sees(f"{namespace}/{name}") else None
        if raw is None:
            raise NotFound(f"there is no pod {namespace}/{name}, or none that this user may see")
        pod, left_out = PodView.of(raw), []
        told: list[str] = []
        looked: dict[str, Any] = {}
        if pod.spec.node_name:
            told, missing = await self._story(identity, pod) if objects.at is None else ([], "")
            left_out += [missing] if missing else []
            if not sight.nodes.everything:
                left_out.append("CPUs and memory on its node: this user may not read nodes")
        elif not pod.is_terminal:
            looked = await self._pending(objects, sight, identity, raw)
            left_out += [looked.pop("leftOut")] if "leftOut" in looked else []
        node = objects.node(pod.spec.node_name) if sight.nodes.everything and pod.spec.node_name else None
        about = objects.of(
            lambda one: (one.namespace, one.name) == (namespace, name) and one.uid in ("", pod.metadata.uid)
        )
        decisions = await self._decisions(identity, pod, objects.at)
        return pod_data(raw, node, visible(about, sight), told, decisions, looked, left_out)

    async def _pending(self, objects: Objects, sight: Sight, identity: Identity, raw: JsonObject) -> dict[str, Any]:
        if not sight.all_pods_and_nodes:
            return {"leftOut": pending.UNREADABLE}
        nodes, pods = ([decode_json(one) for one in found.values()] for found in (objects.nodes, objects.pods))
        claims = objects.at is None and any(mounted_claims(PodView.of(raw)))
        volumes = _index(await stored_in(self._api_of(identity))) if claims else None
        return pending.looked_at(raw, nodes, pods, volumes=volumes, fix=True)

    async def _story(self, identity: Identity, pod: PodView) -> tuple[list[str], str]:
        """What the pod's node did for it, asked as the identity; or why that is left out."""
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        call = Call("GET", f"/api/v1/nodes/{pod.spec.node_name}/proxy/stories/{where}")
        try:
            answer = await self._api_of(identity).transport.send(call)
        except Unreachable as error:
            return [], f"the story: {error.what}"
        if answer.status == 403:
            return [], "the story: this user may not ask nodes (get nodes/proxy)"
        if answer.status >= 400:
            return [], f"the story: {ApiError.of(answer.status, answer.body).message}"
        try:
            return _Story.read(answer.body).lines, ""
        except msgspec.DecodeError:
            return [], "the story: this node tells none"

    async def _decisions(self, identity: Identity, pod: PodView, at: float | None) -> list[dict[str, Any]]:
        """The pod's record as this identity may read it, up to a past time; nothing where no records are kept."""
        path = POD_DECISIONS.path(pod.metadata.namespace, pod.metadata.name)
        try:
            answer = await self._api_of(identity).transport.send(Call("GET", path, {"uid": pod.metadata.uid}))
        except Unreachable:
            return []
        found = decode_json(answer.body).get("decisions") or [] if answer.status == 200 else []
        return [one for one in found if at is None or seconds(one.get("at", "")) <= at]

    async def _look_for_nearest(self, objects: Objects) -> None:
        """The nearest misses of one waiting pod for each reason; not again before it pays."""
        waiting = [] if objects.at is not None else [pod for pod in objects.pods_on("") if not pod.is_terminal]
        if not waiting or time.monotonic() < self._nearest_again:
            return
        claims = any(any(mounted_claims(pod)) for pod in waiting)
        volumes = _index(await stored_in(self.feed.api)) if claims else None
        started = time.monotonic()
        nodes = (decode_json(raw) for raw in objects.nodes.values())
        pods = (decode_json(raw) for raw in objects.pods.values())
        cluster, _ = snapshot(nodes, pods, volumes=volumes)
        found: dict[str, list[str]] = {}
        for pod in waiting:
            reason = why_waiting(pod)
            if reason not in found and len(found) < MOST_GROUPS:
                raw = objects.pod(f"{pod.metadata.namespace}/{pod.metadata.name}")
                looked = pending.looked_at_in(cluster, raw or {}, volumes=volumes, fix=False)
                told = next((looked[key] for key in ("now", "waits") if key in looked), None)
                found[reason] = looked["nearest"] if told is None else [told]
        self._nearest = found
        self._nearest_again = time.monotonic() + NEAREST_SHARE * (time.monotonic() - started)

    # ---- What if

    async def what_if(self, identity: Identity, question: WhatIfQuestion) -> WhatIfData:
        """Where the pods of a manifest would go, on a copy of the cluster."""
        await self._followed()
        sight = await self.sight(identity)
        if not sight.all_pods_and_nodes:
            raise InputError(f"a rehearsal needs the whole cluster, and {_READ_ALL}")
        objects = self.feed.now()
        api = self._api_of(identity)
        priorities, stored = (await api.list(PRIORITY_CLASSES)).items, await stored_in(api)
        async with self._rehearsing:
            return await rehearsal.fitted(
                question, list(objects.nodes.values()), list(objects.pods.values()), priorities, stored
            )

    async def _scenario(self, objects: Objects, sight: Sight) -> ScenarioData:
        """The cluster as it is, or as it was, as a scenario."""
        if not sight.all_pods_and_nodes:
            raise NotFound(f"a scenario needs the whole cluster, and {_READ_ALL}")
        async with self._rehearsing:
            return await rehearsal.imported(list(objects.nodes.values()), list(objects.pods.values()))

    async def compare(self, question: CompareQuestion) -> ComparisonData:
        """One scenario under several policies; no cluster is asked."""
        async with self._rehearsing:
            return await rehearsal.compared(question)


async def stored_in(api: Followed) -> list[tuple[str, bytes]] | None:
    """Volume claims and what they lead to, each with its kind; None where they may not be read, or are not there."""
    try:
        return [(one.kind, raw) for one in STORING for raw in (await api.list(one)).items]
    except ApiError as error:
        if not error.not_found and not error.forbidden:
            raise
        return None


def _index(stored: list[tuple[str, bytes]] | None) -> VolumeIndex | None:
    return None if stored is None else volumes_in((kind, decode_json(raw)) for kind, raw in stored)


class _Pin(msgspec.Struct, frozen=True):
    cpus: str = ""


class _Pins(msgspec.Struct, frozen=True):
    containers: dict[str, _Pin] = {}


class _Story(msgspec.Struct):
    lines: list[str]

    @classmethod
    def read(cls, body: bytes) -> _Story:
        return msgspec.json.decode(body, type=cls)
