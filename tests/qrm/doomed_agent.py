"""A node agent as a process of its own, which the kernel kills at a chosen moment.

    python -m tests.qrm.doomed_agent FOLDER MOMENT

MOMENT is `never`, `checkpoint:UID` (plugins have given, nothing is stored) or `update:N` (after N updates of running
containers). Pods are read from FOLDER/pods.json, the runtime listens on FOLDER/cri.sock, plugins on FOLDER/r.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.gates import QRM, FeatureGates
from kubeqos.model.hardware.named import kep80
from kubeqos.node.admission.ledger import FileLedger, LedgerEntry
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.registry import registering
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import Policy
from tests.qrm.harness import until


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DoomedLedger(FileLedger):
    def __init__(self, folder: Path, uid: str) -> None:
        super().__init__(folder)
        self._uid = uid

    async def save(
        self, entries: Mapping[str, LedgerEntry], managers: Mapping[str, Any], reserved: Collection[str] = ()
    ) -> None:
        if self._uid in entries:
            die()
        await super().save(entries, managers, reserved)


class DoomedRuntime(CriClient):
    """Dies instead of making one update too many, once those before it are made."""

    left = -1

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self._under_way: set[asyncio.Task[None]] = set()

    async def update_container_resources(self, request: cri.UpdateContainerResourcesRequest) -> None:
        if self.left == 0:
            await asyncio.gather(*self._under_way)
            die()
        self.left -= 1
        task = asyncio.create_task(super().update_container_resources(request))
        self._under_way.add(task)
        await task
        self._under_way.discard(task)


async def run(folder: Path, moment: str) -> None:
    what, _, which = moment.partition(":")
    machine = kep80()
    manager = QosResourceManager(QrmSettings(reconcile_seconds=0.1), machine)
    settings = NodeSettings(
        "n1",
        folder / "node",
        log_dir=folder / "logs",
        gates=FeatureGates.default().set({QRM: True}),
        topology_policy=Policy.RESTRICTED,
    )
    pods = LocalPods()
    for raw in json.loads((folder / "pods.json").read_text()):
        pods.set(raw)
    runtime = DoomedRuntime(f"unix://{folder}/cri.sock")
    runtime.left = int(which) if what == "update" else -1
    ledger = DoomedLedger(folder / "node", which) if what == "checkpoint" else None
    hosting = Hosting(pods=pods, ledger=ledger)
    agent = NodeAgent(assemble(settings, runtime, machine, hosting, managers=[manager]))
    async with registering(manager, watched=folder / "r", scan_seconds=0.05):
        await until("a plugin", lambda: any(endpoint.usable for endpoint in manager.endpoints))
        await agent.run()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
