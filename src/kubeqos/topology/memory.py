"""Memory and huge pages by NUMA node: hints, allocation and release of exclusive memory.

The rules are those of Kubernetes' static memory manager. A node serves either containers that fit on it alone
or one group of nodes together, never both. A container of a pod may reuse what the pod's earlier init
containers held on the same nodes. `MemoryState` is an immutable value: every operation returns the next one,
so that an admission over several managers can be dropped half way. Called by the node agent's memory manager
and by QRM's memory plugin.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kubeqos.model.cpuset import NumaSet, iterate_bits
from kubeqos.model.machine import Machine
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.alignment.masks import ENUMERATED, Fits, all_masks, numa_set, useful_masks
from kubeqos.topology.answers import Unsatisfiable, Violation

MEMORY = "memory"
Request = Mapping[str, int]  # resource ("memory", "hugepages-2Mi", …) → bytes
Owner = tuple[str, str]  # pod, container


class MemoryHold(enum.Enum):
    """How long a container holds its memory; only ordinary init containers pass theirs on."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Block:
    """Memory of one container: this much of one resource, on these nodes together."""

    resource: str
    size: int
    numa: NumaSet


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """One NUMA node's account. `group` is the set of nodes it currently serves together with."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    assignments: int
    group: NumaSet


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: MemoryHold
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class MemoryState:
    """Who holds which memory, and what is left on each node."""

    nodes: Mapping[int, NodeMemory]
    entries: Mapping[Owner, _Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine, reserved: Mapping[int, Request] | None = None) -> MemoryState:
        """An empty account; `reserved` is kept for the system, per node and resource."""
        nodes = {}
        for node in machine.nodes:
            kept = (reserved or {}).get(node.id, {})
            sizes = {hugepage_resource(page): page * count for page, count in node.hugepages.items()}
            sizes[MEMORY] = node.memory_bytes - sum(sizes.values())
            allocatable = {name: max(0, size - kept.get(name, 0)) for name, size in sizes.items()}
            nodes[node.id] = NodeMemory(allocatable, allocatable, 0, NumaSet.of(node.id))
        return cls(nodes)

    def blocks(self, pod: str, container: str) -> tuple[Block, ...]:
        """What this container holds."""
        entry = self.entries.get((pod, container))
        return entry.blocks if entry else ()

    def hints(self, pod: str, container: str, request: Request) -> dict[str, tuple[Hint, ...]]:
        """Hints per resource (the same for all of them); empty when no placement is possible."""
        held = self.blocks(pod, container)
        if held:
            same = {block.resource: block.size for block in held} == dict(request)
            return {block.resource: (Hint(block.numa, True),) for block in held} if same else {}
        found = self._hints(pod, request)
        return dict.fromkeys(request, found) if found else {}

    def allocate(
        self, pod: str, container: str, request: Request, hint: Hint, kind: MemoryHold = MemoryHold.MAIN
    ) -> MemoryState | Unsatisfiable:
        """The state in which this container holds `request` on the hinted nodes, or on more if need be."""
        if (pod, container) in self.entries:
            return self
        chosen = self._nodes_for(pod, request, hint)
        if isinstance(chosen, Unsatisfiable):
            return chosen
        mask = chosen.mask
        nodes = dict(self.nodes)
        reusable = self._reusable(pod)
        blocks = []
        for resource, size in sorted(request.items()):
            blocks.append(Block(resource, size, chosen))
            needed = max(0, size - reusable[mask, resource])
            for node in iterate_bits(mask):
                nodes[node], needed = _charge(nodes[node], resource, needed, chosen)
        entries = dict(self.entries) | {(pod, container): _Entry(kind, tuple(blocks))}
        return MemoryState(nodes, _shrink_init(entries, pod, container, blocks))

    def release(self, pod: str, container: str) -> MemoryState:
        """The state without this container; unknown containers change nothing."""
        entry = self.entries.get((pod, container))
        if entry is None:
            return self
        nodes = dict(self.nodes)
        for block in entry.blocks:
            size = block.size
            for node in block.numa:
                nodes[node], size = _refund(nodes[node], node, block.resource, size)
        entries = {owner: kept for owner, kept in self.entries.items() if owner != (pod, container)}
        return MemoryState(nodes, entries)

    def validate(self) -> list[str]:
        """Broken invariants, in words; empty when all is well."""
        wrong = []
        held = dict.fromkeys(self.nodes, 0)
        for block in (block for entry in self.entries.values() for block in entry.blocks):
            for node in block.numa:
                held[node] += 1
        for node, account in self.nodes.items():
            if account.assignments != held[node]:
                wrong.append(f"node {node}: {account.assignments} assignments recorded, {held[node]} held")
            for resource, free in account.free.items():
                if not 0 <= free <= account.allocatable[resource]:
                    wrong.append(f"node {node}: {free} bytes of {resource} free")
        for resource in {name for account in self.nodes.values() for name in account.free}:
            used = sum(n.allocatable.get(resource, 0) - n.free.get(resource, 0) for n in self.nodes.values())
            sizes = sum(b.size for e in self.entries.values() for b in e.blocks if b.resource == resource)
            if used != sizes:
                wrong.append(f"{resource}: {used} bytes charged, {sizes} bytes held")
        return wrong

    def _hints(self, pod: str, request: Request) -> tuple[Hint, ...]:
        nodes = sorted(self.nodes)
        reusable = self._reusable(pod)
        could = self._covers({name: node.allocatable for name, node in self.nodes.items()}, request, Counter())
        can = self._covers({name: node.free for name, node in self.nodes.items()}, request, reusable)
        open_to = self._open_groups()

        def fits(mask: tuple[int, ...]) -> bool:
            return could(mask) and open_to(mask) and can(mask)

        if len(nodes) <= ENUMERATED:
            able = [mask for mask in all_masks(nodes) if could(mask)]
            masks = [mask for mask in able if open_to(mask) and can(mask)]
        else:
            able = useful_masks(nodes, self._roomiest(request, "allocatable"), 1, could)
            masks = useful_masks(nodes, self._roomiest(request, "free"), len(able[0]), fits) if able else []
        smallest = len(able[0]) if able else len(nodes)  # on an empty machine: what makes a hint preferred
        return tuple(Hint(numa_set(mask), len(mask) == smallest) for mask in masks)

    @staticmethod
    def _covers(have: Mapping[int, Request], request: Request, extra: Counter[tuple[int, str]]) -> Fits:
        """Whether a set of nodes holds the whole request, with what the pod may reuse there."""
        wanted = [(r, size, {node: sizes.get(r, 0) for node, sizes in have.items()}) for r, size in request.items()]

        def covers(mask: tuple[int, ...]) -> bool:
            for resource, size, per_node in wanted:
                short = size - sum([per_node[node] for node in mask])
                if short > 0 and (not extra or short > extra[numa_set(mask).mask, resource]):
                    return False
            return True

        return covers

    def _roomiest(self, request: Request, account: str) -> list[int]:
        """Nodes that have some of the request, those with the most of what is scarcest first."""

        def least(node: int) -> int:
            return min((getattr(self.nodes[node], account).get(r, 0) for r in request), default=0)

        some = [n for n in self.nodes if any(getattr(self.nodes[n], account).get(r, 0) for r in request)]
        return sorted(some, key=lambda node: (-least(node), node))

    def _total(self, mask: NumaSet, resource: str) -> int:
        return sum(self.nodes[node].free.get(resource, 0) for node in mask)

    def _reusable(self, pod: str) -> Counter[tuple[int, str]]:
        """What the pod's init containers hold and pass on, by exact set of nodes and resource."""
        out: Counter[tuple[int, str]] = Counter()
        for owner, entry in self.entries.items():
            if owner[0] == pod and entry.kind is MemoryHold.INIT:
                for block in entry.blocks:
                    out[block.numa.mask, block.resource] += block.size
        return out

    def _open_groups(self) -> Fits:
        """Which nodes may serve together: single and cross-node use exclude each other, groups never overlap."""
        taken, taken_as = 0, Counter[int]()
        for node, account in self.nodes.items():
            if account.assignments:
                taken |= 1 << node
                taken_as[account.group.mask] |= 1 << node

        def is_open(mask: tuple[int, ...]) -> bool:
            if len(mask) == 1:
                return len(self.nodes[mask[0]].group) == 1
            group = numa_set(mask).mask
            return not group & taken & ~taken_as.get(group, 0)

        return is_open

    def _nodes_for(self, pod: str, request: Request, hint: Hint) -> NumaSet | Unsatisfiable:
        """The nodes to allocate on: the hint, or the container's own best where the hint does not do."""
        numa, preferred = hint.numa, hint.preferred
        if numa is None:
            best = _best(self._hints(pod, request))
            if best is None:
                text = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                return _refuse(text)
            if preferred and not best.preferred:
                return _refuse("failed to find the default preferred hint")
            numa, preferred = best.numa, best.preferred
        assert numa is not None
        if any(self._total(numa, r) < size for r, size in request.items()):
            wider = [h for h in self._hints(pod, request) if h.numa is not None and numa <= h.numa]
            best = _best(tuple(wider))
            if best is None or best.numa is None:
                return _refuse("failed to find NUMA nodes to extend the current topology hint")
            if preferred and not best.preferred:
                return _refuse("failed to find the extended preferred hint")
            numa = best.numa
        if len(numa) > 1 and not self._open_groups()(tuple(numa)):
            return _refuse("preferred hint violates NUMA node allocation")
        return numa


