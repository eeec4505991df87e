"""What each part of the installation does with its account, as short stories, and what an API server noted of it.

Each story has a node and pods of its own, named after `turn`, so that several can be told on one server.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.leadership import Leadership
from kubeqos.client.resources import EVENTS, LEASES, NAMESPACES, NODES, PODS, SECRETS, resource_named
from kubeqos.codec import decode_json
from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.kinds import STORAGE
from kubeqos.node.api.sources import ApiPods
from kubeqos.scheduler.reading.storage import SELECTED_NODE
from kubeqos.stock.agent.report import Reporter
from kubeqos.stock.cluster import CLASSES, DEVICE_SLICES, NODE_QOSES, QUOTAS, RESOURCES
from kubeqos.stock.control.controller import LEASE as CONTROLLER_LEASE
from kubeqos.stock.control.registration import MUTATING, published
from kubeqos.stock.cores.devices import DRIVER
from kubeqos.stock.cores.dra import stock_claims, tell
from kubeqos.stock.cores.publishing import PublishedCores
from kubeqos.stock.cores.slices import slices
from kubeqos.stock.installation import objects
from kubeqos.stock.names import extended_resource
from kubeqos.stock.scheduling.scheduler import StockScheduler
from kubeqos.stock.scheduling.serving import stock_service
from kubeqos.stock.scheduling.waking import Refusal, Waking
from tests.apiserver.live import LiveServer
from tests.qrm.harness import until
from tests.stock.control.replicas import NAMESPACE, QUICK, asked, replica
from tests.stock.scheduling import stories

METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
# An object that an apply would make is created: kube-apiserver asks for that right too (test_stock_scheduler runs so).
# Who tells claims of devices may do so for a driver on its own node alone: test_claim_right takes that away.
BY_APPLY: Mapping[str, set[tuple[str, str]]] = {
    "controller": {("create", "mutatingwebhookconfigurations"), ("create", "validatingwebhookconfigurations")},
    "agent": {("create", "resourceslices"), ("associated-node:patch", "resourceclaims/driver")},
    "scheduler": set(),
}
Raw = dict[str, Any]
VOLUME_CLAIMS, VOLUMES = resource_named("PersistentVolumeClaim"), resource_named("PersistentVolume")


def offered(name: str, capacity: int | None = 1) -> Raw:
    """A class that only the node of this story has."""
    counted = {} if capacity is None else {"capacity": capacity}
    return {"resource": "blockio", "class": name, "level": "container", **counted}


async def agent(admin: HttpApi, api: HttpApi, turn: str) -> None:
    """A report, cores, a claim that is looked at, and a pod that is evicted twice."""
    name = f"agent-{turn}"
    await home(admin, name)
    reporter = Reporter(api, name, lambda before, now: {"classes": [offered(name)], "classCount": 1})
    bound = ApiPods(api, name)
    async with running(reporter.run(), bound.run()):
        await bound.synced.wait()
        await reporter.published.wait()
        await told_of_cores(admin, api, name)
        named = {"resourceClaims": [{"name": "compute", "resourceClaimName": "cores"}]}
        await stock_claims(api, load_machine("laptop8"))({"metadata": {"namespace": name}, "spec": named})
        with suppress(ApiError):
            await tell(api, claimed(name), load_machine("laptop8"))
        stored = await admin.create(PODS, asking(name, name, on=name), name)
        subject = Subject(Level.CONTAINER, "x", "s", stored["metadata"]["uid"], name, name, "c")
        for times in (1, 2):  # the second time the event is one of a series: the first is written by then
            reporter.broken(subject, "it is a test")
            await until("evicted", lambda: not reporter.evictions.waiting)
            await until("told", partial(was_told, admin, name, times))


async def told_of_cores(admin: HttpApi, api: HttpApi, name: str) -> None:
    """A node's cores are published, and a slice that its pool does not have any more goes."""
    machine = load_machine("laptop8")
    [old] = slices({"metadata": {"name": name, "uid": "u0"}}, machine, NO_CPUS)
    old["metadata"] = {"name": f"{name}-old"}
    await admin.create(DEVICE_SLICES, old)
    async with running(PublishedCores(api, name, machine, NO_CPUS).run()):
        await until("the only one is the node's", lambda: has_slices(admin, name, [f"{name}-{DRIVER}-0"]))


async def has_slices(admin: HttpApi, name: str, wanted: list[str]) -> bool:
    found = [decode_json(raw) for raw in (await admin.list(DEVICE_SLICES)).items]
    return [one["metadata"]["name"] for one in found if one["spec"]["nodeName"] == name] == wanted


