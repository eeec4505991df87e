"""Which resource managers go together, and which setting to change where they do not (DESIGN ruling 13). Pure.

Asked by `node.config.checks` about a configuration file, which can say on which line a setting stands, and by
`NodeSettings.check` about settings that were made in code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubeqos.gates import CCI, QRM, FeatureGates
from kubeqos.topology.alignment.hints import Policy
from kubeqos.topology.cpus import CpuOptions

_POLICIES = "best-effort, restricted or single-numa-node"
_OPTIONS = "cpuManagerPolicyOptions"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What does not go together, the settings that say so (the first that was given is shown), and what to do."""

    what: str
    settings: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class ManagerChoices:
    """What was chosen about a node's resource managers."""

    gates: FeatureGates
    topology: Policy
    cpu: str
    memory: str
    options: CpuOptions
    reserves_cpus: bool


def gate(name: str) -> str:
    """Where a feature gate is set."""
    return f"featureGates.{name}"


def contradictions(chosen: ManagerChoices) -> Iterator[Contradiction]:
    yield from _proposals(chosen)
    yield from _cpu_manager(chosen)


def _proposals(chosen: ManagerChoices) -> Iterator[Contradiction]:
    """KEP-3461 builds on the topology manager; KEP-3675 in its Alpha forbids it and the CPU and memory managers."""
    qrm, cci = chosen.gates.enabled(QRM), chosen.gates.enabled(CCI)
    if qrm and cci:
        yield Contradiction(
            f"{QRM} and {CCI} are both on, but one needs the topology manager and the other forbids it",
            (gate(QRM), gate(CCI), "featureGates"),
            f"turn {QRM} or {CCI} off",
        )
    if qrm and chosen.topology is Policy.NONE:
        yield Contradiction(
            f'{QRM} is on, but topologyManagerPolicy is "none"',
            ("topologyManagerPolicy", gate(QRM), "featureGates"),
            f"set topologyManagerPolicy to {_POLICIES}, or turn {QRM} off",
        )
    if not cci:
        return
    for name, value in (
        ("topologyManagerPolicy", chosen.topology.value),
        ("cpuManagerPolicy", chosen.cpu),
        ("memoryManagerPolicy", chosen.memory),
    ):
        if value.lower() != "none":
            off = "None" if name.startswith("memory") else "none"
            yield Contradiction(
                f'{CCI} is on, but {name} is "{value}"',
                (name, gate(CCI), "featureGates"),
                f"set {name} to {off} (KEP-3675 in its Alpha stage works alone), or turn {CCI} off",
            )


def _cpu_manager(chosen: ManagerChoices) -> Iterator[Contradiction]:
    for conflict in chosen.options.conflicts():
        yield Contradiction(
            f"{_OPTIONS}: {conflict}", (f"{_OPTIONS}.{conflict.rule}", _OPTIONS), "turn one of them off"
        )
    if chosen.options.align_by_socket and chosen.topology is Policy.SINGLE_NUMA_NODE:
        yield Contradiction(
            f'{_OPTIONS}: align-by-socket cannot be combined with topologyManagerPolicy "single-numa-node"',
            (f"{_OPTIONS}.align-by-socket", _OPTIONS),
            "turn align-by-socket off, or set topologyManagerPolicy to best-effort or restricted",
        )
    if chosen.cpu == "static" and not chosen.reserves_cpus:
        yield Contradiction(
            'cpuManagerPolicy is "static", but no CPU is reserved for the system',
            ("cpuManagerPolicy",),
            "set reservedSystemCPUs, or cpu in systemReserved or kubeReserved",
        )
