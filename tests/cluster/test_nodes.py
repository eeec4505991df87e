"""Nodes of `kubeqos up` are configured as any other node is: what a profile means is said once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeqos.cluster.clusterfile import (
    FIELDS,
    NODE_FIELDS,
    SERVER_GATES,
    ClusterPlan,
    NodePlan,
    beside_simulated,
    default_plan,
    fleet_plan,
    load_plan,
    local_node,
    with_programs,
)
from kubeqos.cluster.nodes import configuration
from kubeqos.cluster.pluginprocesses import command, config_text
from kubeqos.cluster.programs import from_option
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI, QRM, FeatureGates
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.named import kep80, laptop8
from kubeqos.node.api.nodestatus import allocatable
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.config.configured import node_settings, qrm_settings, service_settings
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.config.settings import NodeSettings
from kubeqos.qrm.plugins.cpu.config import CpuConfig, initial_pools
from kubeqos.topology.alignment.hints import Policy

STATE, SOCKETS = Path("/state"), Path("/sockets")


@pytest.mark.parametrize("plan", default_plan().nodes, ids=lambda plan: plan.profile)
def test_what_each_profile_means_for_the_agent(plan: NodePlan) -> None:
    """DESIGN ruling 13: one node of each profile, with classes on."""
    config = configuration(plan, STATE, SOCKETS)
    gates = {"QOSResources": True, "TranslateQoSPodMetadata": True}
    gates |= {QRM: plan.profile == "qrm", CCI: plan.profile == "cci"}
    assert node_settings(config, plan.machine) == NodeSettings(
        plan.name,
        STATE,
        log_dir=STATE / "pods",
        gates=FeatureGates.default().set(gates),
        profile=plan.profile,
        reserved_cpus=plan.reserved_cpus,
        cpu_manager_policy="static" if plan.profile == "default" else "none",
        topology_policy=Policy.NONE if plan.profile == "cci" else Policy.BEST_EFFORT,
    )
    assert service_settings(config, None) == ServiceSettings(pod_resources_socket=SOCKETS / "pod-resources.sock")
    assert qrm_settings(config).expected == ({"cpu", "memory"} if plan.profile == "qrm" else set())


@pytest.mark.parametrize("drivers", [("reference",), ("reference", "power")], ids=len)
def test_whoever_starts_several_drivers_may_use_them(drivers: tuple[str, ...]) -> None:
    programs = tuple(from_option("driver", name, Path()) for name in drivers)
    config = configuration(NodePlan("n", kep80(), "cci", programs=programs), STATE, SOCKETS)
    assert config.cci_several_drivers == (len(drivers) > 1)


def test_without_reserved_cpus_none_can_be_owned() -> None:
    config = configuration(NodePlan("n", laptop8(), reserved_cpus=NO_CPUS), STATE, SOCKETS)
    assert config.cpu_manager_policy == "none" and config.topology_policy is Policy.BEST_EFFORT


@pytest.mark.parametrize("endpoint", ["/run/x.sock", "unix:///run/x.sock"])
def test_this_machine_is_a_node_like_any_other(endpoint: str) -> None:
    plan = NodePlan("me", laptop8(), endpoint=endpoint)
    config = configuration(plan, STATE, SOCKETS)
    assert config.runtime_endpoint == "unix:///run/x.sock" and config.cgroups_per_qos and config.taints == ()
    beside = beside_simulated(ClusterPlan((plan, NodePlan("other", laptop8()))))
    taints = [one["key"] for one in configuration(beside.nodes[0], STATE, SOCKETS).taints]
    assert taints == ["kubeqos.io/real-machine"] and not beside.nodes[1].taints
    assert beside_simulated(ClusterPlan((plan,))).nodes[0].taints == ()  # somebody must run the pods


HEAD = "apiVersion: kubeqos.io/v1alpha1\nkind: "


def cluster(tmp_path: Path, nodes: str) -> list[NodePlan]:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"{HEAD}ClusterConfiguration\nnodes:\n{nodes}")
    return list(load_plan(path).nodes)


def test_a_real_node_in_the_file_of_a_cluster_is_told_everything_a_node_can_be_told(tmp_path: Path) -> None:
    text = """
- name: here
  runtime: unix:///run/x.sock
  reservedCPUs: 0
  labels: {tier: gold}
  settings:
    cgroupDriver: systemd
    cgroupRoot: /mine
    topologyManagerPolicy: none
    registerWithTaints: []
    featureGates: {MemoryQoS: false}
