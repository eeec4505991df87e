"""A node's configuration: what is read, what overrides what, and what refuses to start."""

# ruff: noqa: E501 - the lines that users read stand here as they are printed
from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.document import parse_document
from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI, QRM, FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import MACHINES, laptop8
from kubeqos.node.api.nodestatus import allocatable, texts
from kubeqos.node.config.assembly import Hosting, cpu_manager, node_parts
from kubeqos.node.config.checks import refuse_machine
from kubeqos.node.config.configuration import SETTINGS, NodeConfiguration, configure, load
from kubeqos.node.config.configured import node_settings
from kubeqos.node.config.settings import NodeSettings
from kubeqos.rules.qos.eviction import Ranking
from kubeqos.topology.alignment.hints import Policy

HEAD = "apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\n"


def node(text: str = "", **flags: str) -> NodeConfiguration:
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    return configure(parse_document(HEAD + text, "node.yaml"), given)


def refusal(text: str = "", **flags: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        node(text, **flags)
    return caught.value.lines()


FULL = """\
nodeName: n1
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "true"}
reservedSystemCPUs: 0-1,40
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
kubeReserved: {cpu: 500m, memory: 1Gi}
evictionHard: {memory.available: 5%}
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMinimumReclaim: {memory.available: 200Mi}
evictionRanking: upstream
memoryThrottlingFactor: 0.8
maxPods: 250
staticPodPath: manifests
registerWithTaints: [{key: dedicated, value: hpc, effect: NoSchedule}]
"""


def test_a_full_file_is_read() -> None:
    found = node(FULL)
    assert found.node_name == "n1" and found.max_pods == 250
    assert found.cpu_options.allocation.full_pcpus_only and found.cpu_options.strict_reservation
    assert str(found.reserved_cpus) == "0-1,40"
    assert found.topology_policy is Policy.SINGLE_NUMA_NODE and found.topology_options.prefer_closest_numa
    assert found.kube_reserved["cpu"].milli() == 500
    assert found.eviction_ranking is Ranking.UPSTREAM
    hard, soft = found.thresholds()
    assert (hard.is_hard, hard.minimum.of(1000)) == (True, 50)
    assert (soft.grace_seconds, str(soft.minimum), str(soft.reclaim)) == (90.0, "1Gi", "200Mi")
    assert found.static_pod_path == Path("manifests")
    assert found.taints[0]["key"] == "dedicated"


def test_flags_override_the_file_and_the_file_the_profile() -> None:
    found = node("maxPods: 10\nprofile: qrm\ntopologyManagerPolicy: restricted\n", max_pods="20")
    assert (found.max_pods, found.topology_policy) == (20, Policy.RESTRICTED)
    assert found.gates.enabled(QRM)
    assert node("profile: cci\n").gates.enabled(CCI)
    assert node("profile: qrm\n").topology_policy is Policy.BEST_EFFORT


def test_flags_have_the_forms_of_kubernetes() -> None:
    found = node(
        kube_reserved="cpu=1,memory=2Gi",
        eviction_hard="memory.available<5%,nodefs.available<1Gi",
        reserved_memory="0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=1Gi",
        feature_gates="QOSResources=true",
        reserved_cpus="0-3",
        cpu_cfs_quota="false",
        node_name="me",
        register_with_taints="a=b:NoSchedule,c:NoExecute",
    )
    assert found.kube_reserved["memory"].value() == 2 << 30
    assert found.eviction_hard == {"memory.available": "5%", "nodefs.available": "1Gi"}
    assert found.reserved_memory[0]["hugepages-2Mi"].value() == 2 << 20 and 1 in found.reserved_memory
    assert found.gates.enabled("QOSResources") and len(found.reserved_cpus) == 4
    assert not found.cpu_cfs_quota and found.node_name == "me"
    assert found.taints[1] == {"key": "c", "value": "", "effect": "NoExecute"}


def test_allocatable_leaves_what_is_reserved_and_the_hard_thresholds(tmp_path: Path) -> None:
    """Memory and disk (reference: node allocatable); the disk of a real node is the one that its state is on."""
    text = "kubeReserved: {memory: 1Gi, ephemeral-storage: 1Gi}\nevictionHard: {memory.available: 1Gi, nodefs.available: 20%}\n"
    simulated = node_settings(node(text, simulated_machine="laptop8"), MACHINES["laptop8"]())
    given = texts(allocatable(MACHINES["laptop8"](), simulated))
    assert (given["memory"], given["ephemeral-storage"], given["cpu"]) == ("14Gi", "79Gi", "8")
    real = node(text, container_runtime_endpoint="unix:///run/x.sock", state_dir=str(tmp_path / "not" / "yet"))
    disk = os.statvfs(tmp_path)
    made = node_parts(real, SimulatedRuntime(laptop8()), laptop8(), Hosting())
    assert made.settings.disk_bytes == disk.f_blocks * disk.f_frsize


@pytest.mark.parametrize(
    ("text", "cpu", "owned"),
    [
        ("reservedSystemCPUs: 0-1\n", "6", "2-7"),
        ("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n", "6", "2-7"),
        # As the kubelet's --reserved-cpus: a list overrides amounts.
        ("reservedSystemCPUs: 0-1\nkubeReserved: {cpu: 3}\nsystemReserved: {cpu: 500m}\n", "6", "2-7"),
        ("kubeReserved: {cpu: 500m}\n", "7500m", "0-7"),
        # Amounts round up to whole CPUs that nobody owns; what is left over of those is shared.
        ("cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n", "7500m", "1-7"),
        ("cpuManagerPolicy: static\nkubeReserved: {cpu: 1}\nsystemReserved: {cpu: 100m}\n", "6900m", "2-7"),
    ],
)
def test_reserved_cpus_leave_allocatable_as_they_leave_the_cpu_managers_pool(text: str, cpu: str, owned: str) -> None:
    """A Guaranteed pod that fits by the Node's numbers finds its CPUs: both are told by one function."""
    machine = laptop8()
    settings = node_settings(node(text, simulated_machine="laptop8"), machine)
    given = allocatable(machine, settings)["cpu"]
    assert texts({"cpu": given}) == {"cpu": cpu}
    assert settings.pod_cpus(machine) == CpuSet.parse(owned)
    pool = cpu_manager(settings, machine).free
    assert pool == settings.pod_cpus(machine) and given.milli() // 1000 <= len(pool)


def test_folders_follow_the_state_folder() -> None:
    found = node("stateDir: /x\nqosResourcePluginDir: /y\n")
    assert found.pod_resources_socket == Path("/x/pod-resources/kubelet.sock")
    assert found.qrm_plugin_dir == Path("/y")


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(HEAD + "staticPodPath: pods\n")
    assert load(tmp_path / "node.yaml").static_pod_path == tmp_path / "pods"
    assert load().max_pods == 110


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maxpods: 3\n", ["maxpods: unknown key", "  at  node.yaml:3  maxpods", "  did you mean 'maxPods'?"]),
        (
            "maxPods: many\n",
            ["maxPods: expected a whole number from 1 to 100000, found 'many'", "  at  node.yaml:3  maxPods"],
        ),
        (
            "topologyManagerPolicy: single-numa\n",
            [
                "topologyManagerPolicy: 'single-numa' is none of none, best-effort, restricted, single-numa-node, numeric",
                "  at  node.yaml:3  topologyManagerPolicy",
                "  did you mean 'single-numa-node'?",
            ],
        ),
        (
            "cpuManagerPolicyOptions:\n  full-pcpu-only: true\n",
            [
                "cpuManagerPolicyOptions.full-pcpu-only: unknown option",
                "  at  node.yaml:4  cpuManagerPolicyOptions.full-pcpu-only",
                "  did you mean 'full-pcpus-only'?",
            ],
        ),
        (
            "featureGates: {QoSResourcesManager: true}\n",
            ["featureGates: unrecognized feature gate: QoSResourcesManager"],
        ),
        (
            "evictionSoft: {memory.available: 1Gi}\n",
            [
                "node configuration: evictionSoft memory.available has no grace period",
                "  at  node.yaml:3  evictionSoft.memory.available: 1Gi",
                "  add memory.available to evictionSoftGracePeriod",
            ],
        ),
        (
            "evictionHard:\n  memory.avail: 1Gi\n",
            ["node configuration: evictionHard names an unknown signal 'memory.avail'"],
        ),
        (
            "memoryThrottlingFactor: 1.5\n",
            ["memoryThrottlingFactor: expected a number above 0 and up to 1, found '1.5'"],
        ),
        (
            "kubeReserved: {cpus: 1}\n",
            ["kubeReserved.cpus: cannot be reserved", "  at  node.yaml:3  kubeReserved.cpus", "  did you mean 'cpu'?"],
        ),
        ("registerWithTaints: [{key: a, effect: Sometimes}]\n", ["registerWithTaints[0]: is not a taint"]),
        (
            "reservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n- {numaNode: 0, limits: {memory: 1Gi}}\n",
            ["reservedMemory[1].limits: NUMA node 0 appears twice", "  at  node.yaml:5  reservedMemory[1].limits"],
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, expected: list[str]) -> None:
    assert refusal(text)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "featureGates: {QoSResourceManager: true}\ntopologyManagerPolicy: none\n",
            [
                'node configuration: QoSResourceManager is on, but topologyManagerPolicy is "none"',
                "  at  node.yaml:4  topologyManagerPolicy: none",
                "  set topologyManagerPolicy to best-effort, restricted or single-numa-node, or turn QoSResourceManager off",
            ],
        ),
        (
            "featureGates: {QoSResourceManager: true}\n",
            [
                'node configuration: QoSResourceManager is on, but topologyManagerPolicy is "none"',
                "  at  node.yaml:3  featureGates.QoSResourceManager: true",
            ],
        ),
        (
            "featureGates: {CCIResourceManager: true}\nmemoryManagerPolicy: Static\n",
            [
                'node configuration: CCIResourceManager is on, but memoryManagerPolicy is "Static"',
                "  at  node.yaml:4  memoryManagerPolicy: Static",
            ],
        ),
        (
            "featureGates: {CCIResourceManager: true}\ncpuManagerPolicy: static\n",
            ['node configuration: CCIResourceManager is on, but cpuManagerPolicy is "static"'],
        ),
        (
            "featureGates: {CCIResourceManager: true}\ntopologyManagerPolicy: restricted\n",
            ['node configuration: CCIResourceManager is on, but topologyManagerPolicy is "restricted"'],
        ),
        (
            "featureGates: {CCIResourceManager: true, QoSResourceManager: true}\n",
            [
                "node configuration: QoSResourceManager and CCIResourceManager are both on, but one needs the topology manager "
                "and the other forbids it"
            ],
        ),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: true}\n",
            ['node configuration: cpuManagerPolicyOptions are given, but cpuManagerPolicy is "none"'],
        ),
        (
            "cpuManagerPolicy: static\n",
            ['node configuration: cpuManagerPolicy is "static", but no CPU is reserved for the system'],
        ),
        (
            "memoryManagerPolicy: Static\n",
            [
                'node configuration: memoryManagerPolicy is "Static", but reservedMemory says for no NUMA node what the system keeps'
            ],
        ),
        ("classesFile: classes.yaml\n", ["node configuration: classesFile is set, but the gate QOSResources is off"]),
        (
            "featureGates: {QOSResources: true}\nclassesFile: c.yaml\ncontainerRuntimeEndpoint: unix:///c.sock\n",
            ["node configuration: classesFile is set, but containerRuntimeEndpoint names a real runtime"],
        ),
        (
            "simulatedMachine: kep80\ncontainerRuntimeEndpoint: unix:///c.sock\n",
            ["node configuration: simulatedMachine and containerRuntimeEndpoint are both set"],
        ),
        (
            "featureGates: {MemoryQoS: false}\nmemoryReservationPolicy: TieredReservation\n",
            ['node configuration: memoryReservationPolicy is "TieredReservation", but the gate MemoryQoS is off'],
        ),
    ],
)
def test_settings_that_contradict_each_other_refuse_to_start(text: str, expected: list[str]) -> None:
    assert refusal(text)[: len(expected)] == expected


