"""`NodeConfiguration`: everything a node agent is told, from a YAML file and from flags.

    apiVersion: kubeqos.io/v1alpha1
    kind: NodeConfiguration
    topologyManagerPolicy: single-numa-node
    cpuManagerPolicy: static
    reservedSystemCPUs: 0-1
    featureGates: {QoSResourceManager: true}

Settings have Kubernetes' names where Kubernetes has them. Strict: an unknown key is an error with its line and the
nearest known one. A flag (`--max-pods`) overrides the file, the file overrides the profile, the profile the defaults.
Settings that contradict each other are refused by `node.config.checks`. Called by `kubeqos node` and `kubeqos up`.
"""

# ruff: noqa: RUF009 - `_setting` makes a dataclass field, and every default is immutable
from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeqos.document import Doc, check_kind, parse_document, read_document
from kubeqos.errors import ConfigurationError
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.objects import ResourceList
from kubeqos.model.reading import cpu_set
from kubeqos.node.config import readers as read
from kubeqos.node.config.checks import refuse_conflicts
from kubeqos.node.config.readers import CpuPolicyOptions, TopologyOptions
from kubeqos.plugins import REGISTRY, STATE_DIR
from kubeqos.rules.qos.cgroups import MemoryPolicy
from kubeqos.rules.qos.eviction import HARD_DEFAULTS, Ranking, Threshold, thresholds
from kubeqos.topology.alignment.hints import Policy, Scope

API_VERSION, KIND = "kubeqos.io/v1alpha1", "NodeConfiguration"

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "qrm": {"topologyManagerPolicy": "best-effort", "featureGates": {"QoSResourceManager": True}},
    "cci": {"featureGates": {"CCIResourceManager": True}},
}
"""What a kind of node needs to be told less (DESIGN ruling 13)."""


