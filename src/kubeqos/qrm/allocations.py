"""The pod resources checkpoint of KEP-3461: pod UID → container → resource → what a plugin gave.

Pure bookkeeping without calls: the manager puts answers in, compares reports with it, and turns it into grants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.errors import InputError
from kubeqos.model.annotations.wellknown import PLUGIN_HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.managers import ContainerKey, ContainerKind, ContainerRef, Grant, LiveContainer
from kubeqos.qrm.answers import Nonsense, cpus_of, grant_of
from kubeqos.qrm.asking import Placement
from kubeqos.qrm.edge.values import check_allocation
from kubeqos.qrm.messages import WHOLE_POD, Allocation, NumaHint
from kubeqos.topology.changes import Held

Report = Mapping[
    str, Mapping[str, Mapping[str, Allocation]]
]  # what a plugin says it gave: pod uid → container → resource


@dataclass(slots=True)
class Holding:
    """What one container holds, under which hint, and which plugin gave it.

    `whole` are the plugins that gave it to the pod as a whole, which its containers share.
    """

    ref: ContainerRef
    placement: Placement = field(default_factory=Placement)
    resources: dict[str, Allocation] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    """The plugins that have answered for it, those that gave nothing included."""
    rest: dict[str, Any] = field(default_factory=dict)
    """Fields of its entry that a newer version wrote (reference, regression T24)."""
    _granted: Grant | Nonsense | None = field(default=None, compare=False)

    def of_plugin(self, plugin: str) -> dict[str, Allocation]:
        return {name: self.resources[name] for name, owner in self.plugins.items() if owner == plugin}

    def with_given(self, plugin: str, given: Mapping[str, Allocation]) -> dict[str, Allocation]:
        """What it would hold if this plugin gave this in place of what it gave before."""
        return {name: one for name, one in self.resources.items() if self.plugins[name] != plugin} | dict(given)

    def grant_with(self, plugin: str, given: Mapping[str, Allocation]) -> Grant | Nonsense:
        """What the runtime would be to give it then."""
        return _granted(self.with_given(plugin, given))

    def grant(self) -> Grant | Nonsense:
        """What the runtime is to give it; put together when what it holds changes, not each time."""
        if self._granted is None:
            self._granted = _granted(self.resources)
            if isinstance(self._granted, Grant) and self.resources:
                marks = {PLUGIN_HOLDINGS_ANNOTATION: encode_json(_to_json(self)).decode()}
                self._granted = replace(self._granted, annotations={**self._granted.annotations, **marks})
        return self._granted

    def memory(self, *, whole: bool = False) -> Iterator[tuple[str, int, NumaSet]]:
        """Its memory and huge pages by kind: bytes of which NUMA nodes. `whole`: what it shares with its pod."""
        for name, given in sorted(self.resources.items()):
            if (self.plugins[name] in self.whole) is whole and is_memory(name) and given.quantity > 0:
                numa = NumaSet.parse(given.result) if given.property == "CpusetMems" else _numa_of(given.hints)
                if numa:
                    yield name, int(given.quantity), numa

    def owned(self, *, whole: bool = False) -> CpuSet:
        """The CPUs that are its pod's alone. `whole`: those that its plugin gave to the pod and not to it."""
        given = [one for name, one in self.resources.items() if (self.plugins[name] in self.whole) is whole]
        found = cpus_of(given)
        return found[0] if found and found[1] else NO_CPUS

    def held(self) -> Held | None:
        """Its CPUs, in the form that changes are planned with."""
        found = cpus_of(self.resources.values())
        return Held(found[0], self.ref.pod_uid if found[1] else None) if found else None


@dataclass(frozen=True, slots=True)
class Findings:
    """How a plugin's report differs from the allocations."""

    changed: Mapping[ContainerKey, Mapping[str, Allocation]]
    missing: tuple[ContainerRef, ...]
    strangers: frozenset[str]
    nonsense: tuple[str, ...]