PAIRS = [
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_cpu_options_that_exclude_each_other(one: str, other: str) -> None:
    text = (
        f"cpuManagerPolicy: static\nreservedSystemCPUs: 0\ncpuManagerPolicyOptions:\n  {other}: true\n  {one}: true\n"
    )
    what, where, remedy = refusal(text)
    assert what == f"node configuration: cpuManagerPolicyOptions: {one}: cannot be combined with {other}"
    assert where == f"  at  node.yaml:7  cpuManagerPolicyOptions.{one}: true"
    assert remedy == "  turn one of them off"


def test_align_by_socket_excludes_single_numa_node() -> None:
    text = "cpuManagerPolicy: static\nreservedSystemCPUs: 0\ntopologyManagerPolicy: single-numa-node\n"
    assert (
        "align-by-socket cannot be combined" in refusal(text + "cpuManagerPolicyOptions: {align-by-socket: true}\n")[0]
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "imageGCHighThresholdPercent: 70\n",
            "imageGCLowThresholdPercent is 80, which is not below imageGCHighThresholdPercent 70",
        ),
        (
            "imageMaximumGCAge: 1m\n",
            "imageMaximumGCAge is 60 s, which is not above imageMinimumGCAge 120 s",
        ),
    ],
)
def test_images_cannot_go_before_they_may(text: str, what: str) -> None:
    told, where, _remedy = refusal(text)
    assert told == f"node configuration: {what}" and where.startswith("  at  node.yaml:3  image")


