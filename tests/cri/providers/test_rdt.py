"""Cache and bandwidth classes: schemata of several machines worked out by hand, and each refusal before a write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level, Place, Subject
from kubeqos.cri.providers.rdt.config import is_contiguous, parse_rdt
from kubeqos.cri.providers.rdt.files import ResctrlFiles, discover
from kubeqos.cri.providers.rdt.machine import CacheInfo, Capabilities
from kubeqos.cri.providers.rdt.provider import RdtProvider
from kubeqos.cri.providers.rdt.resolve import plan_changes, resolve
from kubeqos.document import parse_document
from kubeqos.errors import ConfigurationError, RemoteError
from tests.cri.providers.trees import TreeKernel, plant

TWO_PARTITIONS = """
partitions:
  exclusive:
    l3Allocation: "60%"
    mbAllocation: ["100%"]
    classes:
      gold: {l3Allocation: "100%"}
  shared:
    l3Allocation: "40%"
    mbAllocation: ["50%"]
    classes:
      silver: {}
      bronze: {l3Allocation: "50%", mbAllocation: ["50%"]}
"""

# machine, mounted with mba_MBps, configuration, schemata by class.
TABLE = [
    pytest.param(
        "full",
        False,
        TWO_PARTITIONS,
        {
            # 20 bits: shared 40*20/100 = 8, exclusive the other 12; laid out by name from bit 0.
            "gold": "L3:0=fff;1=fff\nMB:0=100;1=100\n",
            "silver": "L3:0=ff000;1=ff000\nMB:0=50;1=50\n",
            # (50-1)*8/100 = 3: bits 0-3 of the partition's 8; 50% of 50%.
            "bronze": "L3:0=f000;1=f000\nMB:0=25;1=25\n",
        },
        id="full: percentages of percentages",
    ),
    pytest.param(
        "full",
        False,
        """
        partitions:
          a: {l3Allocation: "0-3", mbAllocation: ["5%"], classes: {low: {l3Allocation: "0x6"}}}
          b: {l3Allocation: {all: "0xffff0", "1": "4-7"}, classes: {system/default: {l3Allocation: "0x3"}}}
        """,
        {
            # 0x6 inside bits 0-3; 5% is below the machine's minimum of 10.
            "low": "L3:0=6;1=6\nMB:0=10;1=10\n",
            # Relative to bit 4 on both sockets; no bandwidth rule is 100%.
            "system/default": "L3:0=30;1=30\nMB:0=100;1=100\n",
        },
        id="full: absolute masks, per cache id, root group",
    ),
    pytest.param(
        "l2",
        False,
        """
        options: {l3: {optional: true}, mb: {optional: true}}
        partitions:
          p:
            l2Allocation: {all: "100%", "2-3": "0x0f"}
            l3Allocation: "50%"
            mbAllocation: ["50%"]
            classes: {c: {l2Allocation: {all: "50%", "3": "0x3"}}}
        """,
        # 8 bits: 49*8/100 = 3, four bits. 4 bits: 49*4/100 = 1, two bits.
        {"c": "L2:0=f;1=f;2=3;3=3\n"},
        id="l2: optional resources are left out",
    ),
    pytest.param(
        "cdp",
        False,
        """
        partitions:
          a:
            l3Allocation: {all: {unified: "50%", code: "25%", data: "75%"}}
            classes: {x: {l3Allocation: "10%"}}
          b:
            l3Allocation: {all: {unified: "50%", code: "75%", data: "25%"}}
            classes: {y: {l3Allocation: "90-100%"}}
        """,
        {
            # code: a 25*12/100 = 3 bits, b 9. data: b 3 bits, a 9. 10% is one bit, widened to two.
            "x": "L3CODE:0=3\nL3DATA:0=3\n",
            # code: bit 8 of 9 widened down to 7-8, above a's 3 bits. data: bits 1-2 of 3, above a's 9.
            "y": "L3CODE:0=c00\nL3DATA:0=c00\n",
        },
        id="cdp: code and data apart",
    ),
    pytest.param(
        "nomb",
        False,
        """
        partitions:
          a: {l3Allocation: "33%", classes: {one: {}}}
          b: {l3Allocation: "33%", classes: {two: {}}}
          c: {l3Allocation: "34%", classes: {three: {}}}
        """,
        # 33*11/100 = 3; then 8 bits are 72%: 33*8/72 = 3; the last takes 5.
        {"one": "L3:0=7\n", "two": "L3:0=38\n", "three": "L3:0=7c0\n"},
        id="nomb: rounding down, the last takes the rest",
    ),
    pytest.param(
        "mbps",
        True,
        """
        partitions:
          p:
            mbAllocation: ["50%", "4000MBps"]
            classes:
              fast: {}
              slow: {mbAllocation: {all: ["20%", "1000MBps"], "1": ["100%", "9000MBps"]}}
          q: {classes: {free: {}}}
        """,
        {
            "fast": "L3:0=7ff;1=7ff\nMB:0=4000;1=4000\n",
            "slow": "L3:0=7ff;1=7ff\nMB:0=1000;1=4000\n",
            "free": "L3:0=7ff;1=7ff\nMB:0=4294967295;1=4294967295\n",
        },
        id="mbps: the smaller of class and partition",
    ),
    pytest.param(
        "amd",
        False,
        """
        partitions:
          p: {classes: {ten: {mbAllocation: ["50%", "10000MBps"]}, free: {}}}
        """,
        # 10000 MBps / 125 MBps.
        {"ten": "L3:0=ffff\nMB:0=80\n", "free": "L3:0=ffff\nMB:0=2048\n"},
        id="amd: eighths of a GB/s",
    ),
]


def config_of(text: str):
    return parse_rdt(parse_document(text, "classes.yaml"))


@pytest.mark.parametrize(("machine", "mbps", "text", "expected"), TABLE)
@pytest.mark.proves("class-rdt")
def test_schemata_equal_the_table(tmp_path: Path, machine, mbps, text, expected):
    root = plant(machine, tmp_path)
    assert resolve(config_of(text), discover(root, mbps)) == expected


@pytest.mark.parametrize(("machine", "mbps", "text", "expected"), TABLE)
def test_the_tree_holds_what_was_resolved_and_a_second_install_writes_nothing(
    tmp_path: Path, machine, mbps, text, expected
):
    root = plant(machine, tmp_path)
    rdt, kernel = provider(root, text, mbps)
    rdt.install()
    for name, schemata in expected.items():
        directory = root if name == "system/default" else root / f"kubeqos.{name}"
        assert (directory / "schemata").read_text() == schemata
    kernel.changes.clear()
    rdt.install()
    assert kernel.changes == []


def provider(root: Path, text: str, mbps: bool = False, host: Host | None = None) -> tuple[RdtProvider, TreeKernel]:
    config = config_of(text)
    kernel = TreeKernel(root)
    classes = tuple(ClassInfo(name) for name in config.classes())
    offer = Advertisement("rdt", Level.CONTAINER, True, classes, annotation_stem="rdt")
    machine = discover(root, mbps)
    files = ResctrlFiles(root, kernel)
    return RdtProvider(offer, config, machine, files, host or Host(root / "cg", version=V2), "kubeqos."), kernel


REFUSED = [
    ("over-commit", 'partitions: {a: {l3Allocation: "60%"}, b: {l3Allocation: "50%"}}', "ask for 110% of L3"),
    ("overlap", 'partitions: {a: {l3Allocation: "0xff"}, b: {l3Allocation: "0x80"}}', "overlap in L3 of cache id 0"),
    ("mixed forms", 'partitions: {a: {l3Allocation: "0xff"}, b: {l3Allocation: "10%"}}', "mix percentages and bit"),
    ("one says nothing", 'partitions: {a: {l3Allocation: "10%"}, b: {}}', "partition 'b' says nothing about L3"),
    ("range", 'partitions: {a: {l3Allocation: "10-20%"}}', "range of percentages"),
    ("outside", 'partitions: {a: {l3Allocation: "0x1fffff"}}', "0x1fffff does not fit into 0xfffff"),
    (
        "class outgrows a shrunk partition",
        'partitions: {a: {l3Allocation: "20%", classes: {c: {l3Allocation: "0xff"}}}, b: {l3Allocation: "80%"}}',
        "class 'c': L3 mask 0xff does not fit into 0xf",
    ),
    ("not contiguous", 'partitions: {a: {l3Allocation: "0x5"}}', "not contiguous"),
    ("unknown cache id", 'partitions: {a: {l3Allocation: {all: "50%", "7": "50%"}}}', "cache id 7 does not exist"),
    ("resource missing", 'partitions: {a: {l2Allocation: "50%"}}', "L2 allocation is configured, and this machine"),
    ("unit missing", 'partitions: {a: {classes: {c: {mbAllocation: ["100MBps"]}}}}', "counts in percent"),
    ("class twice", "partitions: {a: {classes: {c: {}}}, b: {classes: {c: {}}}}", "already in partition 'a'"),
    ("bad class name", "partitions: {a: {classes: {x/y: {}}}}", "becomes a directory"),
    ("typo", "partitions: {a: {l3Alocation: 50%}}", "unknown key"),
    ("code alone", 'partitions: {a: {l3Allocation: {all: {code: "50%"}}}}', "code and data must both be given"),
    (
        "split on a machine without CDP",
        'partitions: {a: {l3Allocation: {all: {code: "50%", data: "50%"}}}}',
        "does not split them",
    ),
    (
        "closid budget",
        "partitions: {a: {classes: {" + ", ".join(f"c{n}: {{}}" for n in range(8)) + "}}}",
        "8 classes need 9 groups with the root group, and the machine has 8",
    ),
]


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_bad_configuration_is_refused_before_any_write(tmp_path: Path, text, message):
    root = plant("full", tmp_path)
    before = sorted(str(p) for p in root.rglob("*"))
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        provider(root, text)[0].install()
    assert sorted(str(p) for p in root.rglob("*")) == before


def test_errors_carry_the_line():
    with pytest.raises(ConfigurationError) as caught:
        config_of('partitions:\n  a:\n    l3Alocation: "50%"\n')
    assert caught.value.where == "classes.yaml:3  partitions.a.l3Alocation"
    assert caught.value.remedy == "did you mean 'l3Allocation'?"


def test_foreign_groups_stay_and_count_against_the_budget(tmp_path: Path):
    root = plant("nomb", tmp_path)  # four closids
    TreeKernel(root).mkdir(root / "other-agent")
    rdt, _ = provider(root, "partitions: {a: {classes: {x: {}, y: {}}}}")
    rdt.install()
    assert ResctrlFiles(root).groups() == ["kubeqos.x", "kubeqos.y", "other-agent"]
    too_many, kernel = provider(root, "partitions: {a: {classes: {x: {}, y: {}, z: {}}}}")
    with pytest.raises(ConfigurationError, match="and 1 groups of other agents, and the machine has 4"):
        too_many.install()
    assert kernel.changes == []


def test_a_removed_class_goes_at_once_when_empty_and_later_when_it_holds_tasks(tmp_path: Path):
    root = plant("full", tmp_path)
    provider(root, TWO_PARTITIONS)[0].install()
    (root / "kubeqos.gold" / "tasks").write_text("77\n")
    fewer, _ = provider(root, 'partitions: {shared: {l3Allocation: "40%", classes: {silver: {}}}}')
    plan = fewer.plan()
    assert (plan.remove, plan.retire) == (("kubeqos.bronze",), ("kubeqos.gold",))
    fewer.files.apply(plan)
    assert fewer.files.retire(plan) == ["kubeqos.gold"]
    assert ResctrlFiles(root).groups() == ["kubeqos.gold", "kubeqos.silver"]
    (root / "kubeqos.gold" / "tasks").write_text("")
    assert fewer.files.retire(plan) == []
    assert ResctrlFiles(root).groups() == ["kubeqos.silver"]


def test_a_class_in_use_keeps_its_place_in_the_budget(tmp_path: Path):
    root = plant("nomb", tmp_path)  # four closids
    provider(root, "partitions: {a: {classes: {x: {}, y: {}, z: {}}}}")[0].install()
    other, kernel = provider(root, "partitions: {a: {classes: {x: {}, y: {}, w: {}}}}")
    (root / "kubeqos.z" / "tasks").write_text("5\n")
    with pytest.raises(ConfigurationError, match="and 1 removed classes that still hold tasks, and the machine has 4"):
        other.install()
    assert kernel.changes == []
    (root / "kubeqos.z" / "tasks").write_text("")
    other.install()
    assert kernel.changes[:2] == ["rmdir kubeqos.z", "mkdir kubeqos.w"]


def test_the_kernels_reason_is_in_the_error(tmp_path: Path):
    root = plant("full", tmp_path)
    files = ResctrlFiles(root, TreeKernel(root))
    plan = plan_changes({"gold": "L4:0=f\n"}, [], "kubeqos.", 8)
    with pytest.raises(RemoteError, match="Unknown or unsupported resource name 'L4'"):
        files.apply(plan)


@pytest.mark.proves("class-rdt")
async def test_a_container_moves_with_all_its_tasks_and_keeps_one_counter(tmp_path: Path):
    root = plant("full", tmp_path / "resctrl")
    cgroup = tmp_path / "cg" / "pod" / "c1"
    cgroup.mkdir(parents=True)
    (cgroup / "cgroup.threads").write_text("101\n102\n")
    rdt, _ = provider(root, TWO_PARTITIONS, host=Host(tmp_path / "cg", version=V2))
    rdt.install()
    subject, place = Subject(Level.CONTAINER, id="c1"), Place(101, "/pod/c1")

    await rdt.enter(subject, place, "rdt", "gold")
    assert (root / "kubeqos.gold/tasks").read_text() == "101\n102\n"
    samples = await rdt.report()
    assert {(s.name, s.labels["class"], s.value) for s in samples} == {
        ("kubeqos_rdt_llc_occupancy_bytes", "gold", 4096),
        ("kubeqos_rdt_mbm_total_bytes_total", "gold", 99),
        ("kubeqos_rdt_mbm_local_bytes_total", "gold", 42),
    }

    await rdt.move(subject, place, "rdt", "gold", "bronze")
    assert (root / "kubeqos.gold/tasks").read_text() == ""
    assert (root / "kubeqos.bronze/tasks").read_text() == "101\n102\n"
    assert ResctrlFiles(root).monitored("kubeqos.") == [("kubeqos.bronze", "kubeqos.c1")]

    await rdt.move(subject, place, "rdt", "bronze", "")
    assert "101" in (root / "tasks").read_text()
    await rdt.withdraw(subject, "rdt", "")
    assert ResctrlFiles(root).monitored("kubeqos.") == []


def test_a_tree_that_is_not_resctrl_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="resctrl is not mounted"):
        discover(tmp_path)


@st.composite
def partitions(draw):
    shares = draw(st.lists(st.integers(1, 100), min_size=1, max_size=6).filter(lambda s: sum(s) <= 100))
    classes = draw(st.lists(st.integers(1, 100), min_size=len(shares), max_size=len(shares)))
    lines = [
        f'  p{n}: {{l3Allocation: "{share}%", classes: {{c{n}: {{l3Allocation: "{own}%"}}, d{n}: {{}}}}}}'
        for n, (share, own) in enumerate(zip(shares, classes, strict=True))
    ]
    return "partitions:\n" + "\n".join(lines)


@given(text=partitions(), width=st.integers(6, 32), minimum=st.integers(1, 2))
@settings(max_examples=150)
@pytest.mark.proves("class-rdt")
def test_partitions_are_disjoint_and_classes_stay_inside(text, width, minimum):
    cache = CacheInfo("L3", (0,), (1 << width) - 1, minimum, 64)
    try:
        schemata = resolve(config_of(text), Capabilities({"L3": cache}))
    except ConfigurationError as error:
        assert "too few for" in error.what
        return
    masks = {name: int(line.split("=")[1], 16) for name, line in schemata.items()}
    taken = 0
    for name, mask in masks.items():
        assert is_contiguous(mask)
        assert mask.bit_count() >= minimum
        assert mask < 1 << width
        if name.startswith("d"):
            assert not mask & taken
            taken |= mask
            assert masks["c" + name[1:]] & ~mask == 0
    assert taken == (1 << width) - 1