class Allocations:
    """Who holds what on this node."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Holding]] = {}
        self.revision = 0
        """Grows with every change, so that whoever looks twice knows whether to look again."""
        self._owned: tuple[int, CpuSet] | None = None

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._pods

    def __iter__(self) -> Iterator[Holding]:
        return (holding for containers in self._pods.values() for holding in containers.values())

    @property
    def pods(self) -> frozenset[str]:
        return frozenset(self._pods)

    def get(self, pod_uid: str, container: str) -> Holding | None:
        return self._pods.get(pod_uid, {}).get(container)

    def of_pod(self, pod_uid: str) -> list[Holding]:
        return list(self._pods.get(pod_uid, {}).values())

    def open(self, ref: ContainerRef, placement: Placement) -> Holding:
        """The container's entry, made if need be; the hints are remembered for when it must be asked for again."""
        holding = self._pods.setdefault(ref.pod_uid, {}).setdefault(ref.name, Holding(ref))
        holding.placement = placement
        return holding

    def put(self, holding: Holding, plugin: str, given: Mapping[str, Allocation]) -> Nonsense | None:
        """Replace what this plugin gave the container, accompanying resources included."""
        for name in given:
            other = holding.plugins.get(name, plugin)
            if other != plugin:
                return Nonsense(f"plugins {other} and {plugin} both allocate {name} for container {holding.ref.name}")
        self.revision += 1
        holding.resources = holding.with_given(plugin, given)
        holding.plugins = {name: holding.plugins.get(name, plugin) for name in holding.resources}
        holding.asked |= {plugin}
        holding._granted = None
        return None

    def adopt(self, ref: ContainerRef, live: LiveContainer) -> bool:
        """Take over what a running container was created with, and where it runs by now, when nobody else knows.

        What its plugins moved since is in the runtime alone. Nothing is believed that others' promises forbid.
        """
        if self.get(ref.pod_uid, ref.name) is not None:
            return False
        found = _noted(ref, live)
        if found is None:
            return False
        holding, held = found
        key = ref.pod_uid, ref.name
        others = self.cpus()
        if isinstance(holding.grant(), Nonsense) or (
            held and set(clashes(others | {key: held})) - set(clashes(others))
        ):
            return False
        self.revision += 1
        self._pods.setdefault(ref.pod_uid, {})[ref.name] = holding
        return True

    def asked(self, ref: ContainerRef) -> frozenset[str]:
        """The plugins that have answered for a container."""
        holding = self.get(ref.pod_uid, ref.name)
        return holding.asked if holding is not None else frozenset()

    def placed_by(self, ref: ContainerRef, plugin: str) -> bool:
        """Whether a container's CPUs come from this plugin."""
        holding = self.get(ref.pod_uid, ref.name)
        return holding is not None and cpus_of(holding.of_plugin(plugin).values()) is not None

    def drop(self, pod_uid: str) -> None:
        self.revision += 1
        self._pods.pop(pod_uid, None)

    def copy_of(self, ref: ContainerRef) -> Holding | None:
        """The container's entry as it is now, to come back to."""
        holding = self.get(ref.pod_uid, ref.name)
        return holding and replace(holding)

    def reset(self, ref: ContainerRef, before: Holding | None) -> None:
        """Undo what happened to a container since `before` was copied: it was not admitted after all."""
        self.revision += 1
        containers = self._pods.setdefault(ref.pod_uid, {})
        containers.pop(ref.name, None)
        if before is not None:
            containers[ref.name] = before
        elif not containers:
            del self._pods[ref.pod_uid]

    def compare(self, plugin: str, report: Report, machine: Machine | None) -> Findings:
        """What to change after a plugin reported everything that it has given."""
        changed: dict[ContainerKey, dict[str, Allocation]] = {}
        missing, nonsense = [], []
        for holding in self:
            held = holding.of_plugin(plugin)
            reported = report.get(holding.ref.pod_uid, {})
            now = reported.get(holding.ref.name) or (reported.get(WHOLE_POD) if plugin in holding.whole else None)
            if not now:
                if held:
                    missing.append(holding.ref)
                continue
            kept = {name: _keep_hints(given, held.get(name)) for name, given in now.items()}
            if kept == held:
                continue
            wrong = next(filter(None, (check_allocation(name, one, machine) for name, one in kept.items())), None)
            wrong = wrong or _promise_broken(held, kept) or _fixed_changed(held, kept)
            if wrong:
                nonsense.append(f"pod {holding.ref.pod_uid} container {holding.ref.name}: {wrong}")
            else:
                changed[holding.ref.pod_uid, holding.ref.name] = kept
        strangers = frozenset(uid for uid in report if uid not in self._pods)
        return Findings(changed, tuple(missing), strangers, tuple(nonsense))

    def cpus(self) -> dict[ContainerKey, Held]:
        """The CPUs of every container that has some."""
        found = (((h.ref.pod_uid, h.ref.name), h.held()) for h in self)
        return {key: held for key, held in found if held is not None}

    def owned(self) -> CpuSet:
        """The CPUs that are some pod's alone."""
        if self._owned is None or self._owned[0] != self.revision:
            found = NO_CPUS
            for held in self.cpus().values():
                found |= held.cpus if held.owner is not None else NO_CPUS
            self._owned = self.revision, found
        return self._owned[1]

    def validate(self) -> list[str]:
        """CPUs that are somebody's alone and somebody else's too."""
        return clashes(self.cpus())

    # ---- As JSON values

    def entries(self) -> dict[str, Any]:
        return {
            uid: {name: _to_json(holding) for name, holding in containers.items()}
            for uid, containers in self._pods.items()
        }

    def load(self, entries: Any) -> list[str]:
        """Take over what `entries` gave, entry by entry; returns what could not be read."""
        damaged = []
        self.revision += 1
        for uid, containers in (entries if isinstance(entries, dict) else {}).items():
            for name, entry in (containers if isinstance(containers, dict) else {}).items():
                try:
                    holding = _from_json(uid, name, entry)
                except (msgspec.ValidationError, InputError, TypeError) as error:
                    damaged.append(f"pod {uid} container {name}: {error}")
                else:
                    self._pods.setdefault(uid, {})[name] = holding
        return damaged


