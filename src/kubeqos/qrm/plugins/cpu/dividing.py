"""What the CPU plugin tells about its pools, so that no pod is sent to the node that it would refuse: pure.

Sizes are told as if nobody had CPUs of its own, because the scheduler takes these off itself, also for pods that are
still on their way here.
"""

from __future__ import annotations

from kubeqos.model.annotations.podmarks import DEDICATED_CORES
from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.roles import Numa, Role
from kubeqos.topology.pools import SHARED

# What Katalyst's level means for pods without a role, when they are bound to NUMA nodes.
_BY_LEVEL = {DEDICATED_CORES: Role(dedicated=True, numa=Numa.BIND)}


def division(state: CpuState) -> Division:
    pools = state.pools
    owned: dict[str, float] = {}
    carved = 0
    for (uid, container), entry in state.entries.items():
        cpus = pools.exclusive.get(f"{uid}/{container}")
        if cpus and not entry.follows:
            owned[uid] = owned.get(uid, 0.0) + len(cpus)
            carved += len(cpus - state.machine.isolated)
    sizes = {pool: state.most(pool) for pool in (*pools.named, SHARED)}
    sizes[SHARED] += carved
    bound = {name: role for name, role in (_BY_LEVEL | state.config.roles).items() if _binds(role)}
    return Division(
        rules=_rules(state.config, state.machine.threads_per_core),
        pools=sizes,
        whole=float(len(pools.available)) + sum(owned.values()),
        carved=SHARED,
        owned=owned,
        open={name: state.open_to(name, role) for name, role in bound.items()},
        free=str(pools.available),
    )


def requested(state: CpuState) -> dict[str, float]:
    return {pool: state.requested(pool) for pool in (*state.pools.named, SHARED)}


def _binds(role: Role) -> bool:
    return role.dedicated and role.numa is not Numa.ANY


def _rules(config: CpuConfig, threads: int) -> Rules:
    roles = {
        name: PoolRule("", True, role.numa.value, threads if role.full_cores else 1)
        if role.dedicated
        else PoolRule(role.pool or config.default)
        for name, role in config.roles.items()
    }
    return Rules(config.default, roles)
