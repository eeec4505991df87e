"""Huge pages of both sizes: pages taken, not only limits written."""

from __future__ import annotations

import pytest

from tests.vm.node import Node, guaranteed, pod

pytestmark = [pytest.mark.vm, pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)]

PAGE = str(2 << 20)


@pytest.mark.proves("huge-pages")
def test_who_asked_gets_so_many_and_the_limit_is_at_both_levels(node: Node) -> None:
    node.start_pod(
        pod("asked", "hog", "huge", PAGE, "8", resources=guaranteed("250m", "64Mi", **{"hugepages-2Mi": "8Mi"}))
    )
    assert "got 4" in node.says("asked", "got ")
    own, of_pod = node.levels("asked")[:2]
    for level in (own, of_pod):
        assert level["hugetlb.2MB.max"] == str(8 << 20)
    assert own["hugetlb.1GB.max"] == "0"


@pytest.mark.proves("huge-pages")
def test_who_did_not_ask_gets_none(node: Node) -> None:
    node.start_pod(pod("greedy", "hog", "huge", PAGE, "48"))
    assert "got 0" in node.says("greedy", "got ")