- {name: other, machine: laptop8, settings: {maxPods: 7}}
"""
    here, other = cluster(tmp_path, text)
    config = configuration(beside_simulated(ClusterPlan((here, other))).nodes[0], STATE, SOCKETS)
    assert config.runtime_endpoint == "unix:///run/x.sock" and config.cgroups_per_qos
    assert (config.cgroup_driver, config.cgroup_root, config.taints) == ("systemd", "/mine", ())
    assert config.topology_policy is Policy.NONE and config.cpu_manager_policy == "static"
    assert config.node_labels == {"tier": "gold"} and str(config.reserved_cpus) == "0"
    assert config.gates.enabled("QOSResources") and not config.gates.enabled("MemoryQoS")
    assert here.machine.name == "here" and here.machine.online
    assert configuration(other, STATE, SOCKETS).max_pods == 7


@pytest.mark.parametrize(
    ("nodes", "what", "remedy"),
    [
        ("- {name: a, runtime: /x, machine: tiny2}", "machine of a node with a runtime", "remove machine"),
        ("- {name: a, runtime: /x, count: 2}", "count of a node with a runtime must be 1", "remove count"),
        ("- {name: a, machine: tiny2, settings: {maxPod: 1}}", "unknown key", "did you mean 'maxPods'?"),
        ("- {name: a, machine: tiny2, settings: {profile: qrm}}", "told this elsewhere", "the key profile"),
        ("- {name: a, machine: tiny2, settings: {stateDir: /x}}", "keep this in its data directory", "--data-dir"),
        ("- {name: a, machine: tiny2, plugins: [cpu]}", "profile default has no plugins", "set profile: qrm"),
        ("- {name: a, machine: tiny2, profile: cci, drivers: [fast]}", "fast", "hpc"),
        ("- {name: a, machine: tiny2, profile: qrm, plugins: [cpu, cpu]}", "two plugins are called 'cpu'", "own name"),
        ("- {name: a, machine: tiny2, profile: qrm, plugins: [{name: x, command: []}]}", "needs a program", "name it"),
        (
            "- {name: a, machine: tiny2, profile: qrm, plugins: [{name: cpu, config: no}]}",
            "there is no file",
            "relative",
        ),
        ("- {name: a, runtime: /x}\n- {name: b, runtime: /y}", "would keep the same cgroups", "its own cgroupRoot"),
    ],
)
def test_what_a_cluster_cannot_be_told_about_a_node(tmp_path: Path, nodes: str, what: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        cluster(tmp_path, nodes)
    assert remedy in str(caught.value.remedy) and "cluster.yaml" in str(caught.value.where)


def test_this_machine_follows_a_node_configuration(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    text = "profile: qrm\nreservedSystemCPUs: 0\nnodeLabels: {a: b}\ncgroupRoot: /mine\n"
    path.write_text(f"{HEAD}NodeConfiguration\n{text}")
    plan = local_node("/run/x.sock", path)
    config = configuration(plan, STATE, SOCKETS)
    assert (plan.profile, str(plan.reserved_cpus)) == ("qrm", "0") == (config.profile, str(config.reserved_cpus))
    assert config.cgroup_root == "/mine" and config.node_labels == {"a": "b"}
    assert config.gates.enabled(QRM) and config.gates.enabled("QOSResources")
    path.write_text(f"{HEAD}NodeConfiguration\nstateDir: /x\n")
    with pytest.raises(ConfigurationError, match="keep this in its data directory"):
        local_node("/run/x.sock", path)


def test_reserved_cpus_that_the_machine_does_not_have_are_refused_with_their_place(tmp_path: Path) -> None:
    config = configuration(NodePlan("n", laptop8(), reserved_cpus=CpuSet.parse("7-9")), tmp_path, SOCKETS)
    with pytest.raises(ConfigurationError, match="CPUs that this machine does not have online: 8-9") as caught:
        node_parts(config, SimulatedRuntime(laptop8()), laptop8(), Hosting())
    assert "node n" in str(caught.value.where)


@pytest.mark.parametrize("plan", [*default_plan().nodes, *fleet_plan(2).nodes], ids=lambda plan: plan.name)
def test_reserved_cpus_of_every_node_of_up_leave_allocatable(plan: NodePlan) -> None:
    settings = node_settings(configuration(plan, STATE, SOCKETS), plan.machine)
    given = allocatable(plan.machine, settings)["cpu"].value()
    assert given == len(plan.machine.online) - len(plan.reserved_cpus)


def test_the_cpu_plugin_keeps_off_the_cpus_that_its_node_reserves() -> None:
    plan = NodePlan("n", kep80(), "qrm", reserved_cpus=CpuSet.parse("0-1"))
    cpu = plan.beside[0]
    config = msgspec.yaml.decode(config_text(cpu, plan), type=CpuConfig)
    assert initial_pools(plan.machine, config).reserved == plan.reserved_cpus
    assert "reserved" not in config_text(cpu, NodePlan("n", kep80(), "qrm"))


def test_plugins_and_drivers_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "cpu.yaml").write_text("{}")
    text = """
