"""Classes of containers in the cgroups above them, on a tree in a folder that has version 2's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.enforcing.podcgroups import PodCgroups, is_pod, read_mark
from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.cgroups.plan import plan
from kubeqos.rules.qos.cgroups import CgroupSettings
from tests.node.cgroups.test_cgroups import NODE, admitted, read
from tests.node.pods import container, pod

MIB = 1 << 20
FILES = {"cpu.weight": "1", "cpu.idle": "0", "memory.min": "0", "memory.low": "0", "io.weight": "default 100"}
POD = "kubepods/burstable/pod1"


def group(root: Path, path: str, **values: str) -> None:
    folder = root / path
    folder.mkdir(parents=True)
    for name, value in (FILES | {key.replace("_", "."): text for key, text in values.items()}).items():
        (folder / name).write_text(value)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two pods of one tier; the first one has a sandbox beside its container."""
    for path in ("kubepods", "kubepods/burstable", POD, "kubepods/burstable/pod2"):
        group(tmp_path, path)
    (tmp_path / POD / "cpu.weight").write_text("39")
    group(tmp_path, f"{POD}/sandbox", cpu_weight="1")
    group(tmp_path, f"{POD}/main", cpu_weight="800", memory_low=str(120 * MIB), io_weight="default 7980")
    return tmp_path


def test_weights_and_protection_stand_where_pods_compete(tree: Path) -> None:
    pods = PodCgroups(Host(tree, version=2))
    before = pods.protection(f"/{POD}/main", "memory.low")
    assert (before.asked, before.effective) == (120 * MIB, 0)
    pods.weigh(f"/{POD}", "sandbox", {"cpu", "memory", "io"})
    assert read(tree, f"{POD}/cpu.weight") == "800" and read(tree, f"{POD}/io.weight") == "default 7980"
    for above in (POD, "kubepods/burstable", "kubepods"):
        assert read(tree, f"{above}/memory.low") == str(120 * MIB)
    after = pods.protection(f"/{POD}/main", "memory.low")
    assert after.is_whole and after.effective == 120 * MIB
    assert read_mark(tree / POD).was["cpu.weight"] == "39"


def test_what_stood_there_comes_back_when_the_classes_go(tree: Path) -> None:
    pods = PodCgroups(Host(tree, version=2))
    before = {path: path.read_text() for path in tree.rglob("*.*") if path.is_file() and path.parent.name != "main"}
    pods.weigh(f"/{POD}", "sandbox", {"cpu", "memory", "io"})
    (tree / POD / "main" / "memory.low").write_text("0")
    pods.weigh(f"/{POD}", "sandbox", set())
    assert {path: path.read_text() for path in before} == before
    assert read_mark(tree / POD).files == {} and read_mark(tree / "kubepods").files == {}


def test_a_pod_of_idle_containers_is_idle_and_has_its_weight_again_afterwards(tree: Path) -> None:
    pods = PodCgroups(Host(tree, version=2))
    (tree / POD / "main" / "cpu.idle").write_text("1")
    pods.weigh(f"/{POD}", "sandbox", {"cpu"})
    assert read(tree, f"{POD}/cpu.idle") == "1"
    (tree / POD / "cpu.weight").write_text("100")  # as the kernel does when a cgroup is idle no more
    pods.weigh(f"/{POD}", "sandbox", set())
    assert read(tree, f"{POD}/cpu.idle") == "0" and read(tree, f"{POD}/cpu.weight") == "39"


def test_what_the_request_protects_is_not_taken_away_by_a_smaller_class(tree: Path) -> None:
    (tree / POD / "memory.low").write_text(str(500 * MIB))
    pods = PodCgroups(Host(tree, version=2))
    pods.weigh(f"/{POD}", "sandbox", {"memory"})
    assert read(tree, f"{POD}/memory.low") == str(500 * MIB)
    assert read(tree, "kubepods/memory.low") == str(500 * MIB)


def test_a_node_keeps_what_the_relay_has_set_and_sums_its_tiers_up(tmp_path: Path) -> None:
    """Two programs keep one cgroup, and neither takes the other's value for a stranger's."""
    asks = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    pods = [admitted(pod(name, container(resources=asks), uid=name)) for name in ("1", "2")]
    files = CgroupFiles(tmp_path, version=2)
    wanted = plan(pods, NODE, 4000, CgroupSettings())
    files.reconcile(wanted)
    tier = int(read(tmp_path, "kubepods/burstable/cpu.weight"))
    group(tmp_path, f"{POD}/main", cpu_weight="800", memory_min=str(64 * MIB), memory_low=str(120 * MIB))
    for path in ("kubepods", "kubepods/burstable", POD):
        (tmp_path / path / "memory.low").write_text("0")
    PodCgroups(Host(tmp_path, version=2)).weigh(f"/{POD}", "sandbox", {"cpu", "memory"})
    done = files.reconcile(wanted)
    assert done.drifted == [] and read(tmp_path, f"{POD}/cpu.weight") == "800"
    assert read(tmp_path, "kubepods/burstable/cpu.weight") == str(tier + 800 - 4)  # 100m alone is a weight of 4
    assert read(tmp_path, "kubepods/burstable/memory.low") == str(120 * MIB)
    assert read(tmp_path, "kubepods/memory.min") == str(128 * MIB)
    (tmp_path / POD / "cpu.weight").write_text("4")
    assert len(files.reconcile(wanted).drifted) == 1 and read(tmp_path, f"{POD}/cpu.weight") == "800"
    PodCgroups(Host(tmp_path, version=2)).weigh(f"/{POD}", "sandbox", set())
    files.reconcile(wanted)
    assert read(tmp_path, f"{POD}/cpu.weight") == "4" and read(tmp_path, "kubepods/burstable/cpu.weight") == str(tier)


def test_only_a_pods_own_cgroup_is_weighed() -> None:
    assert is_pod("/kubepods/burstable/poda-1", "a-1")
    assert is_pod("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_1.slice", "a-1")
    assert not is_pod("/many", "a-1") and not is_pod("/kubepods/poda-1", "") and not is_pod("/kubepods/poda-1", "a")
