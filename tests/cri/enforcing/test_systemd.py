"""What classes write reaches systemd, too: over a real message bus, to units as systemd keeps them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.enforcing.systemd import UnitValues
from kubeqos.cri.providers.effects import CgroupWrite, holds, write
from kubeqos.cri.providers.protocol import Place
from tests.cri.systemd import simulated_systemd

POD = "/kubepods.slice/kubepods-podx.slice"
DERIVED = "io.bfq.weight"


@pytest.mark.parametrize(
    ("value", "text", "said"),
    [
        ("800", "800", True),
        ("800", "100", False),
        ("800", "default 800", True),  # bfq shows its weight so, and takes it bare
        ("65537", "65536", True),
        ("65536", "max", False),
        ("max", "max", True),
        ("default 80", "default 80\n8:0 7", True),
        ("default 80", "default 100\n8:0 80", False),
        ("8:0 7", "default 80\n8:0 7", True),
        ("8:0 7", "default 80", False),
        ("8:0 default", "default 80", True),
        ("8:0 rbps=1024", "8:0 rbps=1024 wbps=max riops=max wiops=max", True),
        ("8:0 rbps=1024", "8:0 rbps=2048 wbps=max riops=max wiops=max", False),
        ("8:0 rbps=1024", "8:16 rbps=1024 wbps=max riops=max wiops=max", False),
        ("8:0 rbps=1024", "", False),
        ("8:0 rbps=max", "", True),
        ("8:0 1024", "8:0 1024", True),
        ("8:0 0", "", True),
    ],
)
def test_a_file_says_what_was_written_or_it_does_not(value: str, text: str, said: bool) -> None:
    assert holds(value, text) is said


def test_drift_names_file_and_values(tmp_path: Path) -> None:
    host, place = Host(tmp_path, version=2), Place(1, "/pod/main")
    (tmp_path / "pod/main").mkdir(parents=True)
    (tmp_path / "pod/main/io.max").write_text("8:0 rbps=4096 wbps=max riops=max wiops=max")
    effects = [write("", "io.max", "8:0 rbps=1024"), CgroupWrite("", (("io.weight", "default 5"),))]
    assert host.drifted(place, effects) == [
        "io.max: 8:0 rbps=4096 wbps=max riops=max wiops=max instead of 8:0 rbps=1024"
    ]


@pytest.mark.proves("systemd-driver")
async def test_systemd_keeps_what_a_class_has_written_and_the_rest_is_written_again(tmp_path: Path) -> None:
    async with simulated_systemd(tmp_path) as (peer, systemd):
        await systemd.start_slice("kubepods-podx.slice", {"CPUWeight": ("t", 39)})
        folder = peer.root / POD.strip("/")
        (folder / DERIVED).write_text("default 100")
        host, values, rewritten = Host(peer.root, version=2), UnitValues(systemd, peer.root), asyncio.Event()
        host.on_written(values.note)

        async def again() -> None:
            host.perform(Place(1, POD), [write("", DERIVED, "800")])
            rewritten.set()

        task = asyncio.create_task(values.run(again))
        peer.calls.clear()
        peer.called.clear()
        host.perform(Place(1, POD), [write("", "cpu.weight", "800"), write("", DERIVED, "800")])
        async with asyncio.timeout(30):
            await peer.called.wait()
        assert peer.calls == [("SetUnitProperties", "kubepods-podx.slice")]
        assert peer.units["kubepods-podx.slice"]["CPUWeight"] == 800
        (folder / DERIVED).write_text("default 163")
        peer.reload()
        async with asyncio.timeout(30):
            await rewritten.wait()
        assert (folder / "cpu.weight").read_text() == "800" and (folder / DERIVED).read_text() == "800"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