def test_settings_made_in_code_are_refused_by_the_same_rules() -> None:
    """Whatever a file is refused for, an agent that is made without one is refused for too, in the same words."""
    for text, settings in (
        ("featureGates: {QoSResourceManager: true}\n", {"gates": FeatureGates.default().set({QRM: True})}),
        ("cpuManagerPolicy: static\n", {"cpu_manager_policy": "static"}),
        (
            "featureGates: {CCIResourceManager: true}\nmemoryManagerPolicy: Static\n",
            {"gates": FeatureGates.default().set({CCI: True}), "memory_manager_policy": "Static"},
        ),
    ):
        with pytest.raises(ConfigurationError) as caught:
            NodeSettings("n1", Path("/x"), **settings).check()  # type: ignore[arg-type]
        assert caught.value.what == refusal(text)[0]


def test_a_flag_in_a_conflict_is_shown_as_it_was_given() -> None:
    _, where, _ = refusal(
        "topologyManagerPolicy: none\n", feature_gates="QoSResourceManager=true", topology_manager_policy="none"
    )
    assert where == "  at  --topology-manager-policy=none"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("reservedSystemCPUs: 78-81\n", "reservedSystemCPUs names CPUs that this machine does not have online: 80-81"),
        ("reservedMemory: [{numaNode: 7, limits: {memory: 1Gi}}]\n", "reservedMemory names NUMA node 7"),
        (
            "memoryManagerPolicy: Static\nkubeReserved: {memory: 1Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
            "reservedMemory adds up to 1Gi, but kubeReserved + systemReserved + evictionHard memory.available are 1124Mi",
        ),
    ],
)
def test_settings_that_the_machine_cannot_follow(text: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        refuse_machine(node(text), MACHINES["kep80"]())
    assert what in caught.value.what and "node.yaml:" in (caught.value.where or "")


def test_the_machine_accepts_settings_that_fit() -> None:
    text = "memoryManagerPolicy: Static\nkubeReserved: {memory: 1Gi}\n"
    text += "reservedMemory: [{numaNode: 0, limits: {memory: 512Mi}}, {numaNode: 1, limits: {memory: 612Mi}}]\n"
    refuse_machine(node(text), MACHINES["kep80"]())


def test_every_setting_has_one_flag_and_a_help_text() -> None:
    flags = [setting.flag for setting in SETTINGS.values()]
    assert len(set(flags)) == len(flags)
    assert all(setting.about.endswith(".") for setting in SETTINGS.values())
    assert (
        SETTINGS["cpuCFSQuota"].flag == "cpu-cfs-quota"
        and SETTINGS["memoryManagerPolicy"].flag == "memory-manager-policy"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("qosResourceManagerReconcilePeriod", "0s"),
        ("qosResourceManagerReconcilePeriod", "0"),
        ("qosResourceManagerReconcilePeriod", "-3s"),
        ("qosResourceManagerReconcilePeriod", "1us"),
        ("nodeStatusUpdateFrequency", "0s"),
        ("housekeepingInterval", "0s"),
        ("cciCallTimeout", "0s"),
        ("cciDriverWaitPeriod", "-1s"),
        ("cpuCFSQuotaPeriod", "0s"),
        ("cpuCFSQuotaPeriod", "2s"),
        ("evictionPressureTransitionPeriod", "-1m"),
    ],
)
def test_a_period_without_end_or_beginning_is_a_mistake(setting: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configure(parse_document(f"{HEAD}{setting}: {value}", "node.yaml"), {})
    assert setting in str(caught.value.where) and caught.value.remedy
