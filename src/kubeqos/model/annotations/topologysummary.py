"""What a node tells the scheduler about the inside of its machine, as annotation text and back. Pure.

Beside `status.allocatable`, one number per resource: what is free on each NUMA node and who holds the rest, and how
resource plugins divide a resource among pods (KEP-3461). The node agent encodes it as `TOPOLOGY_ANNOTATION`; the
scheduler and the extender decode it. Amounts are in the resource's own unit: CPUs, bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeqos.codec import encode_json
from kubeqos.model.annotations.podmarks import Marks

ANY, BIND, EXCLUSIVE = "any", "bind", "exclusive"
ByNuma = dict[int, int]
"""NUMA node → amount."""


class PoolRule(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What pods of one role get: a part of a pool together with others, or whole units of their own."""

    pool: str = ""
    whole: bool = False
    numa: str = ANY
    """How whole units are tied to NUMA nodes: any, bind or exclusive."""
    multiple: int = 1
    """Whole units come in multiples of this: the threads of a core for whole cores."""


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who draws on what. `default` is the pool of pods without a role that is named here."""

    default: str = ""
    roles: dict[str, PoolRule] = {}
    one_pool: bool = False
    """There is the default pool only: annotations name no other, they only bind pods to NUMA nodes."""

    def rule_for(self, marks: Marks) -> PoolRule:
        """What a pod with these marks gets; the plugins' own `role_for` says the same."""
        known = self.roles.get(marks.role)
        if known is not None:
            return known
        pool = marks.pool_or(self.default)
        if pool is None:
            return PoolRule(self.default) if self.one_pool and marks.numa == ANY else PoolRule("", True, marks.numa)
        return PoolRule(self.default if self.one_pool else pool)


class Division(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a plugin divides one resource."""

    rules: Rules = Rules()
    pools: dict[str, float] = {}
    """What the containers of each pool may request together, as if nobody had whole units of their own."""
    whole: float = 0.0
    """Units that can be somebody's own, if nobody had any yet."""
    carved: str = ""
    """The pool that whole units are taken out of."""
    owned: dict[str, float] = {}
    """Whole units by pod uid."""
    open: dict[str, ByNuma] = {}
    """Role → what is free on the NUMA nodes that its pods may still be bound to."""
    free: str = ""
    """Of units with numbers: those that can still be somebody's own, as the kernel writes lists of CPUs."""


class HeldClaim(msgspec.Struct, frozen=True, array_like=True):
    """What one claim holds: the cores of its own that it requests, and for each group its CPUs and what it keeps."""

    least: int
    sets: tuple[tuple[str, str], ...]
    """CPUs, and the CPUs that nobody else may use: none where they are shared."""
    handle: str = ""
    """Its parameters, where some of its CPUs are shared and may have to make room for others."""
    driver: str = ""
    """Who gave it, where that driver's `ways` make it matter."""


class HeldByContainer(msgspec.Struct, frozen=True, array_like=True):
    """The claims of one container."""

    transient: bool
    claims: tuple[HeldClaim, ...]


class ComputeSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node says of the CPUs that compute drivers hand out (KEP-3675): enough to decide attribute by attribute.

    Which core is where the node says in `MACHINE_ANNOTATION`.
    """

    withheld: str = ""
    """CPUs that nobody may have: reserved ones, and those of containers whose driver has not heard yet."""
    minimum: int = 1
    """CPUs that must stay for pods without claims."""
    threads: bool = False
    """EXCLUSIVE owns single threads instead of full cores."""
    ways: dict[str, str] = {}
    """Drivers that look at more than attributes, by name, and how they choose (`topology.claims.choosing`)."""
    held: dict[str, tuple[HeldByContainer, ...]] = {}
    """Pod uid → what its containers hold by claims."""
    free: dict[int, dict[str, int]] = {}
    """NUMA node → free CPUs, whole free cores, and those of a special sort; for people."""


class Down(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource plugin or compute driver that cannot be asked now: pods that need it would wait on the node."""

    name: str
    why: str
    driver: bool = False
    resources: tuple[str, ...] = ()
    """What a plugin serves, by the names under which pods ask for it."""
    everybody: bool = False
    """The plugin is asked about all pods, whatever they request."""
    roles: tuple[str, ...] = ()
    """And about pods of these roles."""

    def __str__(self) -> str:
        return f"{'compute driver' if self.driver else 'resource plugin'} {self.name} is down: {self.why}"


class TopologySummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a node says about its topology."""

    policy: str = "none"
    scope: str = "container"
    free: dict[str, ByNuma] = {}
    """Resource → what is free for alignment on each NUMA node, where a manager of the node hands it out by node."""
    held: dict[str, dict[str, ByNuma]] = {}
    """Pod uid → resource → what it holds on each NUMA node; together with `free` it is what there is."""
    pools: dict[str, Division] = {}
    """Resource → how a plugin divides it."""
    compute: ComputeSummary | None = None
    """Where compute drivers hand out CPUs."""
    down: tuple[Down, ...] = ()

    @property
    def aligns(self) -> bool:
        """Whether the node may refuse a pod because of where things are free."""
        return self.policy in ("single-numa-node", "restricted") and bool(self.free)


NO_SUMMARY = TopologySummary()
_DECODER = msgspec.json.Decoder(TopologySummary)


def encode_topology(summary: TopologySummary, requested: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """The value of `TOPOLOGY_ANNOTATION`.

    `requested`, resource → pool → what its containers ask for, is for people: the scheduler knows the pods itself.
    """
    told: dict[str, Any] = {"policy": summary.policy, "scope": summary.scope}
    if "cpu" in summary.free:
        told["freeCPUs"] = [amount for _, amount in sorted(summary.free["cpu"].items())]
    told |= msgspec.to_builtins(summary, str_keys=True)
    if requested:
        told["requested"] = {name: dict(pools) for name, pools in requested.items()}
    return encode_json(told).decode()


def decode_topology(text: str) -> TopologySummary:
    """Read `TOPOLOGY_ANNOTATION`; a foreign or newer form says nothing, so that pods are placed without it."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return NO_SUMMARY


def grown(old: TopologySummary, new: TopologySummary) -> Iterable[tuple[str, str]]:
    """The pools, as (resource, pool), in which there may be more room than before; "" stands for whole units."""
    for resource, now in new.pools.items():
        before = old.pools.get(resource, Division())
        changed = now.rules != before.rules
        for pool, size in now.pools.items():
            if changed or size > before.pools.get(pool, -1.0):
                yield resource, pool
        if changed or (now.whole, now.open, now.owned) != (before.whole, before.open, before.owned):
            yield resource, ""
