"""What configurations for the runtime depend on beside the pod: the node. Pure data.

Made when a node is assembled; everybody who tells the runtime something, or knows where a pod's files are, is given it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kubeqos.errors import InputError
from kubeqos.rules.qos.cgroups import CgroupSettings, NodeMemory
from kubeqos.rules.qos.classes import Catalog

Raw = Mapping[str, Any]


class OffersClasses(Protocol):
    """Knows the classes that the node offers now; they change while it runs."""

    @property
    def catalog(self) -> Catalog: ...


@dataclass(frozen=True, slots=True)
class NoClasses:
    """A node that offers none, for good."""

    catalog: Catalog = field(default_factory=Catalog)


@dataclass(frozen=True, slots=True)
class Context:
    """The node, as far as configurations depend on it."""

    log_dir: Path
    state_dir: Path
    memory: NodeMemory
    cgroups: CgroupSettings = field(default_factory=CgroupSettings)
    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = ""
    cgroup_version: int = 2
    classes: OffersClasses = field(default_factory=NoClasses)
    host_ip: str = ""
    node_name: str = ""
    hugepage_sizes: tuple[int, ...] = ()
    """Sizes of huge pages that the kernel can hand out, in bytes: who asks for none of a size gets none."""
    kills_as_a_whole: bool = True
    """Whether a container that runs out of memory goes as a whole (cgroup v2), and not only its largest process."""
    has_swap: bool = False
    """Whether the kernel counts swap by cgroup, so that it can be refused."""
    folders: bool = True
    """Whether logs and volumes have folders; a fleet of simulated nodes does without."""
    host_files: bool = True
    """Whether paths of the host are really mounted; a simulated runtime mounts none, so none is looked at or made."""


class ConfigurationProblem(InputError):
    """A container that cannot be configured as its pod describes it: CreateContainerConfigError."""
