"""Claims as people write them: every attribute, and an error that points at whatever is wrong."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import big384, kep80
from kubeqos.model.machine import CoreKind
from kubeqos.topology.attributes import DeviceAffinity, Isolation, MemoryAffinity, Siblings
from kubeqos.topology.claims.document import Problem, read
from kubeqos.topology.claims.parameters import Group, Parameters, parse, parse_handle
from tests.cci.world import KEP_CLAIM


def good(text: str) -> Parameters:
    found = parse(text)
    assert isinstance(found, Parameters), found
    return found


def bad(text: str) -> Problem:
    found = parse(text)
    assert isinstance(found, Problem), found
    return found


def test_the_keps_example_with_its_comma() -> None:
    first, second = good(KEP_CLAIM).groups
    assert first == Group(
        5,
        5,
        exclusive=True,
        siblings=Siblings.PREFERRED,
        memory=MemoryAffinity.BIND_REQUIRED,
        device=DeviceAffinity.REQUIRED,
    )
    assert second == Group(20, 20)


def test_the_keps_example_as_printed_lacks_a_comma() -> None:
    printed = KEP_CLAIM.replace('],\n    "cpu', ']\n    "cpu')
    assert bad(printed).shown() == (
        "line 10, column 6: expected ',' or '}' here, before '\"cpu attributes\"'\n   10 |     ]\n      |      ^"
    )


def test_ranges_are_for_burstable_use() -> None:
    found = good('{"cores": ["2", "6-8", 1]}')
    assert [(group.least, group.most) for group in found.groups] == [(2, 2), (6, 8), (1, 1)]
    assert (found.least, found.most) == (9, 11)


WRONG = [
    ("", "line 1, column 1: expected a value, found end of the document"),
    ("[]", "line 1, column 1: expected an object, found a list"),
    ("{}", 'line 1, column 1: "cores" is missing (say how many cores, such as "cores": ["2"])'),
    ('{"cores": []}', "line 1, column 11: cores: must name at least one group of cores"),
    ('{"cores": "2"}', "line 1, column 11: cores: expected a list with one entry per group of cores, found a string"),
    ('{"cores": ["two"]}', 'column 12: cores[0]: expected a number of cores or a range (write it like "2" or "6-8")'),
    ('{"cores": [true]}', "cores[0]: expected a number of cores or a range"),
    ('{"cores": ["0"]}', "cores[0]: must be between 1 and 8192 cores, not 0"),
    ('{"cores": ["8-6"]}', 'cores[0]: range 8-6 is empty (write it like "6-8")'),
    ('{"cores": ["1"], "cores": ["2"]}', 'line 1, column 18: "cores" is given twice'),
    ('{"cores": ["1"], "cpu attribute": []}', 'unknown key "cpu attribute" (did you mean "cpu attributes"?)'),
    ('{"cores": ["1"], "policy": "x"}', 'unknown key "policy" (known: cores, device attributes'),
    ('{"cores": ["1"], "cpu attributes": []}', "cpu attributes: has 0 entries for 1 group of cores"),
    ('{"cores": ["1"], "cpu attributes": [["EXCLUSIV"]]}', 'unknown attribute "EXCLUSIV" (did you mean "EXCLUSIVE"?)'),
    ('{"cores": ["1"], "cpu attributes": [[7]]}', "cpu attributes[0][0]: expected an attribute, found a number"),
    (
        '{"cores": ["1"], "mem attributes": ["EXCLUSIVE"]}',
        'mem attributes[0]: unknown attribute "EXCLUSIVE" (it belongs into "cpu attributes")',
    ),
    (
        '{"cores": ["1"], "cpu attributes": [["EXCLUSIVE", "SHARED"]]}',
        "line 1, column 51: cpu attributes[0][1]: SHARED contradicts EXCLUSIVE",
    ),
    (
        '{"cores": ["1"], "cpu attributes": [["CORE-SIBLING-DENIED", "CORE-SIBLING-REQUIRED"]]}',
        "CORE-SIBLING-REQUIRED contradicts CORE-SIBLING-DENIED",
    ),
    ('{"cores": ["1"], "cpu attributes": [["SHARED", "SHARED"]]}', "SHARED is given twice"),
    (
        '{"cores": ["1"], "cpu attributes": [["CORE-SIBLING-DENIED"]]}',
        "column 38: group 0: CORE-SIBLING-DENIED: keeps whole cores from others and needs EXCLUSIVE",
    ),
    (
        '{"cores": ["1"], "mem attributes": [["NO-MEM-AFFINITY", "NUMA-MEM-AFFINITY-BIND-REQUIRED"]]}',
        "NUMA-MEM-AFFINITY-BIND-REQUIRED contradicts NO-MEM-AFFINITY",
    ),
    ("{“cores”: 1}", "found '“' (write strings between straight double quotes: \")"),
    ('{"cores": ["1"] // two\n}', "(JSON has no comments)"),
    ('{"cores": ["1",]}', "unexpected ']' after ',' (remove the last comma)"),
    ('{"cores" ["1"]}', 'expected ":" after key "cores"'),
    ('{"cores": ["1"]} x', "unexpected 'x' after the end of the document"),
    ('{"cores": [oops]}', "line 1, column 12: oops is not a value"),
    ("[" * 40, "nested deeper than 32 levels"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text[:40] or "empty" for text, _ in WRONG])
def test_whatever_is_wrong_is_pointed_at(text: str, message: str) -> None:
    found = bad(text)
    assert message in str(found)
    line = text.splitlines()[found.line - 1] if text else ""
    assert found.source == line and 1 <= found.column <= len(line) + 1


CPU = [
    ["EXCLUSIVE"],
    ["SHARED"],
    ["EXCLUSIVE", "CORE-SIBLING-REQUIRED"],
    ["EXCLUSIVE", "CORE-SIBLING-PREFERRED"],
    ["EXCLUSIVE", "CORE-SIBLING-DENIED"],
    ["SHARED", "CORE-SIBLING-REQUIRED"],
    ["SHARED", "CORE-SIBLING-PREFERRED"],
    ["EXCLUSIVE", "PERFORMANCE-CORE"],
    ["EXCLUSIVE", "ISOLATED-REQUIRED"],
]
MEM = [one.value for one in MemoryAffinity] + ["HUGE_PAGE_SIZE_1M", "HUGE_PAGE_SIZE_2M", "HUGE_PAGE_SIZE_1G"]
DEVICE = [one.value for one in DeviceAffinity]


def test_every_legal_combination_survives_the_way_to_the_driver() -> None:
    for cpu, mem, device in product(CPU, MEM, DEVICE):
        document = {"cores": ["2-3"], "cpu attributes": [cpu], "mem attributes": [mem], "device attributes": [device]}
        found = good(json.dumps(document))
        assert parse_handle(found.handle()) == found
        [group] = found.groups
        assert set(cpu) <= set(group.attributes("cpu attributes"))
        assert mem in group.attributes("mem attributes") and device in group.attributes("device attributes")


groups = st.builds(
    Group,
    least=st.integers(1, 9),
    most=st.just(9),
    exclusive=st.just(True),
    siblings=st.sampled_from(Siblings),
    memory=st.sampled_from(MemoryAffinity),
    device=st.sampled_from(DeviceAffinity),
    kind=st.sampled_from([None, *CoreKind]),
    isolation=st.sampled_from(Isolation),
    huge_page_bytes=st.sampled_from([None, 1 << 20, 2 << 20, 1 << 30, 64 << 10]),
)


@settings(max_examples=60)
@given(st.lists(groups, min_size=1, max_size=4), st.sampled_from(["", "policy-x"]), st.integers(0, 255))
def test_a_handle_says_everything(found: list[Group], policy: str, numa: int) -> None:
    parameters = Parameters(tuple(found), policy, NumaSet(numa))
    assert parse_handle(parameters.handle()) == parameters


@settings(max_examples=200)
@given(st.text(alphabet='{}[]",:0123eE+-. \n\\u“truefalsn', max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    """What the reader takes, a JSON parser takes; what it refuses has a place inside the text."""
    found = read(text)
    try:
        json.loads(text)
        valid = True
    except ValueError:
        valid = False
    assert isinstance(found, Problem) != valid
    parse(text)


def test_huge_pages_bound_where_cores_come_from() -> None:
    [group] = good('{"cores": ["1"], "mem attributes": ["HUGE_PAGE_SIZE_1G"]}').groups
    assert group.region(big384()) == big384().online
    assert not group.region(kep80()), "no node of this machine has such pages"
