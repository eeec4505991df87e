"""The cgroup driver follows the runtime; where its owner says otherwise, the node says what to set."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.document import Doc
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import assemble
from kubeqos.node.config.configuration import NodeConfiguration, configure
from kubeqos.node.config.driver import detected, mismatch
from kubeqos.node.config.settings import NodeSettings


class Slices(SimulatedRuntime):
    """A runtime with systemd's cgroups."""

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.SYSTEMD))


class Silent(SimulatedRuntime):
    """A runtime that does not know the question, as containerd 1.6."""

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        raise CallError("RuntimeConfig", Code.UNIMPLEMENTED, "unknown method", endpoint="simulated")


def configuration(**said: str) -> NodeConfiguration:
    endpoint = {"containerRuntimeEndpoint": "unix:///run/x.sock"}
    return configure(Doc.of({**endpoint, **said}, "node.yaml"), {}, has_file=False)


@pytest.mark.parametrize(
    ("runtime", "said", "driver"),
    [
        (Slices, {}, "systemd"),
        (Silent, {}, "cgroupfs"),
        (SimulatedRuntime, {}, "cgroupfs"),
        (Slices, {"cgroupDriver": "cgroupfs"}, "cgroupfs"),
    ],
)
async def test_the_driver_is_the_runtimes_unless_it_is_named(
    runtime: type[SimulatedRuntime], said: dict[str, str], driver: str
) -> None:
    assert (await detected(configuration(**said), runtime(laptop8()))).cgroup_driver == driver


@pytest.mark.parametrize(("runtime", "ready"), [(Slices, False), (Silent, True), (SimulatedRuntime, True)])
async def test_a_node_with_another_driver_than_its_runtime_is_not_ready(
    tmp_path: Path, runtime: type[SimulatedRuntime], ready: bool
) -> None:
    agent = NodeAgent(assemble(NodeSettings("n1", tmp_path), runtime(laptop8()), laptop8()))
    await agent.refresh_runtime()
    told = agent.node.runtime.problem
    assert (told == "") is ready
    assert ready or told == mismatch("cgroupfs", "systemd")
    assert ready or "set cgroupDriver: systemd" in told
