"""Block I/O classes: from globs to device numbers to cgroup files, v1 and v2."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.enforcing.host import V1, V2, Host
from kubeqos.cri.providers.blockio import THROTTLES, BlockIo, DeviceRule, io_weight, parse_classes, resolve, transition
from kubeqos.cri.providers.builtin import BlockIoProvider
from kubeqos.cri.providers.effects import CgroupWrite
from kubeqos.cri.providers.protocol import Advertisement, Level, Place, Subject
from kubeqos.document import parse_document
from kubeqos.errors import ConfigurationError, RemoteError

CLASSES = """
Classes:
  slow:
    - Weight: 50
    - Devices: ["/dev/sd[a-z]"]
      ThrottleReadBps: 1M
      ThrottleWriteIOPS: 100
    - Devices: [/dev/sdb]
      ThrottleReadBps: 2Mi
      Weight: 20
  fast:
    - Weight: 1000
"""
DEVICES = {"/dev/sd[a-z]": [(8, 0), (8, 16)], "/dev/sdb": [(8, 16)]}


def classes():
    return parse_classes(parse_document(CLASSES, "classes.yaml"))


def slow() -> BlockIo:
    return resolve(classes()["slow"], DEVICES.__getitem__)


def lines(effects) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [(effect.controller, effect.choices) for effect in effects]


def test_later_entries_win_for_the_same_device():
    assert slow() == BlockIo(
        50,
        {(8, 16): 20},
        {
            ("ThrottleReadBps", (8, 0)): 1_000_000,
            ("ThrottleReadBps", (8, 16)): 2 * 1024 * 1024,
            ("ThrottleWriteIOPS", (8, 0)): 100,
            ("ThrottleWriteIOPS", (8, 16)): 100,
        },
    )


@pytest.mark.proves("class-blockio")
def test_cgroup_v1_files():
    assert lines(transition(BlockIo(), slow(), V1)) == [
        ("blkio", (("blkio.bfq.weight", "50"), ("blkio.weight", "50"))),
        ("blkio", (("blkio.bfq.weight_device", "8:16 20"), ("blkio.weight_device", "8:16 20"))),
        ("blkio", (("blkio.throttle.read_bps_device", "8:0 1000000"),)),
        ("blkio", (("blkio.throttle.read_bps_device", "8:16 2097152"),)),
        ("blkio", (("blkio.throttle.write_iops_device", "8:0 100"),)),
        ("blkio", (("blkio.throttle.write_iops_device", "8:16 100"),)),
    ]


@pytest.mark.proves("class-blockio")
def test_cgroup_v2_files():
    assert lines(transition(BlockIo(), slow(), V2)) == [
        ("", (("io.bfq.weight", "50"), ("io.weight", "default 405"))),
        ("", (("io.bfq.weight", "8:16 20"), ("io.weight", "8:16 102"))),
        ("", (("io.max", "8:0 rbps=1000000"),)),
        ("", (("io.max", "8:16 rbps=2097152"),)),
        ("", (("io.max", "8:0 wiops=100"),)),
        ("", (("io.max", "8:16 wiops=100"),)),
    ]


def test_leaving_a_class_takes_its_limits_away():
    fast = resolve(classes()["fast"], DEVICES.__getitem__)
    effects = transition(slow(), fast, V2)
    assert lines(effects) == [
        ("", (("io.bfq.weight", "1000"), ("io.weight", "default 10000"))),
        ("", (("io.bfq.weight", "8:16 default"), ("io.weight", "8:16 default"))),
        ("", (("io.max", "8:0 rbps=max"),)),
        ("", (("io.max", "8:16 rbps=max"),)),
        ("", (("io.max", "8:0 wiops=max"),)),
        ("", (("io.max", "8:16 wiops=max"),)),
    ]
    assert [effect.needed for effect in effects] == [True, False, False, False, False, False]
    assert ("blkio", (("blkio.throttle.read_bps_device", "8:0 0"),)) in lines(transition(slow(), fast, V1))


@pytest.mark.parametrize(("weight", "expected"), [(10, 1), (1000, 10000), (100, 910), (500, 4950)])
def test_bfq_weight_becomes_io_weight(weight, expected):
    assert io_weight(weight) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Classes: {a: [{ThrottleReadBps: 1M}]}", "ThrottleReadBps without Devices"),
        ("Classes: {a: [{Weight: 5}]}", "from 10 to 1000, found '5'"),
        ("Classes: {a: [{Devices: [/dev/sda]}]}", "neither a weight nor a throttle"),
        ("Classes: {a: [{Devices: [/dev/sda], ThrottleReadBps: fast}]}", "'fast' is not a quantity"),
        ("Classes: {a: [{weight: 10}]}", "unknown key"),
        ("classes: {}", "unknown key"),
    ],
)
def test_bad_classes_are_refused_with_their_line(text, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_classes(parse_document(text, "classes.yaml"))
    assert str(caught.value.where).startswith("classes.yaml:1")


@pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")
def test_globs_find_block_devices_through_links(tmp_path: Path):
    (tmp_path / "dev/disk").mkdir(parents=True)
    os.mknod(tmp_path / "dev/sda", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    os.mknod(tmp_path / "dev/sdb", stat.S_IFBLK | 0o600, os.makedev(8, 16))
    (tmp_path / "dev/sdc").write_text("not a device")
    (tmp_path / "dev/disk/fast").symlink_to(tmp_path / "dev/sdb")
    host = Host(tmp_path, dev_root=tmp_path, version=V2)
    assert host.block_devices("/dev/sd*") == [(8, 0), (8, 16)]
    assert host.block_devices("/dev/disk/*") == [(8, 16)]
    assert host.block_devices("/dev/nvme*") == []


async def test_a_class_without_its_devices_is_refused(tmp_path: Path):
    provider = BlockIoProvider(Advertisement("blockio", Level.CONTAINER, True, ()), classes(), Host(tmp_path, tmp_path))
    refusal = await provider.check(Subject(Level.CONTAINER), "blockio", "slow")
    assert "no block device matches /dev/sd[a-z]" in str(refusal)
    assert await provider.check(Subject(Level.CONTAINER), "blockio", "fast") is None


async def test_writes_go_to_the_first_file_that_exists(tmp_path: Path):
    cgroup = tmp_path / "kubepods/c1"
    cgroup.mkdir(parents=True)
    provider = BlockIoProvider(
        Advertisement("blockio", Level.CONTAINER, True, ()), classes(), Host(tmp_path, tmp_path, V2)
    )
    place = Place(1, "/kubepods/c1")
    with pytest.raises(RemoteError, match=r"cannot set io.bfq.weight or io.weight"):
        await provider.enter(Subject(Level.CONTAINER), place, "blockio", "fast")
    (cgroup / "io.weight").write_text("default 100\n")
    await provider.enter(Subject(Level.CONTAINER), place, "blockio", "fast")
    assert (cgroup / "io.weight").read_text() == "default 10000"
    await provider.move(Subject(Level.CONTAINER), place, "blockio", "fast", "")
    assert (cgroup / "io.weight").read_text() == "default 100"


DEVICE = st.tuples(st.integers(0, 300), st.integers(0, 300))
BLOCKIO = st.builds(
    BlockIo,
    st.sampled_from([0, 10, 500]),
    st.dictionaries(DEVICE, st.integers(10, 1000), max_size=4),
    st.dictionaries(st.tuples(st.sampled_from(sorted(THROTTLES)), DEVICE), st.integers(1, 10**9), max_size=6),
)


@given(old=BLOCKIO, new=BLOCKIO, version=st.sampled_from([V1, V2]))
@settings(max_examples=100)
def test_moving_ends_where_entering_would(old, new, version):
    """What is set after old → new is what a fresh container in `new` has, and nothing of `old` is left."""

    def state(*steps):
        held: dict[tuple[str, str], str] = {}
        for effects in steps:
            for effect in effects:
                assert isinstance(effect, CgroupWrite)
                file, value = effect.choices[0]
                device, _, rest = value.rpartition(" ")
                key = rest.split("=")[0] if "=" in rest else ""
                if effect.needed:
                    held[file, device + key] = rest
                else:
                    held.pop((file, device + key), None)
        return held

    enter = transition(BlockIo(), new, version)
    assert state(transition(BlockIo(), old, version), transition(old, new, version)) == state(enter)


def test_an_entry_says_devices_weight_and_throttles():
    assert classes()["fast"] == (DeviceRule(weight=1000),)
