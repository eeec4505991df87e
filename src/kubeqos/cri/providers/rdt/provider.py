"""The rdt class provider: one resctrl group per class under our prefix, one monitoring group per container."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.providers.protocol import (
    SYSTEM_DEFAULT,
    Advertisement,
    ClassProvider,
    ClassRefusal,
    Place,
    Sample,
    Subject,
)
from kubeqos.cri.providers.rdt.config import ROOT_CLASS, RdtConfig
from kubeqos.cri.providers.rdt.files import ResctrlFiles
from kubeqos.cri.providers.rdt.machine import Capabilities
from kubeqos.cri.providers.rdt.resolve import ResctrlPlan, group_name, plan_changes, resolve

MOVE_PASSES = 5
Member = tuple[Subject, Place, str]
"""A running container, where it is, and its class."""
_HELP = {
    "llc_occupancy": ("kubeqos_rdt_llc_occupancy_bytes", "Last-level cache that the container occupies.", False),
    "mbm_local_bytes": ("kubeqos_rdt_mbm_local_bytes_total", "Memory traffic to the local NUMA node.", True),
    "mbm_total_bytes": ("kubeqos_rdt_mbm_total_bytes_total", "Memory traffic of the container.", True),
}


class RdtProvider(ClassProvider):
    """Cache and memory bandwidth classes."""

    def __init__(
        self,
        offer: Advertisement,
        config: RdtConfig,
        machine: Capabilities,
        files: ResctrlFiles,
        host: Host,
        prefix: str,
    ) -> None:
        self.offer = offer
        self.config = config
        self.machine = machine
        self.files = files
        self.host = host
        self.prefix = prefix
        self.schemata = resolve(config, machine)

    def plan(self) -> ResctrlPlan:
        """What installing would change, checked against the closid budget and against groups in use."""
        existing = self.files.groups()
        ours = [name for name in existing if name.startswith(self.prefix)]
        return plan_changes(self.schemata, existing, self.prefix, self.machine.num_closids, self.files.busy(ours))

    def install(self) -> None:
        self.files.apply(self.plan())

    def missing(self) -> bool:
        """Whether a group of ours is no longer there."""
        return not {group_name(name, self.prefix) for name in self.schemata} <= {"", *self.files.groups()}

    async def advertise(self) -> Sequence[Advertisement]:
        return (self.offer,)

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        if class_name and class_name not in self.schemata:
            return ClassRefusal(
                f"rdt has no class {class_name!r}", f"its classes are {', '.join(sorted(self.schemata))}"
            )
        return None

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        self._join(subject, place, class_name)

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        self._join(subject, place, new)

    async def withdraw(self, subject: Subject, resource: str, class_name: str) -> None:
        self.files.unmonitor(self._monitor_name(subject))

    def gather(self, members: Iterable[Member]) -> int:
        """Bring tasks that came into a container from outside into its group; how many there were.

        A group is inherited from the parent, and the parent of a command executed in a container is the runtime.
        """
        inside: dict[str, set[int]] = {}
        found = 0
        for subject, place, class_name in members:
            group = group_name(class_name, self.prefix)
            if group not in inside:
                inside[group] = self.files.tasks(group)
            strays = [task for task in self.host.contained(place) if task not in inside[group]]
            if strays:
                self._move_tasks(subject, group, strays)
                found += len(strays)
        return found

    async def report(self) -> Sequence[Sample]:
        out: list[Sample] = []
        for group, monitor in self.files.monitored(self.prefix):
            labels = {
                "class": group.removeprefix(self.prefix) or ROOT_CLASS,
                "container_id": monitor[len(self.prefix) :],
            }
            for (domain, event), value in self.files.counters(group, monitor).items():
                if event in _HELP:
                    name, help_text, counter = _HELP[event]
                    out.append(Sample(name, help_text, {**labels, "domain": domain}, value, counter))
        return out

    def _join(self, subject: Subject, place: Place, class_name: str) -> None:
        """Move every task; repeat while the container forks new ones in between (children inherit afterwards)."""
        group = group_name(class_name or SYSTEM_DEFAULT, self.prefix)
        name = self._monitor_name(subject)
        # A monitoring group belongs to one control group: leaving a class means leaving its counter too.
        stale = [where for where, monitor in self.files.monitored(self.prefix) if monitor == name and where != group]
        if stale:
            self.files.unmonitor(name)
        moved: set[int] = set()
        for _ in range(MOVE_PASSES):
            fresh = [task for task in self.host.tasks(place) if task not in moved]
            if not fresh:
                return
            self._move_tasks(subject, group, fresh)
            moved.update(fresh)

    def _move_tasks(self, subject: Subject, group: str, tasks: Sequence[int]) -> None:
        name = self._monitor_name(subject)
        self.files.add_tasks(group, tasks)
        if self.machine.mon_features and self.files.monitor(group, name):
            self.files.add_tasks(f"{group}/mon_groups/{name}".lstrip("/"), tasks)

    def _monitor_name(self, subject: Subject) -> str:
        return f"{self.prefix}{subject.id}"
