"""What can be said of booted machines without booting one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.vm import __main__, backports, images
from tools.vm.machines import MACHINES, NOT_SHOWN, Machine


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


@pytest.mark.parametrize(
    ("program", "package"), [("qemu-system-x86_64", "qemu-system-x86"), ("debootstrap", "debootstrap")]
)
def test_without_a_program_its_package_is_named(monkeypatch: pytest.MonkeyPatch, program: str, package: str) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == program else f"/usr/bin/{name}")
    monkeypatch.setattr(images, "kernel", lambda: "6.1.0-1-cloud-amd64")
    assert images.missing() == f"not installed: {package} (Debian packages)"


def test_modules_of_a_newer_kernel_come_after_what_they_need() -> None:
    dependencies = """\
kernel/fs/overlayfs/overlay.ko.xz:
kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/fs/mbcache.ko.xz kernel/lib/crc16.ko.xz
kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz
kernel/drivers/net/dummy.ko.xz:
"""
    order = [Path(path).name for path in backports._in_order(dependencies)]
    assert order == ["crc16.ko.xz", "mbcache.ko.xz", "jbd2.ko.xz", "ext4.ko.xz", "overlay.ko.xz"]


def test_the_table_says_what_no_machine_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["vm"])
    assert __main__.main() == 2
    said = capsys.readouterr().out
    assert all(name in said for name in MACHINES)
    assert all(f"{what}: {why}" in said for what, why in NOT_SHOWN.items())
