"""What can be said of booted machines without booting one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.vm import images
from tools.vm.machines import MACHINES, Machine


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: str(machine.name))
def test_every_cpu_of_a_machine_is_on_one_numa_node(machine: Machine) -> None:
    placed: list[int] = []
    for node in machine.nodes:
        for part in filter(None, node.cpus.split(",")):
            first, _, last = part.partition("-")
            placed += range(int(first), int(last or first) + 1)
    assert sorted(placed) == list(range(machine.sockets * machine.cores * machine.threads))
    assert f"sockets={machine.sockets}" in " ".join(machine.hardware())


def test_the_newest_kernel_is_taken() -> None:
    versions = ["6.1.0-9-cloud-amd64", "6.1.0-54-cloud-amd64", "5.10.0-99-cloud-amd64"]
    assert max(versions, key=images._numbers) == "6.1.0-54-cloud-amd64"


def test_images_are_kept_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert images.cache() == tmp_path / "kubeqos" / "vm"


def test_without_root_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "needs root" in (images.missing() or "")
