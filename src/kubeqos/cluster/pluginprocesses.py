"""Resource plugins and compute drivers of a simulated node, each as a process of its own, as on a real node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO

from kubeqos.cluster.clusterfile import NodePlan
from kubeqos.cluster.programs import PLUGIN, Program
from kubeqos.model.hardware.machinefile import machine_to_yaml
from kubeqos.plugins import REGISTRY

_STOP_SECONDS = 5.0
_MACHINE = "machine.yaml"
EXEC = "--exec"
"""For `cli.child`: what follows is a command of its own, and not one of kubeqos."""

# KEP-3461, Example 1: online services and offline jobs in pools of their own; what has no role shares the rest.
CPU_CONFIG = """
pools:
  online: {size: 16}
  offline: {size: 4}
roles:
  online-micro_service: {pool: online}
  ETL: {pool: offline}
"""
# Those who are placed by their role are placed near a NIC; nobody else waits for that plugin.
NIC_CONFIG = """
roles: [online-micro_service, ETL]
"""
CONFIGS: Mapping[str, str] = {"cpu": CPU_CONFIG, "nic": NIC_CONFIG}
"""Of the built-in plugins, where the owner of the node gives none."""


@contextlib.asynccontextmanager
async def plugin_processes(plan: NodePlan, state: Path, sockets: Path) -> AsyncIterator[None]:
    """Run a node's plugins and drivers for the duration of a block; one that dies is started again."""
    (state / _MACHINE).write_text(machine_to_yaml(plan.machine))
    keepers = [
        asyncio.create_task(_keep(program, plan, state, sockets), name=f"{plan.name} {program.label}")
        for program in plan.beside
    ]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


def config_text(program: Program, plan: NodePlan) -> str:
    """A built-in plugin's configuration. The CPU plugin keeps off the CPUs that the node's agent reserves, too."""
    reserved = f'reserved: "{plan.reserved_cpus}"' if program.name == "cpu" and plan.reserved_cpus else ""
    return reserved + CONFIGS[program.name]


def command(program: Program, plan: NodePlan, state: Path, sockets: Path) -> list[str]:
    """The words after `kubeqos.cli.child`, which ties the program to the life of the cluster."""
    machine, registry = state / _MACHINE, sockets / REGISTRY
    own = state / f"{program.name}_{program.kind}_state"
    if program.command:
        return [EXEC, *program.words(registry, machine, own)]
    options = ["--machine", str(machine), "--registry", str(registry)]
    if program.kind == PLUGIN:
        options += ["--state", str(own)]
        if program.config is not None:
            options += ["--config", str(program.config)]
        elif program.name in CONFIGS:
            config = state / f"{program.label}.yaml"
            config.write_text(config_text(program, plan))
            options += ["--config", str(config)]
    return [program.kind, program.name, *options]


async def _keep(program: Program, plan: NodePlan, state: Path, sockets: Path) -> None:
    """Keep one program running; its output goes to a log beside the node's state."""
    words = command(program, plan, state, sockets)
    pause = 0.5
    while True:
        with _log(state, program) as log:
            # In a session of its own: Ctrl-C is for the cluster, which ends its plugins last.
            process = await asyncio.create_subprocess_exec(
                # -P: what lies in the folder of somebody's plugin is none of our modules.
                *(sys.executable, "-P", "-m", "kubeqos.cli.child", str(os.getpid()), *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=program.folder,
                start_new_session=True,
            )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(_STOP_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
        await asyncio.sleep(pause)
        pause = min(pause * 2, 30.0)


def _log(state: Path, program: Program) -> BinaryIO:
    return open(state / f"{program.label}.log", "ab")