def hugepage_resource(page_bytes: int) -> str:
    """The resource name of huge pages of this size: hugepages-2Mi, hugepages-1Gi."""
    for shift, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if page_bytes % (1 << shift) == 0:
            return f"hugepages-{page_bytes >> shift}{unit}"
    return f"hugepages-{page_bytes}"


def _refuse(text: str) -> Unsatisfiable:
    return Unsatisfiable((Violation("memory", text),))


def _best(hints: tuple[Hint, ...]) -> Hint | None:
    """Preferred first, then fewest nodes, then lowest mask."""
    ranked = [(not h.preferred, len(h.numa), h.numa.mask, h) for h in hints if h.numa is not None]
    return min(ranked, key=lambda r: r[:3])[3] if ranked else None


def _charge(node: NodeMemory, resource: str, size: int, group: NumaSet) -> tuple[NodeMemory, int]:
    have = node.free.get(resource, 0)
    taken = min(have, size)
    free = {**node.free, resource: have - taken} if taken else node.free
    return replace(node, free=free, assignments=node.assignments + 1, group=group), size - taken


def _refund(node: NodeMemory, number: int, resource: str, size: int) -> tuple[NodeMemory, int]:
    free = node.free.get(resource, 0)
    given = min(node.allocatable.get(resource, 0) - free, size)
    assignments = node.assignments - 1
    group = node.group if assignments else NumaSet.of(number)
    return replace(node, free={**node.free, resource: free + given}, assignments=assignments, group=group), size - given


def _shrink_init(entries: dict[Owner, _Entry], pod: str, container: str, blocks: list[Block]) -> dict[Owner, _Entry]:
    """Take what was reused out of the init containers' blocks: the pod's sum stays what it holds."""
    for block in blocks:
        left = block.size
        for owner, entry in list(entries.items()):
            if owner[0] != pod or entry.kind is not MemoryHold.INIT or owner[1] == container:
                continue
            kept = []
            for held in entry.blocks:
                moved = min(held.size, left) if (held.resource, held.numa) == (block.resource, block.numa) else 0
                left -= moved
                kept.append(replace(held, size=held.size - moved))
            entries[owner] = _Entry(entry.kind, tuple(kept))
    return entries
