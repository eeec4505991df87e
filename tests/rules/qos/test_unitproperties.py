"""Control files in systemd's terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.rules.qos.unitproperties import INFINITY, quota_as_kept, slice_path, translated, unit_of, v1_quota_as_kept


@pytest.mark.parametrize(
    ("file", "text", "properties"),
    [
        ("cpu.weight", "79", {"CPUWeight": ("t", 79)}),
        ("cpu.max", "50000 100000", {"CPUQuotaPerSecUSec": ("t", 500_000), "CPUQuotaPeriodUSec": ("t", 100_000)}),
        ("cpu.max", "max 100000", {"CPUQuotaPerSecUSec": ("t", INFINITY), "CPUQuotaPeriodUSec": ("t", 100_000)}),
        ("memory.min", "4096", {"MemoryMin": ("t", 4096)}),
        ("memory.low", "4096", {"MemoryLow": ("t", 4096)}),
        ("memory.high", "max", {"MemoryHigh": ("t", INFINITY)}),
        ("memory.max", "8192", {"MemoryMax": ("t", 8192)}),
        ("memory.swap.max", "0", {"MemorySwapMax": ("t", 0)}),
        ("pids.max", "100", {"TasksMax": ("t", 100)}),
        ("io.weight", "default 800", {"IOWeight": ("t", 800)}),
        (
            "io.weight",
            "default 100\n8:16 200",
            {"IOWeight": ("t", 100), "IODeviceWeight": ("a(st)", [["/dev/block/8:16", 200]])},
        ),
        (
            "io.max",
            "8:16 rbps=2097152 wbps=max riops=max wiops=120",
            {
                "IOReadBandwidthMax": ("a(st)", [["/dev/block/8:16", 2097152]]),
                "IOWriteBandwidthMax": ("a(st)", [["/dev/block/8:16", INFINITY]]),
                "IOReadIOPSMax": ("a(st)", [["/dev/block/8:16", INFINITY]]),
                "IOWriteIOPSMax": ("a(st)", [["/dev/block/8:16", 120]]),
            },
        ),
        ("cpu.shares", "512", {"CPUShares": ("t", 512)}),
        ("cpu.cfs_quota_us", "-1", {"CPUQuotaPerSecUSec": ("t", INFINITY), "CPUQuotaPeriodUSec": ("t", 100_000)}),
        ("memory.limit_in_bytes", "8192", {"MemoryLimit": ("t", 8192)}),
        ("memory.limit_in_bytes", "-1", {"MemoryLimit": ("t", INFINITY)}),
        ("cpuset.cpus", "0-3,9", {"AllowedCPUs": ("ay", b"\x0f\x02")}),
        ("cpuset.mems", "1", {"AllowedMemoryNodes": ("ay", b"\x02")}),
    ],
)
def test_a_file_has_these_properties(file: str, text: str, properties: dict[str, object]) -> None:
    found = translated({file: text}, 252)
    assert found.properties == properties and not found.beside


def test_quota_and_period_of_version_1_are_one_property() -> None:
    found = translated({"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "25000"}, 252)
    assert found.properties == {"CPUQuotaPerSecUSec": ("t", 500_000), "CPUQuotaPeriodUSec": ("t", 50_000)}
    assert v1_quota_as_kept("12340", "100000") == "13000" and v1_quota_as_kept("-1", "100000") == "-1"


def test_what_systemd_has_no_property_for_stays_a_file() -> None:
    files = {"hugetlb.2MB.max": "0", "io.bfq.weight": "default 800", "memory.oom.group": "1", "pids.max": "9"}
    found = translated(files, 252)
    assert found.beside == {"hugetlb.2MB.max", "io.bfq.weight", "memory.oom.group"}
    assert list(found.properties) == ["TasksMax"]


def test_idle_is_a_weight_of_its_own_where_systemd_knows_it() -> None:
    assert translated({"cpu.idle": "1", "cpu.weight": "100"}, 252).properties == {"CPUWeight": ("t", 0)}
    assert translated({"cpu.weight": "100", "cpu.idle": "1"}, 252).properties == {"CPUWeight": ("t", 0)}
    assert translated({"cpu.idle": "0", "cpu.weight": "7"}, 252).properties == {"CPUWeight": ("t", 7)}
    older = translated({"cpu.idle": "1"}, 249)
    assert older.properties == {} and older.beside == {"cpu.idle"}


@given(st.integers(1000, 10_000_000), st.integers(1000, 1_000_000))
def test_a_quota_is_never_less_than_asked_and_stays_as_it_is_kept(quota: int, period: int) -> None:
    kept = quota_as_kept(f"{quota} {period}")
    percents = -(-quota * 100 // period)
    assert kept == f"{percents * period // 100} {period}"
    assert int(kept.split()[0]) >= quota - 1
    assert int(kept.split()[0]) < quota + period // 100 + 1


def test_slices_are_where_their_names_say() -> None:
    path = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
    assert slice_path("kubepods-burstable-pod1_2.slice") == path
    assert unit_of(path) == "kubepods-burstable-pod1_2.slice"
    assert unit_of(f"{path}/cri-containerd-12.scope") == "cri-containerd-12.scope"
    assert unit_of(f"{path}/cri-containerd-12.scope/inner") == ""
    assert unit_of("/kubepods/burstable/pod12") == ""
    assert unit_of("/elsewhere/kubepods.slice") == "", "systemd would make it at the root"
