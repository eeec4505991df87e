"""Which cgroup driver the runtime uses: taken over where nobody names one, compared where somebody does.

A runtime with the other driver cannot make a container where its pod's cgroup is. Called before a node's parts are
built, and by the agent when it meets the runtime.
"""

from __future__ import annotations

import dataclasses

from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.node.config.configuration import NodeConfiguration

_NAMES = {cri.SYSTEMD: "systemd", cri.CGROUPFS: "cgroupfs"}
KEY = "cgroupDriver"


async def driver_of(runtime: Runtime) -> str:
    """What the runtime says it uses; nothing from one that does not say (containerd before 2.0) or does not answer."""
    try:
        answer = await runtime.runtime_config()
    except CallError:
        return ""
    return _NAMES.get(answer.linux.cgroup_driver, "") if answer.HasField("linux") else ""


async def detected(config: NodeConfiguration, runtime: Runtime) -> NodeConfiguration:
    """The configuration with the runtime's driver, unless its owner has named one."""
    if KEY in config.given_at or not config.runtime_endpoint:
        return config
    found = await driver_of(runtime)
    return dataclasses.replace(config, cgroup_driver=found) if found else config


def mismatch(own: str, runtime: str) -> str:
    """Why nothing can run with these two drivers, and what to set; empty when they agree."""
    if not runtime or own == runtime:
        return ""
    return f"cgroup driver: the runtime uses {runtime} and this node {own}; set {KEY}: {runtime}, or change the runtime"
