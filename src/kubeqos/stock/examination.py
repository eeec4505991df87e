"""What of a cluster, its nodes and this machine is there, feature by feature, and what to do about what is not. Pure.

`kubeqos doctor` gathers the facts and prints the findings. Nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

Raw = Mapping[str, Any]
OLDEST = (1, 29)
"""The first Kubernetes that checks rules of CustomResourceDefinitions, which our kinds have, for good."""
OK, MISSING, NOTE = "ok", "missing", "note"
REQUIRED = "RequiredPluginsChecked"
"""The condition of a NodeQOS that says whether the runtime keeps who asks from starting without the agent."""
KINDS = ("nodeqoses", "qosclasses", "qosclasslimits", "qosclassquotas", "qosresources")
CLAIMS = "resource.k8s.io/v1"
PARTITIONING = (6, 7)
"""The first Linux that makes partitions of CPUs deep in the hierarchy (`node.cgroups.partitions`)."""
MANAGER_STATES = {"cpuManagerPolicy": "cpu_manager_state", "memoryManagerPolicy": "memory_manager_state"}
"""Settings of a kubelet that make it pin containers itself, and the files in its folder that say what is in force."""
IO_LIMITS = {1: ("blkio.throttle.read_bps_device",), 2: ("io.max",)}
IO_WEIGHTS = {1: ("blkio.bfq.weight", "blkio.weight"), 2: ("io.bfq.weight", "io.weight")}
"""By version of control groups: the files that classes of block I/O are written to (`cri.providers.blockio`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `missing` keeps a feature from working, `note` is worth knowing."""

    what: str
    state: str
    details: str


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What was seen on the machine itself."""

    root: bool
    nri_socket: bool
    cgroup_version: int
    resctrl: bool
    validator: bool | None = None
    """Whether the runtime keeps pods that require a plugin from starting without it; None where that is not known."""
    restart_needed: bool = False
    """Whether it has not read that yet."""
    kernel: str = ""
    """As `uname -r` says it."""
    managers: Mapping[str, str] = field(default_factory=dict)
    """Policies of the kubelet's managers, by setting, where it has left a word of them."""
    io_files: Set[str] | None = None
    """Control files of block I/O that there are; None where no control group has that controller turned on."""


def cluster(version: Raw, may_install: bool, has_claims: bool) -> list[Finding]:
    """Whether kubeqos can be installed at all, and whether pods can claim cores then."""
    said = str(version.get("gitVersion", "unknown"))
    match = re.match(r"v?(\d+)\.(\d+)", said)
    numbers = (int(match[1]), int(match[2])) if match else (0, 0)
    old = f"{said}: kubeqos needs {OLDEST[0]}.{OLDEST[1]} or newer"
    return [
        Finding("Kubernetes", OK, said) if numbers >= OLDEST else Finding("Kubernetes", MISSING, old),
        Finding("rights to install", OK, "you may create CustomResourceDefinitions and ClusterRoles")
        if may_install
        else Finding("rights to install", MISSING, "ask for the role cluster-admin, or let an administrator install"),
        Finding("claims for cores", OK, f"{CLAIMS} is served")
        if has_claims
        else Finding("claims for cores", NOTE, f"{CLAIMS} is not served: use Kubernetes 1.34 or newer; the rest works"),
    ]


def installed(definitions: Iterable[str], deployment: Raw | None, hooks: bool) -> list[Finding]:
    """What of kubeqos is in the cluster."""
    have = set(definitions)
    missing = [kind for kind in KINDS if f"{kind}.kubeqos.io" not in have]
    if len(missing) == len(KINDS) and deployment is None and not hooks:
        return [Finding("kubeqos", NOTE, "not installed: kubeqos install")]
    ready = int(((deployment or {}).get("status") or {}).get("readyReplicas") or 0)
    return [
        Finding("kinds", MISSING, f"not there: {', '.join(missing)}; kubeqos install")
        if missing
        else Finding("kinds", OK, "all of them"),
        Finding("controller", OK, f"{ready} ready")
        if ready
        else Finding("controller", MISSING, "no replica is ready: kubectl -n kubeqos-system get pods"),
        Finding("webhooks", OK, "registered")
        if hooks
        else Finding("webhooks", MISSING, "not registered; the controller does that when it leads"),
    ]


def node(raw: Raw, report: Raw | None, managers: Mapping[str, str] | None = None) -> list[Finding]:
    """Whether a node can give classes and cores, and whether it does. `managers`: policies, where its kubelet tells."""
    name = raw["metadata"]["name"]
    info = (raw.get("status") or {}).get("nodeInfo") or {}
    found = [Finding(f"node {name}: NRI", *nri_of(str(info.get("containerRuntimeVersion", ""))))]
    if managers is not None:
        found.append(Finding(f"node {name}: cores", *cores_beside(managers)))
    if kernel := str(info.get("kernelVersion", "")):
        found.append(Finding(f"node {name}: CPU partitions", *partitions_of(kernel)))
    if report is None:
        return [*found, Finding(f"node {name}: agent", NOTE, "has not reported")]
    status = report.get("status") or {}
    found += [
        Finding(f"node {name}: required plugins", OK if one["status"] == "True" else NOTE, one.get("message", ""))
        for one in status.get("conditions") or ()
        if one["type"] == REQUIRED
    ]
    unwell = [one for one in status.get("conditions") or () if one["type"] == "Healthy" and one["status"] != "True"]
    if unwell:
        return [*found, Finding(f"node {name}: agent", NOTE, unwell[0].get("message", ""))]
    return [*found, Finding(f"node {name}: agent", OK, f"{status.get('classCount', 0)} classes")]


def nri_of(runtime: str) -> tuple[str, str]:
    """Whether a runtime takes NRI plugins: by its version, as kubelets tell it (`containerd://2.0.5`)."""
    match = re.fullmatch(r"(containerd|cri-o)://v?(\d+)\.(\d+).*", runtime)
    if match is None:
        return MISSING, f"{runtime or 'unknown runtime'}: use the relay (kubeqos agent --relay-socket)"
    kind, version = match[1], (int(match[2]), int(match[3]))
    on, has = ((2, 0), (1, 7)) if kind == "containerd" else ((1, 30), (1, 26))
    if version >= on:
        return OK, runtime
    if version >= has:
        return MISSING, f"{runtime}: has NRI, but not by default; enable it in the runtime's configuration"
    return MISSING, f"{runtime}: has no NRI; use a newer one, or the relay (kubeqos agent --relay-socket)"


def cores_beside(managers: Mapping[str, str]) -> tuple[str, str]:
    """Whether the agent hands out cores beside a kubelet with these policies: of two who pin, each undoes the other."""
    pinning = {setting: policy for setting, policy in managers.items() if policy.lower() not in ("", "none")}
    if not pinning:
        return OK, "the kubelet pins nobody"
    said = " and ".join(f"{setting} is {policy}" for setting, policy in sorted(pinning.items()))
    files = " and ".join(MANAGER_STATES[setting] for setting in sorted(pinning))
    how = f"set it to none in the kubelet's configuration and remove {files}, or install without --node-config"
    return NOTE, f"the kubelet pins containers itself ({said}), and no cores are handed out beside it: {how}"


def partitions_of(kernel: str, cgroup_version: int = 2) -> tuple[str, str]:
    """Whether the kernel itself keeps others off owned CPUs, also those who start while the agent is away."""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    new = match is not None and (int(match[1]), int(match[2])) >= PARTITIONING
    if new and cgroup_version == 2:
        return OK, f"Linux {kernel}"
    needed = f"Linux {PARTITIONING[0]}.{PARTITIONING[1]}" if not new else "version 2 of control groups"
    said = f"Linux {kernel or 'of unknown version'}" if not new else "control groups of version 1"
    what = "a Guaranteed pod that starts while the agent is away may run on owned CPUs"
    how = 'or let the runtime require the plugin of all pods (required_plugins = ["kubeqos"] under default_validator)'
    return NOTE, f"{said}: {what}; use {needed}, {how}"


def block_io(files: Set[str] | None, cgroup_version: int) -> list[Finding]:
    """Which classes of block I/O the kernel can keep: it has control files for them, or it has not."""
    if files is None:
        when = "look again when pods run; on control groups of version 2, io must be in cgroup.controllers"
        return [Finding("blockio", NOTE, f"no control group has block I/O turned on: {when}")]
    limits, weights = IO_LIMITS[cgroup_version], IO_WEIGHTS[cgroup_version]
    found = [file for file in weights if file in files]
    return [
        Finding("blockio throttles", OK, ", ".join(limits))
        if files >= set(limits)
        else Finding(
            "blockio throttles",
            NOTE,
            f"no {limits[0]}: use a kernel with CONFIG_BLK_DEV_THROTTLING, or leave throttles out of the classes",
        ),
        Finding("blockio weights", OK, ", ".join(found))
        if found
        else Finding(
            "blockio weights",
            NOTE,
            f"neither {' nor '.join(weights)}: load the module bfq, or leave weights out of the classes",
        ),
    ]


def machine(facts: LocalFacts) -> list[Finding]:
    """What an agent on this very machine would find."""
    return [
        Finding("root", OK, "yes") if facts.root else Finding("root", MISSING, "the agent writes control groups"),
        Finding("NRI socket", OK, "there")
        if facts.nri_socket
        else Finding("NRI socket", MISSING, "/var/run/nri/nri.sock is not there: enable NRI in the runtime"),
        *_required(facts),
        Finding("cgroups", OK, "version 2")
        if facts.cgroup_version == 2
        else Finding("cgroups", NOTE, "version 1: memory protection and I/O weights work in part"),
        Finding("rdt", OK, "resctrl is mounted")
        if facts.resctrl
        else Finding("rdt", NOTE, "no resctrl: mount it, or leave out the provider rdt"),
        *block_io(facts.io_files, facts.cgroup_version),
        Finding("cores", *cores_beside(facts.managers)),
        Finding("CPU partitions", *partitions_of(facts.kernel, facts.cgroup_version)),
    ]


def _required(facts: LocalFacts) -> list[Finding]:
    """What becomes of who asks while the agent is away: of that the runtime's own settings decide."""
    if not facts.nri_socket:
        return []
    if facts.validator and facts.restart_needed:
        return [Finding("required plugins", NOTE, "the runtime is to check them, once it is restarted: restart it")]
    if facts.validator:
        return [Finding("required plugins", OK, "who asks for something does not start while the agent is away")]
    how = "kubeqos install --runtime-config, or let default_validator under io.containerd.nri.v1.nri have enable = true"
    said = "the runtime does not check them" if facts.validator is False else "its settings cannot be read"
    return [Finding("required plugins", NOTE, f"{said}: {how} (/etc/containerd/config.toml)")]


def is_fit(findings: Sequence[Finding]) -> bool:
    """Whether nothing is missing."""
    return all(finding.state != MISSING for finding in findings)
