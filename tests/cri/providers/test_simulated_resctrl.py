"""A resctrl tree for machines without one: it refuses what the kernel refuses, and its counters move."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kubeqos.cri.providers.rdt.files import ResctrlFiles, discover
from kubeqos.cri.providers.rdt.simulated import CLOSIDS, WAY_BYTES, SimulatedResctrl, plant
from kubeqos.model.hardware.named import tiny2


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def kernel(tmp_path: Path, watch: Watch) -> SimulatedResctrl:
    plant(tiny2(), tmp_path)
    return SimulatedResctrl(tmp_path, watch)


def why(kernel: SimulatedResctrl) -> str:
    return (kernel.root / "info/last_cmd_status").read_text().strip()


def test_it_is_discovered_as_a_real_one(kernel: SimulatedResctrl) -> None:
    found = discover(kernel.root, False)
    assert found.caches["L3"].ids == tuple(sorted(tiny2().uncores))
    assert (found.bandwidth is not None, found.mon_features[0]) == (True, "llc_occupancy")
    plant(tiny2(), kernel.root)  # a restart leaves it as it is
    assert ResctrlFiles(kernel.root, kernel).groups() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("L3:0=1000", "Mask out of range"),
        ("L3:0=0", "Need at least 1 bits in the mask"),
        ("L3:0=5", "The mask 5 has non-consecutive 1-bits"),
        ("L3:0=xyz", "Non-hex character in the mask xyz"),
        ("MB:0=5", "MB value 5 out of range [10,100]"),
        ("L3:99=f", "Unknown domain '99'"),
        ("L9:0=f", "Unknown or unsupported resource name 'L9'"),
    ],
)
def test_schemata_are_checked_as_the_kernel_does(kernel: SimulatedResctrl, text: str, reason: str) -> None:
    kernel.mkdir(kernel.root / "gold")
    before = (kernel.root / "gold/schemata").read_text()
    with pytest.raises(OSError) as caught:
        kernel.write(kernel.root / "gold/schemata", text)
    assert (caught.value.errno, why(kernel)) == (errno.EINVAL, reason)
    assert (kernel.root / "gold/schemata").read_text() == before


def test_one_domain_is_changed_and_the_others_stay(kernel: SimulatedResctrl) -> None:
    kernel.mkdir(kernel.root / "gold")
    kernel.write(kernel.root / "gold/schemata", "L3:0=f\nMB:0=25\n")
    text = (kernel.root / "gold/schemata").read_text()
    assert "L3:0=f" in text
    assert "MB:0=30" in text, "bandwidth goes in steps of ten"
    assert text.count("=100") == len(tiny2().uncores) - 1


def test_groups_end_and_a_task_is_in_one_of_them(kernel: SimulatedResctrl) -> None:
    gold, silver = kernel.root / "gold", kernel.root / "silver"
    for group in (gold, silver):
        kernel.mkdir(group)
    kernel.write(gold / "tasks", "7\n")
    kernel.write(silver / "tasks", "7\n")
    assert ((gold / "tasks").read_text(), (silver / "tasks").read_text()) == ("", "7\n")
    kernel.mkdir(gold / "mon_groups/c1")
    with pytest.raises(OSError):
        kernel.write(gold / "mon_groups/c1/tasks", "7")
    assert why(kernel) == "Can't move task to different control group"
    kernel.rmdir(silver)
    assert (kernel.root / "tasks").read_text() == "7\n"
    for number in range(CLOSIDS - 2):
        kernel.mkdir(kernel.root / f"g{number}")
    with pytest.raises(OSError) as full:
        kernel.mkdir(kernel.root / "late")
    assert (full.value.errno, why(kernel)) == (errno.ENOSPC, "Out of CLOSIDs")


def test_counters_move_with_time_tasks_and_bandwidth(kernel: SimulatedResctrl, watch: Watch) -> None:
    for name, percent in (("fast", 100), ("slow", 10)):
        kernel.mkdir(kernel.root / name)
        kernel.write(kernel.root / name / "schemata", f"L3:0=f\nMB:0={percent}\n")
        kernel.mkdir(kernel.root / name / "mon_groups/c")
        for task in (f"{percent}1", f"{percent}2"):
            kernel.write(kernel.root / name / "tasks", task)
            kernel.write(kernel.root / name / "mon_groups/c/tasks", task)
    watch.now = 2.0
    kernel.tick()

    def read(name: str, event: str) -> int:
        return int((kernel.root / name / "mon_groups/c/mon_data/mon_L3_00" / event).read_text())

    fast = read("fast", "mbm_total_bytes")
    assert fast > 0
    assert fast == 10 * read("slow", "mbm_total_bytes")
    assert read("fast", "llc_occupancy") == 4 * WAY_BYTES
    watch.now = 4.0
    kernel.tick()
    assert read("fast", "mbm_total_bytes") == 2 * fast
