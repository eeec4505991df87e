"""Defects that are put in on purpose, to see that the laws find them: `python -m tests.torture SEEDS --plant NAME`.

Each takes out what holds one law: laws that never find anything may as well not be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kubeqos.rules.quota.ledger
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.scheduler.core import Scheduler
from kubeqos.store import Store
from tests.torture.world import WatchedDatabase


def _forget_bindings() -> None:
    def bind_failed(self: Scheduler, pod: Any, _why: str, now: float) -> None:
        if self._sent_off.pop(pod.uid, None) is not None and pod.uid in self.cluster.where:
            self._release(pod.uid, now)

    Scheduler.bind_failed = bind_failed  # type: ignore[method-assign]


def _acknowledge_early() -> None:
    seal = Store._seal

    def sealed(self: Store) -> None:
        seal(self)
        for future, revision in self._in_flight.waiters if self._in_flight is not None else ():
            if not future.done() and revision is not None:
                future.set_result(revision)

    Store._seal = sealed  # type: ignore[method-assign]


def _sync_nothing() -> None:
    connect = WatchedDatabase._connect

    def connected(self: WatchedDatabase, max_bytes: int) -> Any:
        connection = connect(self, max_bytes)
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        return connection

    WatchedDatabase._connect = connected  # type: ignore[method-assign]


def _enforce_no_quota() -> None:
    ledger: Any = kubeqos.rules.quota.ledger
    ledger._exceeded = lambda *_: []
    ledger._judge_classes = lambda *_: None


def _own_cpus_twice() -> None:
    CpuManager.free = property(lambda self: self.machine.online - self.reserved)  # type: ignore[method-assign,assignment]


PLANTED: dict[str, Callable[[], None]] = {
    "bindings that are lost are forgotten": _forget_bindings,
    "writes are acknowledged before they are durable": _acknowledge_early,
    "the disk is not asked to sync": _sync_nothing,
    "no quota is enforced": _enforce_no_quota,
    "exclusive CPUs are given away again": _own_cpus_twice,
}
