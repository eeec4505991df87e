"""Cgroup v2 files that managers set on a node that has cgroup v1: told once per pod, and counted.

Such a file (`io.weight`, `memory.high`) does not exist on cgroup v1 and is left out of what the runtime is told
(`node.cri.configs`); the container runs without it. Called by `node.agent` whenever what containers hold may be
new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kubeqos.node.cri.context import Context
from kubeqos.node.pod.effects import Raw, Record
from kubeqos.node.pod.record import PodRecord
from kubeqos.plugins.managers import ContainerRef, Grant

REASON = "CgroupFilesNotApplied"


class UnsupportedFiles:
    """What was granted on this node and cannot be."""

    def __init__(
        self,
        grant: Callable[[ContainerRef], Grant],
        context: Context,
        tell: Callable[[Raw, Record], None],
    ) -> None:
        self._grant = grant
        self._context = context
        self._tell = tell
        self._told: set[str] = set()
        self.files: Counter[str] = Counter()
        """By name, how many containers lacked it."""

    def look_at(self, pods: Iterable[PodRecord], *, told: bool = False) -> None:
        """Tell about these pods what was not told before; nothing if an earlier life of the agent has told it."""
        if self._context.cgroup_version != 1:
            return
        for pod in pods:
            lacks = self._lacks(pod) if pod.holds and pod.uid not in self._told else {}
            if not lacks:
                continue
            self._told.add(pod.uid)
            self.files.update(file for files in lacks.values() for file in files)
            if not told:
                self._tell(pod.raw, Record(pod.uid, "Warning", REASON, self._words(lacks)))

    def forget(self, uid: str) -> None:
        """Nothing of this pod is left on the node."""
        self._told.discard(uid)

    def _lacks(self, pod: PodRecord) -> dict[str, dict[str, str]]:
        grants = {ref.name: self._grant(ref).unified for ref, _ in pod.admitted.containers()}
        return {name: dict(files) for name, files in grants.items() if files}

    def _words(self, lacks: dict[str, dict[str, str]]) -> str:
        named = "; ".join(
            f"container {name}: {', '.join(f'{file}={value}' for file, value in sorted(files.items()))}"
            for name, files in lacks.items()
        )
        return (
            f"Resource plugins set files of cgroup v2, which node {self._context.node_name} does not have: {named}. "
            "The containers run without them; boot the node with cgroup v2, or let the plugins set no Unified values"
        )
