"""Nodes of `kubeqos up` are configured as any other node is: what a profile means is said once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeqos.cluster.clusterfile import NodePlan, default_plan, fleet_plan
from kubeqos.cluster.nodes import configuration
from kubeqos.cluster.pluginprocesses import config_text
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


def test_without_reserved_cpus_none_can_be_owned() -> None:
    config = configuration(NodePlan("n", laptop8(), reserved_cpus=NO_CPUS), STATE, SOCKETS)
    assert config.cpu_manager_policy == "none" and config.topology_policy is Policy.BEST_EFFORT


@pytest.mark.parametrize("endpoint", ["/run/x.sock", "unix:///run/x.sock"])
def test_this_machine_leaves_its_cgroups_to_the_runtime(endpoint: str) -> None:
    config = configuration(NodePlan("me", laptop8(), endpoint=endpoint), STATE, SOCKETS)
    assert config.runtime_endpoint == "unix:///run/x.sock" and not config.cgroups_per_qos


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
    config = msgspec.yaml.decode(config_text(("plugin", "cpu"), plan), type=CpuConfig)
    assert initial_pools(plan.machine, config).reserved == plan.reserved_cpus
    assert "reserved" not in config_text(("plugin", "cpu"), NodePlan("n", kep80(), "qrm"))
