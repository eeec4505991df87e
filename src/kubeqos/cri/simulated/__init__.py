"""A container runtime without containers: the whole CRI state machine, on a machine that need not exist.

For laptops (`kubeqos runtime`), for tests and for fleets of thousands of nodes in one process. `core` decides,
`runtime` moves bytes; what runs in a container is `process`: pods describe it in annotations and by their commands.
"""

from kubeqos.clock import Clock, VirtualClock, WallClock
from kubeqos.cri.simulated.runtime import SimulatedRuntime

__all__ = ["Clock", "SimulatedRuntime", "VirtualClock", "WallClock"]