def claimed(namespace: str) -> Raw:
    """A claim that was given a core."""
    given = {"driver": DRIVER, "pool": namespace, "device": "core-0", "request": "cores"}
    metadata = {"name": "cores", "namespace": namespace, "uid": "u1"}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": [given]}}}}


async def controller(admin: HttpApi, api: HttpApi, turn: str) -> None:
    """A class that is offered and counted, a quota, a node that forgets, an authority that is replaced."""
    name = f"controller-{turn}"
    await home(admin, name)
    await admin.create(NODE_QOSES, {**stories.report(name), "spec": {}})
    await offer(admin, name, 1)
    async with replica(api, turn) as answering:
        await until("described", lambda: is_described(admin, name, counted=True))
        described = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSResource", "metadata": {"name": name}}
        await admin.create(RESOURCES, {**described, "spec": {"resource": "blockio", "level": "container"}})

        async def told() -> bool:
            return bool((await admin.get(RESOURCES, name)).get("status"))

        await until("the resource is told of its classes", told)
        quota = {"container": [{"name": "blockio", "classes": [{"name": name, "capacity": 1}]}]}
        own = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": {"name": name}}
        await admin.create(QUOTAS, {**own, "spec": {"qosResources": quota}}, name)
        stored = await admin.create(PODS, asking(name, name), name)
        request = {"operation": "CREATE", "namespace": name, "object": stored}
        bundle = published(await admin.get(MUTATING, "kubeqos"))
        assert (await asked(answering.port, "/mutate", bundle, request))["allowed"]

        async def is_counted() -> bool:
            return bool(((await admin.get(QUOTAS, name, name)).get("status") or {}).get("qosResourcesUsage"))

        await until("counted", is_counted)
        await offer(admin, name, None)  # nobody counts it any more
        await until("no longer counted", lambda: is_described(admin, name, counted=False))
        node = {"status": {"capacity": {extended_resource("blockio", name): "0"}}}
        await admin.patch(NODES, name, node, subresource="status")
        # The authority is replaced: the Secret is written again.
        await admin.patch(SECRETS, "kubeqos-webhook", {"data": {"ca.key": "AA=="}}, NAMESPACE)

        async def renewed() -> bool:
            return bool((await admin.get(SECRETS, "kubeqos-webhook", NAMESPACE))["data"]["ca.key"] != "AA==")

        await until("renewed", renewed)
        await until("still leads", lambda: is_renewed(admin, CONTROLLER_LEASE))


async def scheduler(admin: HttpApi, api: HttpApi, turn: str) -> None:
    """A pod that gets the only place of a class, one that waits, one that is more important."""
    name = f"scheduler-{turn}"
    here = {"nodeSelector": {"kubernetes.io/hostname": name}, "terminationGracePeriodSeconds": 0}
    await home(admin, name)
    await admin.create(NODE_QOSES, {**stories.report(name), "spec": {}})
    await offer(admin, name, 1)
    core = StockScheduler()
    service = stock_service(api, core)
    leads = asyncio.Event()

    async def lead() -> None:
        leads.set()
        await asyncio.Event().wait()

    election = Leadership(api, "kubeqos-scheduler", NAMESPACE, turn, QUICK)
    async with running(service.run(leads), election.run(lead)):
        await service.ready.wait()
        first = await admin.create(PODS, asking("p1", name, **here), name)
        await until("bound", lambda: is_bound(admin, name, "p1"))
        await admin.create(PODS, asking("p2", name, **here), name)
        await until("told why it waits", lambda: is_told(admin, name, "p2"))
        waking = Waking(api, core)
        waking.refusals["p0"] = Refusal(asking("p0", name), (name,), time.time())  # a class that it has, by the end
        await admin.create(PODS, asking("p3", name, priorityClassName="system-cluster-critical", **here), name)
        await until("bound", lambda: is_bound(admin, name, "p3"))
        await admin.create(PODS, mounting("p4", await volumes(admin, name), **here), name)
        await until("volumes are asked for", lambda: are_asked_for(admin, name))
        await offer(admin, name, 9)
        await until("its room is told of", partial(has_told_of_room, waking))
        for _ in range(2):
            service.events.record(first, "Scheduled", "it is a test")
            await service.events.flushed()
        await until("told", partial(was_told, admin, name, 2))
        await until("still leads", lambda: is_renewed(admin, "kubeqos-scheduler"))


async def has_told_of_room(waking: Waking) -> bool:
    await waking.look()
    return not waking.refusals


