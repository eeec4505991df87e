"""The CPU plugin with a second face: what a file names is said wrong, for as long as it does.

    python -m bench.exclusive.lying MACHINE CONFIG REGISTRY LIES STATE

Started by `bench.exclusive.house` in place of `kubeqos plugin cpu`. It lies about what it has given, not to itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kubeqos.model.hardware.loading import load_machine
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


def _put(result: str, **more: object) -> Callable[[Book], Book]:
    return lambda book: _all(book, lambda one: msgspec.structs.replace(one, result=result, **more))


REPORTS: Mapping[str, Callable[[Book], Book]] = {
    "report-nothing": lambda _book: {},
    "report-empty": _put(""),
    "report-same": _put("2-9,42-49"),
    "report-shared": lambda book: _all(book, lambda one: msgspec.structs.replace(one, exclusive=False)),
    "report-everything": _put("0-79"),
    "report-beyond": _put("0-999"),
    "report-exclusive": _put("2-9", exclusive=True),
}
ANSWERS: Mapping[str, str] = {
    "give-taken": "2-9,42-49",
    "give-empty": "",
    "give-everything": "0-79",
    "give-beyond": "70-99",
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
            return {name: msgspec.structs.replace(one, result=ANSWERS[lie]) for name, one in given.items()}
        return given

    def allocations(self) -> Book:
        book = super().allocations()
        change = REPORTS.get(self._lie())
        return change(book) if change else book

    def capacity(self) -> dict[str, Capacity]:
        told = super().capacity()
        total = CAPACITIES.get(self._lie())
        return {"cpu": Capacity(total)} if total is not None else told


def main(machine: str, config: str, registry: str, lies: str, state: str) -> None:
    plugin = Lying(load_machine(machine), read_config(Path(config).read_text(), CpuConfig, config))
    plugin.lies = Path(lies)
    serve(plugin, registry, state=state, install=plugin.install)


if __name__ == "__main__":
    main(*sys.argv[1:])
