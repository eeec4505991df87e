"""Keeps the node's cgroups above containers: before a pod starts, after a resize, when it is gone, every minute.

Joins the core's pods (`node.pod.machine`), the plan (`node.cgroups.plan`), the files (`node.cgroups.files`) and, where
slices are systemd's, its units (`node.cgroups.units`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping

from kubeqos.clock import Clock
from kubeqos.logs import logger
from kubeqos.model.annotations.published import Kept, Protected
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.cgroups.files import CgroupFiles, Written
from kubeqos.node.cgroups.partitions import ROOT, Owner, Partitions
from kubeqos.node.cgroups.plan import plan
from kubeqos.node.cgroups.units import SystemdUnits
from kubeqos.node.cri.configs import pod_cgroup
from kubeqos.node.cri.context import Context
from kubeqos.node.pod.effects import Raw, Record
from kubeqos.node.pod.machine import Core
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, ContainerRef
from kubeqos.rules.qos.cgroups import CgroupValues

log = logger(__name__)
PERIOD_SECONDS = 60.0
DRIFT = "CgroupDrift"


class CgroupKeeper:
    """One node's QoS tiers and pod cgroups."""

    def __init__(
        self,
        files: CgroupFiles,
        core: Core,
        context: Context,
        cpu_milli: int,
        spare_bytes: int,
        unthrottled: Callable[[], Collection[str]] = tuple,
        tell: Callable[[Raw, Record], None] = lambda _raw, _told: None,
        units: SystemdUnits | None = None,
        owned: Callable[[ContainerRef], CpuSet] | None = None,
        record_node: Callable[[str, str], None] = lambda _reason, _message: None,
    ) -> None:
        """`unthrottled`: the pods that own CPUs now; `tell` writes an event about a pod; `units`: where slices are
        systemd's, which has to know their values; `owned`: a container's own CPUs, where these become partitions;
        `record_node` writes an event about the node.
        """
        self._record_node = record_node
        self._owned = owned
        self._partitions = Partitions(files.root, files.version)
        self._tell = tell
        self._killed: dict[str, dict[str, int]] = {}
        """What was told of pods, by uid, and by the cgroup that counts."""
        self.files = files
        self.units = units
        self._turn = asyncio.Lock()
        self._core = core
        self._context = context
        self._cpu_milli = cpu_milli
        self._spare_bytes = spare_bytes
        self._unthrottled = unthrottled
        self.protected: dict[str, Protected] = {}
        """Pods whose memory is protected, by uid, as of the last reconcile."""

    def plan(self) -> dict[str, CgroupValues]:
        """What is to stand in the hierarchy for the pods that are admitted now."""
        context = self._context
        pods = [pod.admitted for pod in self._core.pods.values() if pod.allocated]
        return plan(
            pods,
            context.memory,
            self._cpu_milli,
            context.cgroups,
            spare_bytes=self._spare_bytes,
            unthrottled=self._unthrottled(),
            hugepage_sizes=context.hugepage_sizes,
            prefix=context.cgroup_root,
            driver=context.cgroup_driver,
        )

    async def run(self, clock: Clock) -> None:
        """Every minute, whatever happened or did not."""
        while True:
            await self.reconcile()
            await clock.sleep(PERIOD_SECONDS)

    async def follow_reloads(self) -> None:
        """After a reload of systemd, what it has no property for stands as its defaults say: not for a minute."""
        if self.units is None:
            return
        try:
            while True:
                await self.units.reloaded()
                await self.reconcile()
        finally:
            self.units.close()

    async def reconcile(self) -> Written:
        """Write what differs, remove what belongs to nobody. One at a time: the later one sees what the earlier did."""
        async with self._turn:
            wanted = self.plan()
            contents = self.files.contents(wanted)
            problems: list[str] = []
            if self.units is not None:
                contents, problems = await self.units.tell(contents)
            done = self.files.write(contents)
            done.problems += problems
            paths = {pod_cgroup(pod.admitted, self._context): uid for uid, pod in self._core.pods.items()}
            self.protected = {paths[path]: found for path, found in done.protected.items() if path in paths}
            self._keep_partitions(wanted)
            self._tell_kills(paths)
            self._killed = {uid: told for uid, told in self._killed.items() if uid in self._core.pods}
            for path in self.files.orphans(wanted):
                await self._remove(path)
            for text in (*done.drifted, *done.problems):
                log.warning("cgroup %s", text)
            for text in done.drifted:
                self._record_node(DRIFT, f"{text}; written again")
            return done

    @property
    def kept(self) -> Kept:
        """What of it all the kernel keeps, as of the last reconcile."""
        return Kept(self.protected, {key: why or ROOT for key, why in self.partitions.items()})

    @property
    def partitions(self) -> Mapping[ContainerKey, str]:
        """Who owns CPUs: why they are no partition of the kernel; nothing where they are."""
        return self._partitions.reasons

    def _keep_partitions(self, wanted: Mapping[str, CgroupValues]) -> None:
        if self._owned is None:
            return
        before = dict(self.partitions)
        self._partitions.reconcile(self._owners(self._owned), wanted)
        for (uid, name), why in self.partitions.items():
            if why and before.get((uid, name)) != why:
                log.warning("CPUs of %s/%s are no partition of the kernel: %s", self._core.pods[uid].key, name, why)

    def _owners(self, owned: Callable[[ContainerRef], CpuSet]) -> Iterator[Owner]:
        for uid, pod in self._core.pods.items():
            path = pod_cgroup(pod.admitted, self._context)
            for ref, _ in pod.admitted.containers():
                record = pod.containers.get(ref.name)
                if record is None or not record.live or record.newest is None or not (cpus := owned(ref)):
                    continue
                cgroup = self.files.container(path, record.newest.id)
                if cgroup:
                    yield Owner((uid, ref.name), cgroup, cpus)

    def _tell_kills(self, paths: Mapping[str, str]) -> None:
        """A process that ran out of memory may not be its container's first: then nothing else tells of its end."""
        for path, uid in paths.items():
            counts, told, pod = self.files.oom_kills(path), self._killed.get(uid, {}), self._core.pods.get(uid)
            more = sum(count - told.get(name, 0) for name, count in counts.items())
            if more > 0 and pod is not None:
                self._killed[uid] = counts
                message = f"memory ran out: {more} process{'es' if more > 1 else ''} of the pod killed"
                self._tell(pod.raw, Record(uid, "Warning", "OOMKilling", message))

    def cpuset(self, pod: AdmittedPod, container_id: str) -> dict[str, str]:
        """Where the kernel lets a container run."""
        return self.files.cpuset(pod_cgroup(pod, self._context), container_id)

    async def remove(self, pod: AdmittedPod) -> None:
        """The pod's containers have stopped; what is busy for another moment goes at the next reconcile."""
        path = pod_cgroup(pod, self._context)
        self.files.end(path)
        async with self._turn:
            self._tell_kills({path: pod.uid})  # the count goes with the cgroup
            await self._remove(path)

    async def _remove(self, path: str) -> None:
        problem = await self.units.stop(path) if self.units is not None else ""
        if problem:
            log.warning("cgroup %s: %s", path, problem)
        self.files.remove(path)