def is_memory(resource: str) -> bool:
    """Whether a resource is counted in bytes of NUMA nodes."""
    return resource == "memory" or resource.startswith("hugepages-")


def _numa_of(hints: Sequence[NumaHint]) -> NumaSet:
    return NumaSet.from_ids(node for hint in hints for node in hint.nodes)


def _granted(resources: Mapping[str, Allocation]) -> Grant | Nonsense:
    """What a container gets by all its resources, with the CPUs that are its pod's alone."""
    grant = grant_of(resources)
    try:
        found = cpus_of(resources.values())
    except InputError as error:
        return Nonsense(str(error))
    if found is None or not found[1] or isinstance(grant, Nonsense):
        return grant
    return replace(grant, exclusive=found[0])


def clashes(held: Mapping[ContainerKey, Held]) -> list[str]:
    """CPUs that are one pod's alone and somebody else's too, in words."""
    groups: dict[Held, ContainerKey] = {}
    for key, one in held.items():
        groups.setdefault(one, key)
    alone = [(one, key) for one, key in groups.items() if one.owner is not None]
    wrong: dict[frozenset[ContainerKey], str] = {}
    for one, key in alone:
        for two, other in groups.items():
            if one.owner != two.owner and one.cpus & two.cpus:
                text = f"{'/'.join(key)} and {'/'.join(other)} both hold {one.cpus & two.cpus}, which is exclusive"
                wrong.setdefault(frozenset((key, other)), text)
    return list(wrong.values())


