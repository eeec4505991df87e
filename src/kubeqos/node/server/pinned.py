"""Where containers really run: asked of the kernel where it can be, else of the runtime. For the node's endpoint.

What the books say is published on the Node; whoever compares the two sees drift.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.node.pod.observed import Stage
from kubeqos.node.pod.record import PodRecord

KERNEL, RUNTIME = "kernel", "runtime"


class _Info(msgspec.Struct):
    """Of what runtimes tell in a verbose status: the process of the container."""

    pid: int = 0


async def pinned(runtime: Runtime, pods: Iterable[PodRecord], proc: Path = Path("/proc")) -> dict[str, Any]:
    """Running containers by `namespace/pod/container`: their CPUs and memory nodes, and who says so."""
    found: dict[str, Any] = {}
    for pod in list(pods):
        home = f"{pod.view.metadata.namespace}/{pod.view.metadata.name}"
        for name, known in list(pod.containers.items()):
            seen = known.newest
            if seen is None or seen.stage is not Stage.RUNNING:
                continue
            try:
                answer = await runtime.container_status(seen.id, verbose=True)
            except CallError:
                continue  # it ended meanwhile
            found[f"{home}/{name}"] = by_kernel(answer, proc) or _by_runtime(answer)
    return found


def by_kernel(answer: cri.ContainerStatusResponse, proc: Path) -> dict[str, str] | None:
    """What the container's first process may use; None where there is no such process here."""
    try:
        pid = msgspec.json.decode(answer.info.get("info", "{}"), type=_Info).pid
        lines = (proc / str(pid) / "status").read_text().splitlines() if pid > 0 else []
    except (msgspec.DecodeError, OSError):
        return None
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    if "Cpus_allowed_list" not in told:
        return None
    return {"cpus": told["Cpus_allowed_list"].strip(), "mems": told.get("Mems_allowed_list", "").strip(), "by": KERNEL}


def _by_runtime(answer: cri.ContainerStatusResponse) -> dict[str, str]:
    linux = answer.status.resources.linux
    return {"cpus": linux.cpuset_cpus, "mems": linux.cpuset_mems, "by": RUNTIME}
