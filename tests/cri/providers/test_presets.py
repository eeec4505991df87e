"""Preset classes (memory, cpu, ulimits, network): one table, read and turned into writes."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import V1, V2, Host, cgroup_path, cgroup_version, cgroups_of, mount_roots, placed
from kubeqos.cri.providers import presets
from kubeqos.cri.providers.builtin import PresetProvider
from kubeqos.cri.providers.config import PresetSpec, parse_classes
from kubeqos.cri.providers.effects import CgroupWrite, SetRlimit
from kubeqos.cri.providers.protocol import Edit, Level, Place, Subject, SubjectGone
from kubeqos.errors import ConfigurationError, RemoteError

CONTAINER = Subject(Level.CONTAINER, "c1", cpu_shares=512, memory_limit_bytes=1 << 30)


def preset(kind: str, text: str, version: int = V2) -> presets.Preset:
    document = f"resources: {{r: {{provider: {kind}, classes: {{c: {text}}}}}}}"
    spec = parse_classes(document, "classes.yaml", version).resources["r"].spec
    assert isinstance(spec, PresetSpec)
    return spec.classes["c"]


def files(effects) -> list[tuple[str, str, str]]:
    return [(e.controller, *e.choices[0]) for e in effects if isinstance(e, CgroupWrite)]


TABLE = [
    # kind, class, cgroup version, (controller, file, value) on entering
    ("memory", "{min: 100Mi, low: 50%, high: max, swap: 0, oomGroup: true}", V2, [
        ("", "memory.min", "104857600"), ("", "memory.low", "536870912"), ("", "memory.high", "max"),
        ("", "memory.swap.max", "0"), ("", "memory.oom.group", "1"),
    ]),
    ("memory", "{low: 1G}", V1, [("memory", "memory.soft_limit_in_bytes", "1000000000")]),
    # The container's own 512 shares are the weight 20: a class scales what it has.
    ("cpu", "{weight: 100}", V2, [("", "cpu.weight", "20")]),
    ("cpu", "{weight: 100}", V1, [("cpu", "cpu.shares", "512")]),
    ("cpu", "{weight: 39, burstMicroseconds: 5000}", V1, [
        ("cpu", "cpu.shares", "199"), ("cpu", "cpu.cfs_burst_us", "5000")]),
    ("cpu", "{weight: 10000}", V1, [("cpu", "cpu.shares", "51200")]),
    ("cpu", "{idle: true, weight: 1}", V2, [("", "cpu.weight", "1"), ("", "cpu.idle", "1")]),
    ("cpu", "{idle: false, weight: 700}", V2, [("", "cpu.idle", "0"), ("", "cpu.weight", "140")]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "version", "expected"), TABLE)
@pytest.mark.proves("class-cpu", "class-memory")
def test_a_class_becomes_cgroup_writes(kind, text, version, expected):
    effects = presets.transition(presets.KINDS[kind], {}, preset(kind, text, version), CONTAINER, version)
    assert files(effects) == expected


@pytest.mark.parametrize(
    ("shares", "weight", "v1", "v2"),
    [
        (204, 100, 204, 8),  # 200m: a class of 100 leaves it as it is
        (204, 800, 1632, 64),
        (2, 800, 16, 8),  # BestEffort
        (2, 10, 2, 1),
        (262144, 800, 262144, 10000),
        (0, 800, 8192, 800),  # nothing was asked for: the kernel's own
    ],
)
@pytest.mark.proves("class-cpu")
def test_a_cpu_class_scales_what_the_container_asked_for(shares, weight, v1, v2):
    subject = Subject(Level.CONTAINER, cpu_shares=shares)
    assert (presets.scaled_shares(weight, subject), presets.scaled_weight(weight, subject)) == (v1, v2)


def test_leaving_restores_what_the_container_had_itself():
    gold = preset("cpu", "{weight: 900, idle: false}")
    assert files(presets.transition(presets.CPU, gold, {}, CONTAINER, V1)) == [
        ("cpu", "cpu.idle", "0"),
        ("cpu", "cpu.shares", "512"),
    ]
    assert files(presets.transition(presets.CPU, gold, {}, CONTAINER, V2))[1] == ("", "cpu.weight", "20")


def test_the_create_request_carries_what_it_can():
    assert presets.edit_for(presets.CPU, preset("cpu", "{weight: 39, burstMicroseconds: 9}"), CONTAINER, V2) == Edit(
        resources={"cpu_shares": 159}, unified={"cpu.max.burst": "9"}
    )
    assert presets.edit_for(presets.CPU, preset("cpu", "{weight: 39}", V1), CONTAINER, V1) == Edit(
        resources={"cpu_shares": 199}
    )
    network = preset("network", "{priority: 3, ingressBandwidth: 10M, annotations: {example.com/x: y}}")
    assert presets.edit_for(presets.NETWORK, network, Subject(Level.POD), V2) == Edit(
        {
            "network.kubeqos.io/priority": "3",
            "kubernetes.io/ingress-bandwidth": "10M",
            "example.com/x": "y",
        }
    )


def test_a_share_of_the_limit_needs_a_limit():
    shares = preset("memory", "{min: 25%}")
    assert presets.check_preset(shares, CONTAINER, "c") is None
    refusal = presets.check_preset(shares, Subject(Level.CONTAINER), "c")
    assert "sets memory min to a share of the memory limit, and the container has none" in str(refusal)


@pytest.mark.parametrize(
    ("kind", "text", "version", "message"),
    [
        ("memory", "{min: 1Gi}", V1, "memory.min needs cgroup v2, and this machine runs cgroup v1"),
        ("memory", "{min: 0%}", V2, "percentage from 1% to 100%"),
        ("memory", "{min: lots}", V2, "is not a quantity"),
        ("cpu", "{weight: 0}", V2, "from 1 to 10000, found '0'"),
        ("cpu", "{wieght: 1}", V2, "unknown key"),
        ("ulimits", '{nofile: "9:8"}', V2, "the soft limit is above the hard limit"),
        ("ulimits", "{nofile: many}", V2, "whole number or unlimited"),
        ("network", "{egressBandwidth: -1}", V2, "negative"),
    ],
)
def test_bad_values_are_refused(kind, text, version, message):
    with pytest.raises(ConfigurationError, match=message):
        preset(kind, text, version)


@pytest.mark.proves("class-ulimits")
def test_ulimits_of_a_running_process(tmp_path: Path):
    limits = preset("ulimits", '{nofile: "100:200", core: 0, fsize: unlimited}')
    effects = presets.transition(presets.ULIMITS, {}, limits, CONTAINER, V2)
    assert SetRlimit("nofile", 100, 200) in effects
    process = subprocess.Popen(["sleep", "60"])
    try:
        Host(tmp_path, version=V2).perform(Place(process.pid), effects)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (100, 200)
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
        assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (-1, -1)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(RemoteError, match="did not tell the process"):
        Host(tmp_path, version=V2).perform(Place(), effects)


async def test_a_provider_moves_a_container_between_classes(tmp_path: Path):
    cgroup = tmp_path / "pod/c1"
    cgroup.mkdir(parents=True)
    for name in ("memory.min", "memory.high"):
        (cgroup / name).write_text("0\n")
    text = "resources: {m: {provider: memory, classes: {a: {min: 4096}, b: {high: 8192}}}}"
    found = parse_classes(text, "classes.yaml", V2).resources["m"]
    assert isinstance(found.spec, PresetSpec)
    provider = PresetProvider(found.offer, found.spec.kind, found.spec.classes, Host(tmp_path, version=V2))
    place = Place(0, "/pod/c1")
    await provider.enter(CONTAINER, place, "m", "a")
    assert (cgroup / "memory.min").read_text() == "4096"
    await provider.move(CONTAINER, place, "m", "a", "b")
    assert (cgroup / "memory.min").read_text() == "0"
    assert (cgroup / "memory.high").read_text() == "8192"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/k8s.io/abc", "/k8s.io/abc"),
        ("kubepods-burstable-pod1.slice:cri-containerd:abc",
         "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope"),
    ],
)  # fmt: skip
def test_cgroup_paths_of_both_drivers(given, expected):
    assert cgroup_path(given) == expected


def test_the_cgroup_version_is_seen_from_the_tree(tmp_path: Path):
    assert cgroup_version(tmp_path) == V2
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    assert cgroup_version(tmp_path) == V1
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    assert cgroup_version(tmp_path) == V2


V1_PROCESS = (
    "9:name=systemd:/\n4:memory:/own/pod.slice:c:1\n2:cpu,cpuacct:/pod.slice:c:1\n3:cpuset:/pod.slice:c:1\n0::/\n"
)


def test_a_process_says_where_its_cgroups_are():
    """runc on cgroupfs with a `.slice` parent goes from its own cgroup, which hierarchies have at different paths."""
    place = placed(7, cgroups_of(V1_PROCESS, V1), {})
    assert place == Place(7, "/pod.slice:c:1", (("memory", "/own/pod.slice:c:1"),))
    assert (place.within("memory"), place.within("cpu")) == ("/own/pod.slice:c:1", "/pod.slice:c:1")
    assert placed(7, cgroups_of("0::/kubepods/pod1/c\n", V2), {}) == Place(7, "/kubepods/pod1/c")


def test_a_cgroup_is_told_below_what_is_mounted():
    root = Path("/sys/fs/cgroup")
    mounts = (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu\n"
    )
    roots = mount_roots(mounts, root, V1)
    assert placed(7, {"cpu": "/docker/1/kubepods/c", "cpuacct": "/docker/1"}, roots) == Place(
        7, "/kubepods/c", (("cpuacct", "/"),)
    )
    assert mount_roots("31 23 0:28 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n", root, V2) == {"": "/docker/1"}


def test_this_process_is_found_in_its_cgroup():
    place = Host().located(os.getpid())
    assert os.getpid() in Host().tasks(place)


def test_a_process_that_has_ended_is_gone():
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(SubjectGone, match="has ended"):
        Host().located(process.pid)


def test_a_process_that_nobody_has_waited_for_is_gone_and_not_in_the_root():
    """Seen on cgroup v1: a container that ended within its start was found in `/`, and the root was written to."""
    process = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert Path(f"/proc/{process.pid}/cgroup").exists()
        with pytest.raises(SubjectGone, match="has ended"):
            Host().located(process.pid)
    finally:
        process.wait()


def test_a_cgroup_that_goes_while_it_is_written_was_of_one_that_is_gone(tmp_path, monkeypatch):
    process = subprocess.Popen(["true"])
    process.wait()
    folder = tmp_path / "pod/c"
    folder.mkdir(parents=True)
    (folder / "cpu.weight").write_text("100\n")

    def written(path: Path, _value: str) -> None:
        path.unlink()
        folder.rmdir()
        raise RemoteError("cannot write '200': No such device", where=str(path))

    monkeypatch.setattr("kubeqos.cri.enforcing.host.write_file", written)
    host = Host(tmp_path, version=V2)
    with pytest.raises(SubjectGone, match="its cgroup is gone"):
        host.perform(Place(process.pid, "/pod/c"), [CgroupWrite("cpu", (("cpu.weight", "200"),))])
