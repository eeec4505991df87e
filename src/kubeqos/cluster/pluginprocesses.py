"""Resource plugins and compute drivers of a simulated node, each as a process of its own, as on a real node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from kubeqos.cluster.clusterfile import NodePlan
from kubeqos.model.hardware.machinefile import machine_to_yaml
from kubeqos.plugins import REGISTRY

_STOP_SECONDS = 5.0
_MACHINE = "machine.yaml"

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
CONFIGS: Mapping[tuple[str, ...], str] = {("plugin", "cpu"): CPU_CONFIG, ("plugin", "nic"): NIC_CONFIG}

PROGRAMS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "qrm": (("plugin", "cpu"), ("plugin", "memory"), ("plugin", "nic")),
    "cci": (("driver", "reference"),),
}
"""What runs beside a node of each profile."""


@contextlib.asynccontextmanager
async def plugin_processes(plan: NodePlan, state: Path, sockets: Path) -> AsyncIterator[None]:
    """Run the profile's plugins for the duration of a block; one that dies is started again."""
    (state / _MACHINE).write_text(machine_to_yaml(plan.machine))
    keepers = [
        asyncio.create_task(_keep(words, plan, state, sockets), name=f"{plan.name} {' '.join(words)}")
        for words in PROGRAMS.get(plan.profile, ())
    ]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


def config_text(words: tuple[str, ...], plan: NodePlan) -> str:
    """A program's configuration. The CPU plugin keeps off the CPUs that the node's agent reserves, too."""
    reserved = f'reserved: "{plan.reserved_cpus}"' if words == ("plugin", "cpu") and plan.reserved_cpus else ""
    return reserved + CONFIGS[words]


async def _keep(words: tuple[str, ...], plan: NodePlan, state: Path, sockets: Path) -> None:
    """Keep one program running; its output goes to a log beside the node's state."""
    options = ["--machine", str(state / _MACHINE), "--registry", str(sockets / REGISTRY)]
    if words in CONFIGS:
        config = state / f"{'-'.join(words)}.yaml"
        config.write_text(config_text(words, plan))
        options += ["--config", str(config)]
    if words[0] == "plugin":
        options += ["--state", str(state / f"{words[1]}_plugin_state")]
    pause = 0.5
    while True:
        with _log(state, words) as log:
            # In a session of its own: Ctrl-C is for the cluster, which ends its plugins last.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kubeqos.cli.child", str(os.getpid()), *words, *options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
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


def _log(state: Path, words: tuple[str, ...]) -> BinaryIO:
    return open(state / f"{'-'.join(words)}.log", "ab")