async def volumes(admin: HttpApi, name: str) -> list[str]:
    """Two claims: for one there is a volume, for the other somebody would make one."""
    late = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "volumeBindingMode": "WaitForFirstConsumer"}
    amount, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    for kind, maker in (("there", "kubernetes.io/no-provisioner"), ("made", "maker.example.com")):
        made = {**late, "metadata": {"name": f"{kind}-{name}"}, "provisioner": maker}
        await admin.create(resource_named("StorageClass", STORAGE), made)
        spec: Raw = {"storageClassName": f"{kind}-{name}", "accessModes": modes, "resources": {"requests": amount}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": kind}, "spec": spec}
        await admin.create(VOLUME_CLAIMS, claim, name)
    spec = {"storageClassName": f"there-{name}", "accessModes": modes, "capacity": amount, "hostPath": {"path": "/x"}}
    await admin.create(
        VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    )
    await admin.patch(VOLUMES, name, {"status": {"phase": "Available"}}, subresource="status")
    return ["there", "made"]


def mounting(pod: str, claims: list[str], **more: Any) -> Raw:
    raw = asking(pod, "", **more)
    raw["spec"]["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return raw


async def is_renewed(admin: HttpApi, lease: str) -> bool:
    """Was this lease written again by who took it? However quick a story is, it ends with that."""
    spec = (await admin.get(LEASES, lease, NAMESPACE))["spec"]
    return bool(spec["renewTime"] != spec["acquireTime"])


async def are_asked_for(admin: HttpApi, name: str) -> bool:
    volume, claim = await admin.get(VOLUMES, name), await admin.get(VOLUME_CLAIMS, "made", name)
    return bool(volume["spec"].get("claimRef")) and SELECTED_NODE in (claim["metadata"].get("annotations") or {})


STORIES: Mapping[str, Callable[[HttpApi, HttpApi, str], Awaitable[None]]] = {
    "agent": agent,
    "controller": controller,
    "scheduler": scheduler,
}


@asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def home(admin: HttpApi, name: str) -> None:
    """A node and a namespace of this name."""
    await admin.create(NODES, stories.node(name))
    await admin.patch(NODES, name, {"spec": {"taints": None}})  # a new node is not ready
    await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def asking(pod: str, cls: str, **more: Any) -> Raw:
    raw = stories.pod(pod, asked=f"blockio={cls}" if cls else "", **more)
    del raw["metadata"]["uid"], raw["metadata"]["namespace"], raw["status"]
    return raw


async def offer(admin: HttpApi, name: str, capacity: int | None) -> None:
    await admin.patch(NODE_QOSES, name, {"status": {"classes": [offered(name, capacity)]}}, subresource="status")


async def is_described(api: HttpApi, name: str, *, counted: bool) -> bool:
    with suppress(ApiError):
        return bool((await api.get(CLASSES, f"blockio.{name}"))["spec"].get("counted")) is counted
    return False


async def is_bound(api: HttpApi, name: str, pod: str) -> bool:
    return bool((await api.get(PODS, pod, name))["spec"].get("nodeName"))


async def is_told(api: HttpApi, name: str, pod: str) -> bool:
    return bool(((await api.get(PODS, pod, name)).get("status") or {}).get("conditions"))


async def was_told(api: HttpApi, name: str, times: int) -> bool:
    """Has an event of this namespace happened so often?"""
    return any((decode_json(raw).get("count") or 1) >= times for raw in (await api.list(EVENTS, name)).items)


def roles(part: str) -> list[Raw]:
    """The roles of a part, as they are installed."""
    kinds = ("Role", "ClusterRole")
    return [raw for raw in objects("x", {}) if raw["kind"] in kinds and raw["metadata"]["name"] == f"kubeqos-{part}"]


def granted(part: str) -> set[tuple[str, str]]:
    """What the roles of a part give it; `list` stands for `watch` too."""
    found = set()
    for raw in roles(part):
        for rule in raw["rules"]:
            verbs = {"list" if verb == "watch" else verb for verb in rule["verbs"]}
            found |= {(verb, name) for verb in verbs for name in rule["resources"]}
    return found


def requests(live: LiveServer, folder: Path, part: str) -> list[Raw]:
    """Every request of a part's account, as the server noted it."""
    assert live.server.audit is not None
    live.server.audit.flush()
    lines = [decode_json(line) for line in (folder / "data" / "audit.log").read_bytes().splitlines()]
    account = f"system:serviceaccount:{NAMESPACE}:kubeqos-{part}"
    return [one for one in lines if one["user"] == account]


def used(live: LiveServer, folder: Path, part: str) -> set[tuple[str, str]]:
    """What its account did, and was allowed to."""
    found = set()
    for said in requests(live, folder, part):
        assert said["code"] != 403, said
        match = re.fullmatch(
            r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+)(/[a-z]+)?)?", said["path"]
        )
        assert match is not None, said["path"]
        verb = "list" if said["verb"] == "GET" and not match[2] else METHODS[said["verb"]]
        found.add((verb, match[1] + (match[3] or "")))
    return found
