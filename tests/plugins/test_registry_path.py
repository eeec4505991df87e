"""Where plugins and drivers register: a node, the SDKs and the commands agree, if nobody says anything."""

from __future__ import annotations

import inspect
from pathlib import Path

import click
import pytest

from kubeqos.cci import sdk as cci_sdk
from kubeqos.cli.extend import driver, plugin
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.config.configuration import load
from kubeqos.plugins import DEFAULT_REGISTRY
from kubeqos.qrm import sdk as qrm_sdk


@pytest.mark.parametrize("profile", ["qrm", "cci"])
def test_a_node_looks_where_everybody_else_registers(tmp_path: Path, profile: str) -> None:
    config = load(None, {"profile": profile, "node-name": "n1", "pod-logs-dir": str(tmp_path)})
    assert config.plugin_registration_dir == DEFAULT_REGISTRY
    told = load(None, {"profile": profile, "node-name": "n1", "state-dir": str(tmp_path)})
    parts = node_parts(told, SimulatedRuntime(laptop8(), logs=False), laptop8(), Hosting())
    assert parts.plugins.folder == tmp_path / DEFAULT_REGISTRY.name


def test_sdks_and_commands_start_from_the_same_folder() -> None:
    commands = {**driver.command.commands, **plugin.command.commands}
    options = {
        f"{name} {option.name}": Path(str(option.default))
        for name, command in commands.items()
        for option in command.params
        if isinstance(option, click.Option) and option.name == "registry"
    }
    assert len(options) >= 8 and set(options.values()) == {DEFAULT_REGISTRY}, options
    for function in (cci_sdk.serve, cci_sdk.keep_serving, qrm_sdk.serve):
        assert Path(inspect.signature(function).parameters["registry"].default) == DEFAULT_REGISTRY
    assert DEFAULT_REGISTRY == cci_sdk.REGISTRY
