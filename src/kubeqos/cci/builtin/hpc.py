"""The HPC driver: exclusive cores on NUMA nodes that no other claim is on, close together, one thread per core."""

from __future__ import annotations

from kubeqos.cci.builtin.reference import Remembering
from kubeqos.model.machine import Machine
from kubeqos.topology.claims.choosing import WHOLE_NODES


class Hpc(Remembering):
    """Gives a claim whole NUMA nodes: whoever is on a node is alone on it, as far as exclusive cores go."""

    way = WHOLE_NODES

    def __init__(self, machine: Machine, name: str = "hpc.cci.kubeqos.io") -> None:
        super().__init__(machine, name)
