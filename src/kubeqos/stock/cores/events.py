"""What happens to pods and containers on a stock node, in nobody's words: the shells translate. Pure.

The NRI plugin and the relay bring the same events to the keeper of cores, and carry the same grants out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.node.pod.observed import Stage


@dataclass(frozen=True, slots=True)
class PodEvent:
    """The pod of a container, as the runtime has it."""

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """A container that is about to be made or started, or that the runtime has."""

    name: str
    id: str = ""
    """Empty where the runtime has not chosen it yet."""
    cgroup: str = ""
    """Where it is, as the runtime writes it."""
    pid: int = 0
    stage: Stage = Stage.CREATED
    resources: cri.LinuxContainerResources = field(default_factory=cri.LinuxContainerResources)
    annotations: Mapping[str, str] = field(default_factory=dict)
