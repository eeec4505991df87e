"""The CPU plugin's configuration.

reserved: "0-1,40-41"
pools:
  online: {cpus: "2-37,42-77"}
  offline: {size: 4, floor: 2}
roles:
  web: {pool: online}
  storage: {dedicated: true, numa: bind}
default: online
advisor: {policy: feedback}
"""

from __future__ import annotations

import msgspec

from kubeqos.errors import ConfigurationError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.plugins.cpu.advisor import AdvisorConfig, Policy
from kubeqos.qrm.plugins.cpu.layout import lay_out
from kubeqos.qrm.plugins.roles import Numa, Role
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.pools import BUILT_IN, SHARED, Pools


class PoolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named pool: these CPUs, or so many of them."""

    cpus: str = ""
    size: int = 0
    floor: int = 1
    oversell: float = 1.0
    """Containers may together request so many times the pool's CPUs."""


class CpuConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reserved: str = ""
    pools: dict[str, PoolConfig] = {}
    roles: dict[str, Role] = {}
    default: str = SHARED
    advisor: AdvisorConfig = AdvisorConfig()

    @property
    def moves(self) -> bool:
        """Whether the plugin resizes pools by itself."""
        return self.advisor.policy is not Policy.FIXED


def initial_pools(machine: Machine, config: CpuConfig) -> Pools:
    """The pools that the configuration describes; one that cannot be is an error."""
    for name, role in config.roles.items():
        if role.pool and role.pool not in (*config.pools, SHARED):
            raise ConfigurationError(f"role {name}: there is no pool {role.pool}", remedy="name it under pools")
        if role.evenly and (role.numa is not Numa.BIND or not role.dedicated):
            raise ConfigurationError(
                f"role {name}: evenly is for CPUs of its own on bound NUMA nodes",
                remedy="add dedicated: true and numa: bind, or leave it out",
            )
        if role.pool and role.dedicated:
            raise ConfigurationError(f"role {name} has both a pool and CPUs of its own", remedy="keep one of them")
    if config.default not in (*config.pools, SHARED):
        raise ConfigurationError(f"default: there is no pool {config.default}", remedy="name it under pools")
    taken = [name for name in config.pools if name in BUILT_IN]
    if taken:
        raise ConfigurationError(f"pools: {taken[0]} is a name of ours", remedy=f"do not use {', '.join(BUILT_IN)}")
    reserved = CpuSet.parse(config.reserved)
    named = {name: CpuSet.parse(pool.cpus) for name, pool in config.pools.items() if pool.cpus}
    free = Pools(machine, reserved, named).shared
    placed = lay_out(machine, free, {name: pool.size for name, pool in config.pools.items() if not pool.cpus})
    if isinstance(placed, Unsatisfiable):
        raise ConfigurationError(f"pools do not fit on the machine: {placed}")
    everything = {**named, **placed}
    pools = Pools(machine, reserved, {name: everything[name] for name in config.pools})
    for wrong in [*pools.validate(), *_too_small(pools, config)]:
        raise ConfigurationError(f"pools: {wrong}")
    return pools


def _too_small(pools: Pools, config: CpuConfig) -> list[str]:
    return [
        f"{name} has {len(cpus)} CPUs, its floor is {config.pools[name].floor}"
        for name, cpus in pools.named.items()
        if len(cpus) < config.pools[name].floor
    ]


def check_floors(pools: Pools, config: CpuConfig) -> str | None:
    """The first pool that is smaller than it may be."""
    return next(iter(_too_small(pools, config)), None)
