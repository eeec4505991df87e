"""A new plugin to start from: `kubeqos qrm new NAME` writes it, with a test that passes."""

from __future__ import annotations

from pathlib import Path

from kubeqos.plugins.skeleton import facts, plain_name, write

PLUGIN = '''"""A resource plugin: hands out {resource}."""

import sys

from kubeqos.qrm.sdk import Allocation, Capacity, Hint, NumaHint, Refuse, Request, serve


class {type}:
    """So many units beside NUMA node 0, first come, first served."""
    resource = "{resource}"

    def __init__(self, units: float = 100.0) -> None:
        self.units = units
        self.used: dict[tuple[str, str], float] = {{}}  # by pod and container

    def hints(self, request: Request) -> list[Hint]:
        return [NumaHint((0,), True).value] if request.quantity <= self._left(request) else []  # or nowhere

    def allocate(self, request: Request) -> Allocation:
        if request.quantity > self._left(request):
            raise Refuse(f"{{request.quantity:g}} requested, {{self._left(request):g}} left")
        self.used[request.pod_uid, request.container] = request.quantity
        return Allocation(quantity=request.quantity, scalar=True, node=True, envs={{"{env}": str(request.quantity)}})

    def release(self, pod_uid: str) -> None:
        self.used = {{key: amount for key, amount in self.used.items() if key[0] != pod_uid}}

    def restore(self, given: dict[str, dict[str, dict[str, Allocation]]]) -> None:
        self.used = {{(pod, key): one[self.resource].quantity for pod, by in given.items() for key, one in by.items()}}

    def capacity(self) -> Capacity:
        return Capacity(self.units, by_numa={{0: self.units}}, node=True)

    def _left(self, request: Request) -> float:
        return self.units - sum(n for key, n in self.used.items() if key != (request.pod_uid, request.container))


if __name__ == "__main__":
    serve({type}(), registry=sys.argv[1], state=f"{{sys.argv[1]}}/../{module}.state")
'''

TEST = '''"""The plugin keeps its promises: to the protocol, and about its units."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from {module} import {type}

from kubeqos.qrm.kit.conformance import Kit
from kubeqos.qrm.sdk import Options, Refuse, Request, running


def test_units_are_never_given_twice() -> None:
    plugin = {type}(units=3)
    plugin.allocate(Request("pod-a", "{resource}", 2))
    with pytest.raises(Refuse, match="1 left"):
        plugin.allocate(Request("pod-b", "{resource}", 2))
    with pytest.raises(Refuse, match="1 left"):
        plugin.allocate(Request("pod-a", "{resource}", 2, container="second"))
    plugin.release("pod-a")
    assert plugin.allocate(Request("pod-b", "{resource}", 2)).quantity == 2


def test_hints_are_where_there_is_room() -> None:
    plugin = {type}(units=3)
    plugin.allocate(Request("pod-a", "{resource}", 2))
    assert plugin.hints(Request("pod-b", "{resource}", 2)) == []
    assert [list(hint.numa or ()) for hint in plugin.hints(Request("pod-b", "{resource}", 1))] == [[0]]


def test_a_restart_forgets_nothing() -> None:
    before, after = {type}(), {type}()
    given = before.allocate(Request("pod-a", "{resource}", 2))
    after.restore({{"pod-a": {{"main": {{"{resource}": given}}}}}})
    assert after.used == before.used


@pytest.mark.asyncio
async def test_it_speaks_the_protocol() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = Options(registry=Path(folder))
        async with running({type}(), options):
            report = await Kit(options.socket("{resource}")).run()
    assert [check for check in report if check.passed is False] == []
'''


def write_skeleton(name: str, folder: Path, resource: str = "") -> list[Path]:
    """Write a plugin and its test into a new folder; returns the files."""
    known = facts(plain_name(name, "plugin"), resource)
    texts = {f"{known['module']}.py": PLUGIN, f"test_{known['module']}.py": TEST}
    return write(folder / name, {file: text.format(**known) for file, text in texts.items()})
