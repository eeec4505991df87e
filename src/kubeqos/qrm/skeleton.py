"""A new plugin to start from: `kubeqos qrm new NAME` writes it, with a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

from kubeqos.errors import InputError

PLUGIN = '''"""A resource plugin: hands out {resource}."""

from __future__ import annotations

import sys

from kubeqos.qrm.sdk import Allocation, Capacity, Refuse, Request, serve


class {name}:
    """So many units on this machine, first come, first served."""

    resource = "{resource}"

    def __init__(self, units: float = 100.0) -> None:
        self.units = units
        self.used: dict[str, float] = {{}}

    def allocate(self, request: Request) -> Allocation:
        others = sum(amount for pod, amount in self.used.items() if pod != request.pod_uid)
        if others + request.quantity > self.units:
            raise Refuse(f"{{request.quantity:g}} requested, {{self.units - others:g}} left")
        self.used[request.pod_uid] = request.quantity
        told = {{"{env}": f"{{request.quantity:g}}"}}
        return Allocation(quantity=request.quantity, scalar=True, node=True, envs=told)

    def release(self, pod_uid: str) -> None:
        self.used.pop(pod_uid, None)

    def capacity(self) -> Capacity:
        return Capacity(self.units, node=True)


if __name__ == "__main__":
    serve({name}(), registry=sys.argv[1], state=f"{{sys.argv[1]}}/../{module}.state")
'''

TEST = '''"""The plugin keeps its promises: to the protocol, and about its units."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from {module} import {name}

from kubeqos.qrm.conformance import Kit
from kubeqos.qrm.sdk import Options, Refuse, Request, running


def test_units_are_never_given_twice() -> None:
    plugin = {name}(units=3)
    plugin.allocate(Request("pod-a", "{resource}", 2))
    with pytest.raises(Refuse, match="1 left"):
        plugin.allocate(Request("pod-b", "{resource}", 2))
    plugin.release("pod-a")
    assert plugin.allocate(Request("pod-b", "{resource}", 2)).quantity == 2


@pytest.mark.asyncio
async def test_it_speaks_the_protocol() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = Options(registry=Path(folder))
        async with running({name}(), options):
            report = await Kit(options.socket("{resource}")).run()
    assert [check for check in report if check.passed is False] == []
'''


def write_skeleton(name: str, folder: Path, resource: str = "") -> list[Path]:
    """Write a plugin and its test into a new folder; returns the files."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise InputError(f"{name!r} cannot be a plugin's name", remedy="use lower-case letters, digits and dashes")
    words = name.split("-")
    facts = {
        "module": "_".join(words),
        "name": "".join(word.capitalize() for word in words),
        "resource": resource or f"example.com/{name}",
        "env": "_".join(words).upper(),
    }
    target = folder / name
    if target.exists():
        raise InputError(f"{target} exists already", remedy="choose another name or folder")
    target.mkdir(parents=True)
    files = {f"{facts['module']}.py": PLUGIN, f"test_{facts['module']}.py": TEST}
    for file, text in files.items():
        (target / file).write_text(text.format(**facts))
    return [target / file for file in files]