- {name: a, machine: kep80, profile: qrm, plugins: [{name: cpu, config: cpu.yaml}, {name: gpu, command: [./gpu, -x]}]}
- {name: b, machine: kep80, profile: cci, drivers: [hpc, {name: own, command: [d, "--to={registry}", "{machine}"]}]}
- {name: c, machine: kep80, profile: qrm}
- {name: d, machine: kep80, profile: qrm, plugins: []}
"""
    a, b, c, d = cluster(tmp_path, text)
    assert [one.label for one in (*a.beside, *b.beside)] == ["plugin-cpu", "plugin-gpu", "driver-hpc", "driver-own"]
    assert [one.name for one in c.beside] == ["cpu", "memory", "nic"] and not d.beside
    assert command(a.beside[0], a, STATE, SOCKETS)[-2:] == ["--config", str(tmp_path / "cpu.yaml")]
    assert command(a.beside[1], a, STATE, SOCKETS) == ["--exec", "./gpu", "-x", "/sockets/plugins_registry"]
    assert a.beside[1].folder == tmp_path
    words = ["--exec", "d", "--to=/sockets/plugins_registry", "/state/machine.yaml"]
    assert command(b.beside[1], b, STATE, SOCKETS) == words
    assert qrm_settings(configuration(a, STATE, SOCKETS)).expected == {"cpu"}  # nobody waits for one that is not ours
    assert qrm_settings(configuration(d, STATE, SOCKETS)).expected == set()


def test_options_add_plugins_to_nodes_of_their_profile() -> None:
    own = from_option("plugin", "python3 my_plugin.py", Path("/here"))
    assert (own.name, own.command, own.folder) == ("my-plugin", ("python3", "my_plugin.py"), Path("/here"))
    qrm, cci, hybrid = with_programs(default_plan(), [own, from_option("driver", "power", Path())]).nodes
    assert [one.name for one in qrm.beside] == ["cpu", "memory", "nic", "my-plugin"]
    assert [one.name for one in cci.beside] == ["reference", "power"] and not hybrid.beside
    with pytest.raises(ConfigurationError, match="no node of this cluster has the profile qrm"):
        with_programs(fleet_plan(2), [own])


CLUSTER = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
featureGates: {QOSResources: false, MemoryQoS: false}
scheduler: {profiles: [{weights: {mostAllocated: true, classes: 7}}, {schedulerName: second}]}
settings: {maxPods: 30, evictionHard: {memory.available: 10%}, featureGates: {TranslateQoSPodMetadata: false}}
nodes:
- {name: a, machine: tiny2}
- {name: b, machine: laptop8, settings: {maxPods: 7, featureGates: {MemoryQoS: true}}}
"""


@pytest.fixture
def described(tmp_path: Path) -> ClusterPlan:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return load_plan(tmp_path / "cluster.yaml")


def test_a_file_sets_the_scheduler_and_gates_of_every_part(described: ClusterPlan) -> None:
    assert [(one.scheduler_name, one.weights.classes, one.weights.most_allocated) for one in described.profiles] == [
        ("default-scheduler", 7, True),
        ("second", 2, False),
    ]
    server = SERVER_GATES.set(described.gates)
    # What cannot do without a feature that is off is off as well, and nobody need say so.
    assert not any(
        map(server.enabled, ("QOSResources", "TranslateQoSPodMetadata", "QOSResourcesStrictNames", "MemoryQoS"))
    )
    assert server.enabled("CCIResourceManager")


def test_settings_of_all_nodes_hold_where_a_node_says_nothing_else(described: ClusterPlan) -> None:
    a, b = (configuration(node, STATE, SOCKETS, described.gates) for node in described.nodes)
    assert (a.max_pods, b.max_pods) == (30, 7)
    assert a.eviction_hard["memory.available"] == b.eviction_hard["memory.available"] == "10%"
    assert (a.gates.enabled("MemoryQoS"), b.gates.enabled("MemoryQoS")) == (False, True)
    assert not a.gates.enabled("QOSResources") and not b.gates.enabled("QOSResources")


def test_gates_that_belong_to_a_profile_stay_with_it() -> None:
    config = configuration(default_plan().nodes[0], STATE, SOCKETS, {QRM: False, "MemoryQoS": False})
    assert config.gates.enabled(QRM) and not config.gates.enabled("MemoryQoS")


def test_every_field_that_is_documented_is_read_and_the_other_way_round(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cluster-file.md").read_text()
    assert all(f"| `{key}` |" in page for key in (*FIELDS, *NODE_FIELDS))
    (tmp_path / "c.yaml").write_text(CLUSTER.replace("scheduler:", "schedulr:"))
    with pytest.raises(ConfigurationError, match="unknown key"):
        load_plan(tmp_path / "c.yaml")
