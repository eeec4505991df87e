"""What the classes of containers change in the plan of the cgroups above them. Pure.

A relay sets weights and protections of a pod with classes in the pod's own cgroup and notes them there
(`cri.enforcing.podcgroups`); here they stand above what the pod's requests alone would give, and the QoS tiers sum them
up: tiers compete with each other, and protect no more than they are given. Called by `node.cgroups.files`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeqos.model.annotations.published import Protected
from kubeqos.node.cgroups.plan import File
from kubeqos.rules.qos import podlevel
from kubeqos.rules.qos.podlevel import CPU_WEIGHTS, IDLE, IO_WEIGHTS, PROTECTIONS

Files = dict[File, str]
"""The control files of one cgroup."""


def with_classes(plan: Mapping[str, Files], marks: Mapping[str, Mapping[File, str]], version: int) -> dict[str, Files]:
    """The plan with what classes set in pods' cgroups, and the tiers that follow from it; parents still come first."""
    if not any(marks.values()):
        return dict(plan)
    made = {path: dict(files) for path, files in plan.items()}
    for path, files in marks.items():
        _mark(made[path], files, version)
    for path in sorted(made, key=lambda one: -one.count("/")):
        children = [one for one in made if one.rpartition("/")[0] == path]
        if children and path.rpartition("/")[0] in made:
            _sum_weights(made, plan, path, children, version)
        _sum_protection(made[path], [made[one] for one in children])
    return made


def protection(files: Mapping[str, Files], path: str) -> Protected | None:
    """What of a pod's protected memory is effective, from what stands in its cgroup and those above; None without any.

    The surer kind is told: memory.min where there is some, else memory.low.
    """
    for name in PROTECTIONS:
        key = ("memory", name)
        chain = [one for one in files if path == one or path.startswith(f"{one}/")]
        levels = []
        for one in sorted(chain, key=len):
            mates = [mate for mate in files if mate.rpartition("/")[0] == one.rpartition("/")[0]]
            total = sum(podlevel.amount(files[mate].get(key, "0")) for mate in mates)
            levels.append(podlevel.CgroupLevel(one, podlevel.amount(files[one].get(key, "0")), total))
        found = podlevel.effective_protection(levels)
        if found.asked:
            return Protected(found.asked, found.effective, found.because)
    return None


def _mark(own: Files, marked: Mapping[File, str], version: int) -> None:
    weight = CPU_WEIGHTS[version].name
    for (controller, name), text in marked.items():
        if name in PROTECTIONS:
            own[controller, name] = max(text, own.get((controller, name), "0"), key=podlevel.amount)
        else:
            own[controller, name] = text
    if own.get(("cpu", IDLE)) == "1":
        own.pop(("cpu", weight), None)  # an idle cgroup refuses a weight


def _sum_weights(
    made: dict[str, Files], plan: Mapping[str, Files], tier: str, children: list[str], version: int
) -> None:
    """A tier weighs as much more, or less, as its pods do; one whose pods have no class stays as it was."""
    cpu = CPU_WEIGHTS[version]
    key = ("cpu", cpu.name)
    if key in made[tier]:
        gained = 0
        for child in children:
            before = int(plan[child].get(key, cpu.low))
            gained += (int(made[child][key]) if key in made[child] else 0) - before
        made[tier][key] = str(max(cpu.low, min(cpu.high, int(made[tier][key]) + gained)))
    for io in IO_WEIGHTS[version]:
        key = ("io" if version == 2 else "blkio", io.name)
        if any(key in files for files in made.values()):
            total = sum(podlevel.default_weight(made[child].get(key, ""), io) for child in children)
            made[tier][key] = podlevel.weight_text(total, io)


def _sum_protection(own: Files, children: list[Files]) -> None:
    for name in PROTECTIONS:
        key = ("memory", name)
        total = sum(podlevel.amount(one.get(key, "0")) for one in children)
        if total > podlevel.amount(own.get(key, "0")):
            own[key] = podlevel.protection_text(total)
