"""A stock cluster whose parts are killed one after the other, while pods come and go and a stranger watches.

Each round one part is killed with SIGKILL and started again on what it left (an upgrade: agent and controller are ended
and started back to back). A pod owns a core over it, pods with a class and pods without any wish come and go all the
time. While the agent or the controller is away, a pod that asks for nothing has to start: nobody comes back before it
has. Used by test_kills.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kubeqos.client import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, PODS, Resource
from kubeqos.codec import decode_json
from kubeqos.model.cpuset import CpuSet
from kubeqos.stock.cluster import DEVICE_CLAIMS, NODE_QOSES, QUOTAS
from tests.cri.images import BUSYBOX_IMAGE
from tests.shared import cgroups
from tests.stock.kube_apiserver import free_ports, process
from tests.stock.kubelet import NODE
from tests.stock.whole import Whole, stock_cluster

Raw = dict[str, Any]
MORTALS = ("agent", "controller", "kubelet", "containerd", "kube-apiserver", "upgrade")
PLAIN, ASKING = "plain", "asking"
PATIENCE = 240.0
"""How long a state may take to come about; nothing is measured by it."""
CLASSES = "resources:\n  cpu-class: {provider: cpu, capacity: {high: 8}, classes: {high: {weight: 400}}}\n"
QUOTA = {"container": [{"name": "cpu-class", "classes": [{"name": "high", "capacity": 50}]}]}
HIGH = cgroups.scaled(2, 400)
"""CPU shares of a container that requests none, and has the class."""
CONTROLLERS = "kube-controller-manager --controllers=resourceclaim-controller"
NODE_CONFIG = """\
apiVersion: kubeqos.io/v1alpha1
kind: NodeConfiguration
profile: cci
stateDir: {state}
"""


@dataclass
class Tally:
    """What happened, for the report."""

    kills: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    without: dict[str, list[float]] = field(default_factory=dict)
    """How long pods that ask for nothing took to start, by who was away; nobody away under the empty name."""


class Besieged(Whole):
    """The cluster, with all parts of ours running beside it."""

    def start_ours(self, stack: ExitStack) -> None:
        state = self.folder / "cores"
        (state / "plugins_registry").mkdir(parents=True)
        (self.folder / "node.yaml").write_text(NODE_CONFIG.format(state=state))
        [port] = free_ports(1)
        hooks = ["--webhook-bind-address", "127.0.0.1", "--webhook-port", str(port)]
        hooks += ["--webhook-url", f"https://127.0.0.1:{port}"]
        self.parts["controller"] = stack.enter_context(
            process(self.ours("controller", *hooks), self.folder, "controller")
        )
        words = [sys.executable, "-m", "kubeqos.cli.main", "driver", "reference", "--registry"]
        stack.enter_context(process([*words, str(state / "plugins_registry")], self.folder, "driver"))
        self.start_agent("--node-config", str(self.folder / "node.yaml"))

    def logs(self) -> str:
        return "".join(f"{log.name}:\n{log.read_text(errors='replace')[-4000:]}\n" for log in self.folder.glob("*.log"))


@contextmanager
def besieged_cluster() -> Iterator[Besieged]:
    with stock_cluster(Besieged, CONTROLLERS) as made, ExitStack() as stack:
        classes = made.folder / "some.yaml"
        classes.write_text(CLASSES)
        made.run(f"kubeqos install --image registry.example/kubeqos:1 --classes {classes}")
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for namespace in (PLAIN, ASKING):
            made.kubectl("create", "namespace", namespace)
        made.kubectl("label", "namespace", ASKING, "qos.kubeqos.io/enforce=true")
        quota = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": {"name": "most"}}
        made.kubectl("create", "-n", ASKING, "-f", "-", manifest={**quota, "spec": {"qosResources": QUOTA}})
        device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "cores"}}
        selector = {"cel": {"expression": 'device.driver == "cci.kubeqos.io"'}}
        made.kubectl("create", "-f", "-", manifest={**device_class, "spec": {"selectors": [selector]}})
        made.start_ours(stack)
        made.eventually("classes are counted", lambda: "qos.kubeqos.io" in str(made.get("node", NODE)["status"]))
        made.eventually("webhooks are registered", lambda: made.get("mutatingwebhookconfigurations")["items"])
        made.eventually("cores are published", lambda: made.get("resourceslices")["items"])
        yield made


class Siege:
    """The rounds, and everybody who comes and goes meanwhile."""

    def __init__(self, cluster: Besieged, api: HttpApi) -> None:
        self.cluster, self.api = cluster, api
        self.tally = Tally()
        self.away = ""
        self._numbers = itertools.count(1)
        self._over = asyncio.Event()

    async def run(self, kills: int) -> None:
        """So many kills of each part; raises when something was lost."""
        visitors = [asyncio.create_task(self.visitor(kind)) for kind in ("plain", "class")]
        owner = await self.owner()
        try:
            for turn in range(kills):
                for mortal in MORTALS:
                    await self.round(mortal, owner)
                    print(f"{time.strftime('%H:%M:%S')} round {turn + 1}: {mortal}", flush=True)
                    for one in visitors:
                        if one.done():
                            await one  # raises what went wrong
                await self.gone(owner)
                owner = await self.owner()
        finally:
            self._over.set()
            await asyncio.gather(*visitors, return_exceptions=False)
        await self.gone(owner)
        await self.settled(patient=kills > 1)

    async def round(self, mortal: str, owner: Raw) -> None:
        before = await self.runs(owner)
        self.away = mortal
        await self._end(mortal)
        waiting = asyncio.create_task(self.came(await self.created("class")))
        if mortal in ("agent", "controller"):
            plain = await self.created("plain")
            await self.runs(plain)  # or nobody comes back: who asks for nothing waits for none of ours
            await self.gone(plain)
        await self._start(mortal)
        self.away = ""
        for pod in (await self.created("plain"), await waiting):
            await self.runs(pod)
            await self.gone(pod)
        assert await self.runs(owner) == before, "a pod that owns a core was disturbed"
        self.tally.kills[mortal] = self.tally.kills.get(mortal, 0) + 1

    async def _end(self, mortal: str) -> None:
        if mortal == "containerd":
            await asyncio.to_thread(self.cluster.kubelet.runtime.crash)
        elif mortal == "upgrade":
            for name in ("agent", "controller"):
                await asyncio.to_thread(self.cluster.parts[name].end)
        else:
            await asyncio.to_thread(self.cluster.parts[mortal].kill)

    async def _start(self, mortal: str) -> None:
        if mortal == "containerd":
            await asyncio.to_thread(self.cluster.kubelet.runtime.start_again)
            return
        for name in ("controller", "agent") if mortal == "upgrade" else (mortal,):
            self.cluster.parts[name].start()

    # ---- Pods

    async def visitor(self, kind: str) -> None:
        """One pod after the other, until the rounds are over."""
        while not self._over.is_set():
            pod = await self.created(kind)
            await self.runs(pod)
            await self.gone(pod)

    async def owner(self) -> Raw:
        """A pod with a core of its own, running."""
        name = f"owner-{next(self._numbers)}"
        request = {"name": "cores", "exactly": {"deviceClassName": "cores", "count": 1}}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
        await self.told(DEVICE_CLAIMS, {**claim, "spec": {"devices": {"requests": [request]}}}, PLAIN)
        whole = {"cpu": "1", "memory": "64Mi"}
        resources = {"requests": whole, "limits": whole, "claims": [{"name": "compute"}]}
        pod = _pod(name, "owner", resources, labels={"cpuwatch/owns.c": "1.full"})
        pod["spec"]["resourceClaims"] = [{"name": "compute", "resourceClaimName": name}]
        await self.told(PODS, pod, PLAIN)
        await self.runs(pod)
        return pod

    async def created(self, kind: str) -> Raw:
        name = f"{kind}-{next(self._numbers)}"
        asked = {"qos.kubeqos.io/container.c": "cpu-class=high"} if kind == "class" else {}
        pod = _pod(name, kind, {}, annotations=asked)
        pod["began"], pod["without"] = time.monotonic(), self.away
        if kind == "class":
            pod["telling"] = asyncio.create_task(self.told(PODS, _sent(pod), ASKING))
        else:
            await self.told(PODS, _sent(pod), PLAIN)
        return pod

    async def came(self, pod: Raw) -> Raw:
        """A pod that asks is stored as soon as there is somebody to judge it."""
        await pod["telling"]
        return pod

    async def told(self, resource: Resource, body: Raw, namespace: str) -> None:
        """Create an object, as often as it takes."""

        async def made() -> bool:
            try:
                await self.api.create(resource, body, namespace)
            except ApiError as error:
                return error.already_exists
            return True

        await self.until(f"{body['metadata']['name']} is created", made)

    async def runs(self, pod: Raw) -> str:
        """Wait for a pod; which container it is. What it was promised is looked at in the kernel."""
        name, namespace = pod["metadata"]["name"], _home(pod)
        if "telling" in pod:
            await pod["telling"]
        found: list[str] = []

        async def running() -> bool:
            raw = await self.api.get(PODS, name, namespace)
            status = raw.get("status") or {}
            assert status.get("phase") not in ("Failed", "Succeeded"), f"{name} was lost: {status}"
            for one in status.get("containerStatuses") or ():
                if "running" in one["state"]:
                    tier = {"Guaranteed": ""}.get(status["qosClass"], f"/{status['qosClass'].lower()}")
                    uid, container = raw["metadata"]["uid"], one["containerID"].rpartition("/")[2]
                    root = self.cluster.kubelet.cgroup_root
                    found[:] = [f"{root}/kubepods{tier}/pod{uid}/{container}"]
            return bool(found)

        await self.until(f"{name} runs", running)
        if "began" in pod and not pod.get("counted"):
            pod["counted"] = True
            label = pod["metadata"]["labels"]["kind"]
            self.tally.started[label] = self.tally.started.get(label, 0) + 1
            if label == "plain":
                self.tally.without.setdefault(pod["without"], []).append(time.monotonic() - pod["began"])
        if pod["metadata"]["labels"]["kind"] == "class":

            async def has_it() -> bool:
                """At once, but for a container whose agent died between its creation and its start."""
                return cgroups.value(found[0], "cpu.shares") == HIGH

            await self.until(f"{name} has its class", has_it)
        return found[0]

    async def gone(self, pod: Raw) -> None:
        name, namespace = pod["metadata"]["name"], _home(pod)

        async def is_gone() -> bool:
            with suppress(ApiError):
                await self.api.delete(PODS, name, namespace)
            try:
                await self.api.get(PODS, name, namespace)
            except ApiError as error:
                return error.not_found
            return False

        await self.until(f"{name} is gone", is_gone)
        if pod["metadata"]["labels"]["kind"] == "owner":
            with suppress(ApiError):
                await self.api.delete(DEVICE_CLAIMS, name, namespace)

    async def settled(self, *, patient: bool) -> None:
        """Nothing is left of those who went: no class held, no core owned. And no quota used, for who is `patient`:
        what was reserved for a pod that came and went while nobody led ends after two minutes.
        """

        async def nothing() -> bool:
            status = (await self.api.get(NODE_QOSES, NODE)).get("status") or {}
            quota = (await self.api.get(QUOTAS, "most", ASKING)).get("status") or {}
            [used] = quota["qosResourcesUsage"]["container"]
            held = [one["used"] for one in status["classes"]]
            if patient:
                held += [one.get("capacity", 0) for one in used["classes"]]
            return not any(held) and len(CpuSet.parse(status["freeCPUs"])) == os.cpu_count()

        await self.until("nothing is held any more", nothing)

    async def held_up(self) -> list[str]:
        """Warnings that say that a pod which asks for nothing waited for one of ours."""
        events = [decode_json(raw) for raw in (await self.api.list(EVENTS, PLAIN)).items]
        said = [f"{one['involvedObject']['name']}: {one.get('message')}" for one in events if one["type"] == "Warning"]
        return [one for one in said if one.startswith("plain-") and ("NRI" in one or "plugin" in one)]

    async def until(self, what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(ApiError, Unreachable):
                if await is_so():
                    return
            assert time.monotonic() < deadline, f"never happened: {what}\n{self.cluster.logs()}"
            await asyncio.sleep(0.3)


def _home(pod: Raw) -> str:
    return ASKING if pod["metadata"]["labels"]["kind"] == "class" else PLAIN


def _sent(pod: Raw) -> Raw:
    return {key: pod[key] for key in ("apiVersion", "kind", "metadata", "spec")}


def _pod(name: str, kind: str, resources: Raw, **metadata: Any) -> Raw:
    container = {"name": "c", "image": BUSYBOX_IMAGE, "command": ["sleep", "100000"], "resources": resources}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    labels = {"kind": kind, **metadata.pop("labels", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}


def report(tally: Tally, seen: Raw) -> str:
    """What is printed, and stands in the documentation."""
    lines = ["killed: " + ", ".join(f"{name} {count}" for name, count in tally.kills.items())]
    lines += ["started: " + ", ".join(f"{count} {kind}" for kind, count in sorted(tally.started.items()))]
    for name, seconds in sorted(tally.without.items()):
        middle, last = sorted(seconds)[len(seconds) // 2], max(seconds)
        away = f"{name} away" if name else "nobody away"
        lines.append(f"pods that ask for nothing, {away}: {len(seconds)}, half in {middle:.1f} s, all in {last:.1f} s")
    lines.append(
        f"watched: {seen['samples']} samples, {seen['containers']} containers, {seen['owners']} owners, "
        f"{seen['cpusetChanges']} moves, {len(seen['violations'])} violations"
    )
    return "\n".join(lines)
