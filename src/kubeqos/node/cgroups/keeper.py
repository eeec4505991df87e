"""Keeps the node's cgroups above containers: before a pod starts, after a resize, when it is gone, every minute.

Joins the core's pods (`node.pod.machine`), the plan (`node.cgroups.plan`) and the files (`node.cgroups.files`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kubeqos.logs import logger
from kubeqos.model.annotations.published import Protected
from kubeqos.node.cgroups.files import CgroupFiles, Written
from kubeqos.node.cgroups.plan import plan
from kubeqos.node.cri.configs import Context, pod_cgroup
from kubeqos.node.pod.machine import Core
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.cgroups import CgroupValues

log = logger(__name__)
PERIOD_SECONDS = 60.0


class CgroupKeeper:
    """One node's QoS tiers and pod cgroups."""

    def __init__(
        self,
        files: CgroupFiles,
        core: Core,
        context: Callable[[], Context],
        cpu_milli: int,
        spare_bytes: int,
        unthrottled: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`unthrottled`: the pods that own CPUs now."""
        self.files = files
        self._core = core
        self._context = context
        self._cpu_milli = cpu_milli
        self._spare_bytes = spare_bytes
        self._unthrottled = unthrottled
        self.protected: dict[str, Protected] = {}
        """Pods whose memory is protected, by uid, as of the last reconcile."""

    def plan(self) -> dict[str, CgroupValues]:
        """What is to stand in the hierarchy for the pods that are admitted now."""
        context = self._context()
        pods = [pod.admitted for pod in self._core.pods.values() if pod.allocated is not None]
        return plan(
            pods,
            context.memory,
            self._cpu_milli,
            context.cgroups,
            spare_bytes=self._spare_bytes,
            unthrottled=self._unthrottled(),
            prefix=context.cgroup_root,
            driver=context.cgroup_driver,
        )

    def reconcile(self) -> Written:
        """Write what differs, remove what belongs to nobody."""
        wanted = self.plan()
        done = self.files.reconcile(wanted)
        paths = {pod_cgroup(pod.admitted, self._context()): uid for uid, pod in self._core.pods.items()}
        self.protected = {paths[path]: found for path, found in done.protected.items() if path in paths}
        for path in self.files.orphans(wanted):
            self.files.remove(path)
        for text in (*done.drifted, *done.problems):
            log.warning("cgroup %s", text)
        return done

    def remove(self, pod: AdmittedPod) -> None:
        """The pod's containers have stopped; what is busy for another moment goes at the next reconcile."""
        path = pod_cgroup(pod, self._context())
        self.files.end(path)
        self.files.remove(path)