def _setting(key: str, default: Any, reader: read.Reader[Any], about: str, *, option: str = "", also: str = "") -> Any:
    """A setting: its key in the file, its default, how it is read, what it does, and its flags where they differ."""
    metadata = {"key": key, "read": reader, "about": about, "flag": option or _kebab(key), "also": also}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _kebab(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", key.replace("CPUs", "Cpus")).lower()


_path, _text, _flag, _duration, _period = read.path, read.text, read.flag, read.duration, read.period
_count = read.whole(0, 1_000_000)
_percent = read.whole(0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfiguration:
    """All settings of one node agent; `given_at` says where each one that was given stands."""

    # Who and where
    node_name: str = _setting(
        "nodeName", "", _text, "Name of the Node object.", option="node-name", also="hostname-override"
    )
    profile: str = _setting(
        "profile", "default", lambda doc: doc.one_of(PROFILES), "Kind of node: default, qrm or cci."
    )
    state_dir: Path = _setting("stateDir", STATE_DIR, _path, "Folder for checkpoints and sockets.", also="root-dir")
    node_labels: Mapping[str, str] = _setting("nodeLabels", {}, read.texts, "Labels that the node registers with.")
    taints: tuple[Mapping[str, str], ...] = _setting(
        "registerWithTaints", (), read.taints, "Taints that the node registers with."
    )
    register_node: bool = _setting("registerNode", True, _flag, "Create the Node object.")
    node_ips: tuple[str, ...] = _setting(
        "nodeIPs", ("127.0.0.1",), read.names, "The node's addresses.", option="node-ip"
    )
    # Runtime
    runtime_endpoint: str = _setting(
        "containerRuntimeEndpoint", "", _text, "The CRI socket, unix:///….", also="runtime-endpoint"
    )
    simulated_machine: str = _setting(
        "simulatedMachine", "", _text, "Simulate this machine: its name, or a file.", also="simulated"
    )
    classes_file: Path | None = _setting(
        "classesFile", None, _path, "QoS-class resources of the simulated machine (KEP-3008).", also="classes"
    )
    pod_logs_dir: Path = _setting(
        "podLogsDir", Path("/var/log/pods"), _path, "Folder of container logs.", also="log-dir"
    )
    static_pod_path: Path | None = _setting(
        "staticPodPath", None, _path, "Folder of static pods.", option="pod-manifest-path"
    )
    max_pods: int = _setting("maxPods", 110, read.whole(1, 100_000), "How many pods may run here.")
    # Features
    gates: FeatureGates = _setting("featureGates", FeatureGates.default(), read.gates, "Features that are on or off.")
    qos_class_eviction: bool = _setting(
        "qosClassEviction", False, _flag, "Evict pods whose class disappears (KEP-3008, phase 2)."
    )
    # Managers
    cpu_manager_policy: str = _setting(
        "cpuManagerPolicy", "none", lambda doc: doc.one_of(("none", "static")), "CPU manager: none or static."
    )
    cpu_options: CpuPolicyOptions = _setting(
        "cpuManagerPolicyOptions", CpuPolicyOptions(), read.cpu_options, "Options of the static CPU manager."
    )
    memory_manager_policy: str = _setting(
        "memoryManagerPolicy", "None", read.memory_policy, "Memory manager: None or Static."
    )
    reserved_memory: Mapping[int, ResourceList] = _setting(
        "reservedMemory", {}, read.reserved_memory, "Memory kept from pods, by NUMA node."
    )
    topology_policy: Policy = _setting(
        "topologyManagerPolicy", Policy.NONE, read.one_of(Policy), "How NUMA hints are used."
    )
    topology_scope: Scope = _setting(
        "topologyManagerScope", Scope.CONTAINER, read.one_of(Scope), "Align containers, or whole pods."
    )
    topology_options: TopologyOptions = _setting(
        "topologyManagerPolicyOptions", TopologyOptions(), read.topology_options, "Options of the topology manager."
    )
    kube_reserved: ResourceList = _setting("kubeReserved", {}, read.reserved, "Kept for this agent and the runtime.")
    system_reserved: ResourceList = _setting("systemReserved", {}, read.reserved, "Kept for the system.")
    reserved_cpus: CpuSet = _setting(
        "reservedSystemCPUs",
        NO_CPUS,
        cpu_set,
        "CPUs that pods never own; they leave allocatable, and override cpu in kubeReserved and systemReserved.",
        option="reserved-cpus",
    )
    # Cgroups
    cgroup_driver: str = _setting(
        "cgroupDriver",
        "cgroupfs",
        lambda doc: doc.one_of(("cgroupfs", "systemd")),
        "Who makes cgroups: cgroupfs or systemd; where it is not set, as the runtime says it does.",
    )
    cgroup_root: str = _setting("cgroupRoot", "", _text, "Put before every pod's cgroup.")
    cgroups_per_qos: bool = _setting(
        "cgroupsPerQOS", True, _flag, "Keep the cgroups of pods and QoS classes; otherwise the runtime makes them."
    )
    cpu_cfs_quota: bool = _setting("cpuCFSQuota", True, _flag, "Enforce CPU limits.")
    cpu_cfs_quota_period: float = _setting("cpuCFSQuotaPeriod", 0.1, read.quota_period, "Period of CPU limits.")
    cpu_partitions: bool = _setting(
        "cpuPartitions", True, _flag, "Keep host processes off exclusive CPUs, where the kernel can (Linux 6.7)."
    )
    memory_policy: MemoryPolicy = _setting(
        "memoryReservationPolicy", MemoryPolicy.RESERVE, read.one_of(MemoryPolicy), "How requests protect memory."
    )
    single_process_oom_kill: bool = _setting(
        "singleProcessOOMKill", False, _flag, "Kill one process that runs out of memory, not its container (cgroup v2)."
    )
    throttling_factor: float = _setting("memoryThrottlingFactor", 0.9, read.factor, "Where memory.high stands.")
    # Pressure
    eviction_hard: Mapping[str, str] = _setting(
        "evictionHard", dict(HARD_DEFAULTS), read.signals, "Evict at once below these."
    )
    eviction_soft: Mapping[str, str] = _setting("evictionSoft", {}, read.signals, "Evict below these after a while.")
    eviction_soft_grace: Mapping[str, float] = _setting(
        "evictionSoftGracePeriod", {}, read.grace_periods, "How long a soft threshold may be crossed."
    )
    eviction_minimum_reclaim: Mapping[str, str] = _setting(
        "evictionMinimumReclaim", {}, read.minimum_reclaims, "How much is to be freed beyond a threshold."
    )
    eviction_transition: float = _setting(
        "evictionPressureTransitionPeriod", 300.0, _duration, "How long a pressure condition outlives its cause."
    )
    eviction_max_pod_grace: int = _setting(
        "evictionMaxPodGracePeriod", 0, _count, "Most seconds a pod gets to end at a soft threshold."
    )
    eviction_ranking: Ranking = _setting(
        "evictionRanking", Ranking.QOS, read.one_of(Ranking), "Order of eviction: by QoS class, or as upstream."
    )
    image_gc_high: int = _setting(
        "imageGCHighThresholdPercent", 85, _percent, "Remove unused images when the disk is this full; 100 does not.",
        option="image-gc-high-threshold",
    )  # fmt: skip
    image_gc_low: int = _setting(
        "imageGCLowThresholdPercent", 80, _percent, "Remove them until it is down to this.",
        option="image-gc-low-threshold",
    )  # fmt: skip
    image_minimum_age: float = _setting(
        "imageMinimumGCAge", 120.0, _duration, "An unused image stays at least this long.",
        option="minimum-image-ttl-duration",
    )  # fmt: skip
    image_maximum_age: float = _setting(
        "imageMaximumGCAge", 0.0, _duration, "An unused image goes after this long; 0 keeps it while there is room."
    )
    housekeeping_interval: float = _setting("housekeepingInterval", 10.0, _period, "How often usage is looked at.")
    # Plugins; a folder that is not set lies in stateDir
    plugin_registration_dir: Path = _setting(
        "pluginRegistrationDir", Path(REGISTRY), _path, "Folder where plugins register."
    )
    qrm_plugin_dir: Path = _setting(
        "qosResourcePluginDir", Path("resource-plugins"), _path, "Folder of resource plugins (KEP-3461)."
    )
    qrm_reconcile_period: float = _setting(
        "qosResourceManagerReconcilePeriod", 3.0, _period, "How often resource plugins are asked for changes."
    )
    qrm_names: Mapping[str, str] = _setting(
        "qosResourceManagerResourceNamesMap", {}, read.texts, "Resource names of pods, and what plugins call them."
    )
    qrm_expected: tuple[str, ...] = _setting(
        "qosResourcePlugins", (), read.names, "Resources whose plugins pods wait for rather than run without them."
    )
    cci_driver_wait: float = _setting(
        "cciDriverWaitPeriod", 300.0, _duration, "How long a claim waits for its driver (KEP-3675)."
    )
    cci_call_timeout: float = _setting(
        "cciCallTimeout", 2.0, _period, "How long a compute driver may take for one call."
    )
    cci_several_drivers: bool = _setting(
        "cciSeveralDrivers", False, _flag, "Let several compute drivers register; the claim's class chooses."
    )
    cci_thread_granularity: bool = _setting(
        "cciThreadGranularity", False, _flag, "Let EXCLUSIVE own single threads instead of full cores."
    )
    cci_standard_minimum: int = _setting(
        "cciStandardMinimumCPUs", 1, read.whole(1, 4096), "CPUs that claims leave to pods without claims."
    )
    cci_fallback: bool = _setting(
        "cciBestEffortFallback", False, _flag, "Run pods without their claim when the driver is gone (KEP-3675, Alpha)."
    )
    pod_resources_socket: Path = _setting(
        "podResourcesSocket", Path("pod-resources/kubelet.sock"), _path, "Socket of the Pod Resources API."
    )
    # Serving and reporting
    address: str = _setting("address", "127.0.0.1", _text, "Where logs, exec and metrics are served.")
    port: int = _setting("port", 10250, read.whole(0, 65535), "Port of that; 0 takes any free one.")
    node_status_period: float = _setting("nodeStatusUpdateFrequency", 10.0, _period, "How often status is looked at.")
    lease_seconds: int = _setting("nodeLeaseDurationSeconds", 40, read.whole(1, 3600), "Life of the node's lease.")

    given_at: Mapping[str, str] = field(default_factory=dict)

    def thresholds(self) -> list[Threshold]:
        """When the node is short of something."""
        return thresholds(
            self.eviction_hard, self.eviction_soft, self.eviction_soft_grace, self.eviction_minimum_reclaim
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings, for help texts and flags; `also` is a second name of the flag."""

    name: str
    key: str
    flag: str
    also: str
    about: str
    default: Any
    read: read.Reader[Any]


SETTINGS: Mapping[str, Setting] = {
    each.metadata["key"]: Setting(
        each.name,
        each.metadata["key"],
        each.metadata["flag"],
        each.metadata["also"],
        each.metadata["about"],
        None if each.default is dataclasses.MISSING else each.default,
        each.metadata["read"],
    )
    for each in dataclasses.fields(NodeConfiguration)
    if each.metadata
}
_BY_FLAG = {setting.flag: setting for setting in SETTINGS.values()}


def load(path: Path | None = None, flags: Mapping[str, str] | None = None) -> NodeConfiguration:
    """The configuration of a node from its file, if any, and its flags (`{"max-pods": "20"}`)."""
    doc = read_document(path, "node configuration") if path is not None else parse_document("{}", "flags")
    return configure(doc, flags or {}, has_file=path is not None)


def configure(
    doc: Doc, flags: Mapping[str, str], *, has_file: bool = True, beneath: Doc | None = None
) -> NodeConfiguration:
    """The configuration that a document and flags make together, or the first thing that is wrong with them.

    `beneath`: what holds where the document says nothing; a gate that it does not name is as there.
    """
    given = doc.fields(("apiVersion", "kind", *SETTINGS))
    if has_file:
        check_kind(doc, given, API_VERSION, KIND)
    chosen = {key: child for key, child in given.items() if key in SETTINGS and not child.is_null}
    for key, child in beneath.items().items() if beneath is not None else ():
        # A gate that is not named is as it was; any other setting is said as a whole.
        chosen[key] = chosen[key].over(child) if key == "featureGates" and key in chosen else chosen.get(key, child)
    for name, text in flags.items():
        setting = _BY_FLAG[name]
        chosen[setting.key] = Doc.of({setting.key: text}, f"--{name}").items()[setting.key]
    values, places = _read_all(chosen)
    made = _with_defaults(NodeConfiguration(**values, given_at=places), chosen)
    _check_thresholds(made)
    refuse_conflicts(made)
    return made


def _read_all(chosen: Mapping[str, Doc]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, doc in chosen.items():
        setting = SETTINGS[key]
        values[setting.name] = setting.read(doc)
        places[key] = _place(doc)
        if doc.is_mapping:
            places |= {f"{key}.{name}": _place(child) for name, child in doc.items().items()}
    return values, places


def _place(doc: Doc) -> str:
    """Where a setting stands and what it says: `node.yaml:14  topologyManagerPolicy: none`."""
    if doc.is_mapping or doc.is_list:
        return doc.where
    return f"{doc.where}: {doc.text()}" if not doc.source.startswith("--") else f"{doc.source}={doc.text()}"


def _with_defaults(made: NodeConfiguration, chosen: Mapping[str, Doc]) -> NodeConfiguration:
    """Let the profile and the state folder speak where neither file nor flag has."""
    changes: dict[str, Any] = {}
    for key, value in PROFILES[made.profile].items():
        setting = SETTINGS[key]
        if key == "featureGates":
            own = {name: child.boolean() for name, child in read.members(chosen[key]).items()} if key in chosen else {}
            changes[setting.name] = FeatureGates.default().set({**value, **own})
        elif key not in chosen:
            changes[setting.name] = setting.read(Doc.of({key: value}, f"--profile={made.profile}").items()[key])
    for key in ("pluginRegistrationDir", "qosResourcePluginDir", "podResourcesSocket"):
        if key not in chosen:
            name = SETTINGS[key].name
            changes[name] = made.state_dir / getattr(made, name)
    return dataclasses.replace(made, **changes)


def _check_thresholds(made: NodeConfiguration) -> None:
    try:
        made.thresholds()
    except ConfigurationError as error:
        key, _, rest = error.what.partition(" ")
        signal = rest.partition(" ")[0].rstrip(":")
        where = made.given_at.get(f"{key}.{signal}") or made.given_at.get(key)
        raise ConfigurationError(f"node configuration: {error.what}", where=where, remedy=error.remedy) from error
