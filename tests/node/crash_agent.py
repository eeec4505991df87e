"""The victim of the crash loop: a node agent in a process of its own, which kills itself at one boundary of its day.

A boundary is the moment before or after an effect, a call that changes the runtime, a write of the ledger, and a write
of a pod to the API. The agent, its connections and its ledger are those of `kubeqos node`; only what counts boundaries
is put around them here. Nothing is flushed, closed or told on the way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections import Counter
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kubeqos.client.api import Answer, Call, TransportApi
from kubeqos.client.http import HttpTransport
from kubeqos.client.kubeconfig import load
from kubeqos.cri.client import CriClient
from kubeqos.cri.runtime import Method, Request, Response
from kubeqos.gates import FeatureGates
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.admission.ledger import FileLedger, LedgerEntry
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.runtime.executor import Executor

CHANGING = {
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer",
    "RemoveContainer", "UpdateContainerResources",
}  # fmt: skip
_doing: ContextVar[str] = ContextVar("doing", default="")
"""The effect that is being carried out, after which what happens within it is named."""

Boundary = tuple[str, int]
"""What it is called, and which time of the day it is that it is passed."""


@dataclass(frozen=True)
class Life:
    """Where an agent lives, and where it ends."""

    node: str
    runtime: str
    kubeconfig: Path
    folder: Path
    dies_at: Boundary | None = None


class Fate:
    """Counts boundaries; the last one is not survived."""

    def __init__(self, dies_at: Boundary | None) -> None:
        self.passed: Counter[str] = Counter()
        self._dies_at = dies_at

    def boundary(self, name: str) -> None:
        self.passed[name] += 1
        if (name, self.passed[name]) == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def around(self, what: str) -> Any:
        """Before it, and after it if it went well."""
        self.boundary(f"before {what}")
        yield
        self.boundary(f"after {what}")


class MortalRuntime(CriClient):
    """Calls that change the runtime."""

    fate: Fate

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        if method.name not in CHANGING:
            return await super().call(method, request, timeout=timeout)
        during = _doing.get() if method.name != "UpdateContainerResources" else ""  # whoever comes first tells all
        with self.fate.around(f"{method.name} call{during}"):
            return await super().call(method, request, timeout=timeout)


class MortalTransport(HttpTransport):
    """What is told about pods."""

    fate: Fate

    async def send(self, call: Call) -> Answer:
        if call.method == "GET" or "/pods/" not in call.path:
            return await super().send(call)
        with self.fate.around(f"{call.method} {call.path.partition('/pods/')[2]}"):
            return await super().send(call)


class MortalLedger(FileLedger):
    """What survives a restart."""

    fate: Fate

    async def save(
        self, entries: Mapping[str, LedgerEntry], managers: Mapping[str, Any], reserved: Collection[str] = ()
    ) -> None:
        with self.fate.around("write of the ledger"):
            await super().save(entries, managers, reserved)


def make_mortal(executor: Executor, fate: Fate) -> None:
    """Let an agent's hands pass boundaries."""
    perform = executor.perform

    async def mortal(pod: PodRecord, effect: fx.Effect) -> fx.Result:
        name = f"{type(effect).__name__} of {pod.view.metadata.name}/{getattr(effect, 'container', '')}".rstrip("/")
        _doing.set(f" in {name}")
        with fate.around(name):
            return await perform(pod, effect)

    executor.perform = mortal  # type: ignore[method-assign]


def run(life: Life, parent: Connection) -> None:
    """Live until killed, or until the parent has no more questions."""
    gc.disable()  # it lives for a second, and would only copy the pages that it shares
    asyncio.run(_live(life, parent))


async def _live(life: Life, parent: Connection) -> None:
    fate = Fate(life.dies_at)
    settings = NodeSettings(
        life.node,
        life.folder / "state",
        log_dir=life.folder / "logs",
        gates=FeatureGates.parse("QOSResources=true"),
        cpu_manager_policy="static",
        reserved_cpus=CpuSet.of(0),
    )
    transport = MortalTransport(load(life.kubeconfig))
    ledger = MortalLedger(settings.state_dir)
    runtime = MortalRuntime(life.runtime)
    transport.fate = ledger.fate = runtime.fate = fate
    agent = NodeAgent(assemble(settings, runtime, laptop8(), Hosting(TransportApi(transport), ledger=ledger)))
    make_mortal(agent.executor, fate)
    running = asyncio.create_task(agent.run())

    def asked() -> None:
        try:
            parent.recv()
            parent.send(account(agent, fate))
        except EOFError:
            running.cancel()

    asyncio.get_running_loop().add_reader(parent.fileno(), asked)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await runtime.close()


def account(agent: NodeAgent, fate: Fate) -> dict[str, Any]:
    """What the agent's books say."""
    assert agent.cpus is not None and agent.classes is not None
    return {
        "broken": agent.validate(),
        "pods": sorted(entry.name for entry in agent.admission.entries.values()),
        "known": sorted(pod.view.metadata.name for pod in agent.core.pods.values()),
        "cpus": str(agent.cpus.owned),
        "classes": {str(key): count for key, count in agent.classes.used().items() if count},
        "passed": dict(fate.passed),
    }