def _promise_broken(held: Mapping[str, Allocation], now: Mapping[str, Allocation]) -> Nonsense | None:
    """CPUs that are a pod's alone stay some of its alone: a report changes which, never whether."""
    before, after = cpus_of(held.values()), cpus_of(now.values())
    if before is None or not before[1]:
        return None
    if after is None or not after[0]:
        return Nonsense(f"it reports no CPUs where {before[0]} are the pod's alone")
    return None if after[1] else Nonsense(f"it reports {after[0]} as shared where {before[0]} are the pod's alone")


def _fixed_changed(held: Mapping[str, Allocation], now: Mapping[str, Allocation]) -> Nonsense | None:
    """What a container is created with cannot change while it runs: the runtime would go on with the old."""
    for name in held.keys() & now.keys():
        for what in ("envs", "mounts", "devices"):
            if getattr(held[name], what) != getattr(now[name], what):
                return Nonsense(f"{name}: its {what} changed, which a container keeps as long as it runs")
    return None


def _noted(ref: ContainerRef, live: LiveContainer) -> tuple[Holding, Held | None] | None:
    """What a running container was created with, and where it runs by now; None without a note that can be read."""
    try:
        entry = decode_json(live.annotations.get(PLUGIN_HOLDINGS_ANNOTATION, "").encode())
        holding = _from_json(ref.pod_uid, ref.name, entry)
        holding.resources = {name: _as_it_runs(one, live) for name, one in holding.resources.items()}
        return holding, holding.held()
    except (JsonError, msgspec.ValidationError, InputError, TypeError, AttributeError):
        return None


def owned_by_plugins(ref: ContainerRef, live: LiveContainer) -> CpuSet:
    """The CPUs that a running container keeps from others by what a plugin gave it."""
    found = _noted(ref, live)
    held = found[1] if found is not None else None
    return held.cpus if held is not None and held.owner else NO_CPUS


def _as_it_runs(given: Allocation, live: LiveContainer) -> Allocation:
    now = {"CpusetCpus": live.cpus, "CpusetMems": live.mems}.get(given.property, "")
    return msgspec.structs.replace(given, result=now) if now else given


def _keep_hints(given: Allocation, held: Allocation | None) -> Allocation:
    """Reports come without hints; the one it was allocated under still stands (reference, regression T12)."""
    if held is None or given.hints or not held.hints:
        return given
    return msgspec.structs.replace(given, hints=held.hints)


class _Saved(msgspec.Struct, omit_defaults=True):
    kind: ContainerKind
    index: int
    hint: NumaHint
    resources: dict[str, Allocation]
    plugins: dict[str, str]
    was: str | None = None
    """Read no more: versions before wrote here what the container had before changes that were not made yet."""
    hints: dict[str, NumaHint] = {}
    whole: tuple[str, ...] = ()
    asked: tuple[str, ...] | None = None


def _to_json(holding: Holding) -> Any:
    ref, placement = holding.ref, holding.placement
    entry = _Saved(
        ref.kind,
        ref.index,
        NumaHint.of(placement.hint),
        holding.resources,
        holding.plugins,
        None,
        {resource: NumaHint.of(hint) for resource, hint in placement.by_resource.items()},
        tuple(sorted(holding.whole)),
        None if holding.asked == set(holding.plugins.values()) else tuple(sorted(holding.asked)),
    )
    return {**msgspec.to_builtins(entry, str_keys=True), **holding.rest}


def _from_json(uid: str, name: str, entry: Any) -> Holding:
    read = msgspec.convert(entry, _Saved, strict=False)
    if read.plugins.keys() != read.resources.keys():
        raise InputError("resources without a plugin")
    ref = ContainerRef(uid, name, read.kind, read.index)
    placement = Placement(read.hint.value, {resource: hint.value for resource, hint in read.hints.items()})
    rest = {key: value for key, value in entry.items() if key not in _Saved.__struct_fields__}
    asked = frozenset(read.plugins.values() if read.asked is None else read.asked)
    return Holding(ref, placement, read.resources, read.plugins, frozenset(read.whole), asked, rest)
