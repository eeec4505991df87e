"""The examples of docs/relay.md work as they are written."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers import presets
from kubeqos.cri.providers.catalog import LocalMachine, build
from kubeqos.cri.providers.config import parse_classes
from kubeqos.cri.providers.protocol import ClassProvider, Level, Subject
from kubeqos.cri.providers.remote import connect, serve
from tests.cri.providers.trees import TreeKernel, plant

TEXT = (Path(__file__).parents[3] / "docs" / "relay.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def turbo_class() -> type[ClassProvider]:
    space: dict[str, object] = {}
    exec(blocks("python")[0], space)
    found = space["Turbo"]
    assert isinstance(found, type)
    assert issubclass(found, ClassProvider)
    return found


async def test_the_configuration_of_the_guide_is_valid(tmp_path: Path):
    root = plant("full", tmp_path / "resctrl")
    machine = LocalMachine(Host(tmp_path, version=V2), root, TreeKernel(root), mbps_mode=False)
    catalog = await build(parse_classes(blocks("yaml")[0], "classes.yaml", V2), machine, connect)
    assert {name: (o.level.value, o.mutable) for name, o in catalog.offers.items()} == {
        "rdt": ("container", True),
        "blockio": ("container", True),
        "memory": ("container", True),
        "cpu-class": ("container", True),
        "ulimits": ("container", False),
        "network": ("pod", False),
        "example.com/shelf": ("container", True),
    }
    catalog.install()
    assert (root / "kubeqos.gold").is_dir()


@pytest.mark.parametrize("kind", presets.KINDS.values(), ids=lambda kind: kind.name)
def test_the_table_of_the_guide_says_what_the_code_does(kind: presets.ClassFamily):
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{kind.name}` |"))
    assert f"| {kind.level.value} | {'yes' if kind.mutable else 'no'} |" in row
    if kind is not presets.ULIMITS:
        assert all(f"`{setting.key}`" in row for setting in kind.settings)


async def test_the_vendors_class_runs_in_this_process(tmp_path: Path, monkeypatch):
    point = metadata.EntryPoint("turbo", "example:Turbo", "kubeqos.class_providers")
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: turbo_class())
    monkeypatch.setattr(metadata, "entry_points", lambda group: (point,))
    classes = parse_classes(next(one for one in blocks("yaml") if "provider: turbo" in one), "classes.yaml", V2)
    catalog = await build(classes, LocalMachine(Host(tmp_path, version=V2)), connect)
    assert [c.name for c in catalog.offers["example.com/turbo"].classes] == ["high", "low"]


async def test_the_vendors_class_runs_in_another(folder: Path):
    server = await serve(turbo_class()({"high": 3800}), f"{folder}/turbo.sock")  # type: ignore[call-arg]
    provider = connect("turbo", f"unix://{folder}/turbo.sock", None)
    assert (await provider.advertise())[0].name == "example.com/turbo"
    edit = await provider.apply(Subject(Level.CONTAINER), "example.com/turbo", "high")
    assert edit.annotations == {"turbo.example.com/megahertz": "3800"}
    await provider.close()
    await server.stop(0)
