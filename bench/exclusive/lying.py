"""The CPU plugin with a second face: what a file names is said wrong, for as long as it does.

    python -m bench.exclusive.lying MACHINE CONFIG REGISTRY LIES STATE

Started by `bench.exclusive.house` in place of `kubeqos plugin cpu`. It lies about what it has given, not to itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.machine import Machine
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.sdk import Allocation, Capacity, Refuse, Request, serve

Book = dict[str, dict[str, dict[str, Allocation]]]


def _all(book: Book, change: Callable[[Allocation], Allocation]) -> Book:
    return {
        uid: {name: {what: change(one) for what, one in given.items()} for name, given in containers.items()}
        for uid, containers in book.items()
    }


def _put(cpus: Callable[[Machine], CpuSet], **more: object) -> Callable[[Machine, Book], Book]:
    return lambda machine, book: _all(book, lambda one: msgspec.structs.replace(one, result=str(cpus(machine)), **more))


def _same(machine: Machine) -> CpuSet:
    """For everybody the same: a part of the machine that others have too."""
    return machine.online - machine.online.lowest(max(1, len(machine.online) // 2))


def _beyond(machine: Machine) -> CpuSet:
    return machine.online | CpuSet.from_ids(range(900, 1000))


REPORTS: Mapping[str, Callable[[Machine, Book], Book]] = {
    "report-nothing": lambda _machine, _book: {},
    "report-empty": _put(lambda _: NO_CPUS),
    "report-same": _put(_same),
    "report-shared": lambda _, book: _all(book, lambda one: msgspec.structs.replace(one, exclusive=False)),
    "report-everything": _put(lambda machine: machine.online),
    "report-beyond": _put(_beyond),
    "report-exclusive": _put(_same, exclusive=True),
}
ANSWERS: Mapping[str, Callable[[Machine], CpuSet]] = {
    "give-taken": _same,
    "give-empty": lambda _: NO_CPUS,
    "give-everything": lambda machine: machine.online,
    "give-beyond": _beyond,
}
CAPACITIES: Mapping[str, float] = {
    "capacity-nan": float("nan"),
    "capacity-infinite": float("inf"),
    "capacity-minus": -3.0,
}
LIES = (*REPORTS, *ANSWERS, *CAPACITIES, "refuse")


class Lying(CpuPlugin):
    """As good as its file."""

    lies: Path

    def _lie(self) -> str:
        try:
            return self.lies.read_text().strip()
        except OSError:
            return ""

    def allocate(self, request: Request) -> dict[str, Allocation] | None:
        lie = self._lie()
        if lie == "refuse":
            raise Refuse("not today")
        given = super().allocate(request)
        if lie in ANSWERS and given:
            said = str(ANSWERS[lie](self.state.machine))
            return {name: msgspec.structs.replace(one, result=said) for name, one in given.items()}
        return given

    def allocations(self) -> Book:
        book = super().allocations()
        change = REPORTS.get(self._lie())
        return change(self.state.machine, book) if change else book

    def capacity(self) -> dict[str, Capacity]:
        told = super().capacity()
        total = CAPACITIES.get(self._lie())
        return {"cpu": Capacity(total)} if total is not None else told


def main(machine: str, config: str, registry: str, lies: str, state: str) -> None:
    plugin = Lying(load_machine(machine or None), read_config(Path(config).read_text(), CpuConfig, config))
    plugin.lies = Path(lies)
    serve(plugin, registry, state=state, install=plugin.install)


if __name__ == "__main__":
    main(*sys.argv[1:])
