"""Short texts are remembered, long ones are not kept."""

from __future__ import annotations

import gc
import sys

from kubeqos.model.remember import LONGEST, remembered
from kubeqos.rules.defaulting.defaults import pull_policy
from kubeqos.rules.validation.resources import container_resource_name


def test_only_short_texts_are_kept() -> None:
    asked: list[int] = []

    @remembered(8)
    def length(text: str) -> int:
        asked.append(len(text))
        return len(text)

    assert [length("a"), length("a"), length("b" * LONGEST), length("b" * LONGEST)] == [1, 1, LONGEST, LONGEST]
    assert [length("c" * 600), length("c" * 600)] == [600, 600]
    assert asked == [1, LONGEST, 600, 600]


def test_what_clients_send_does_not_stay() -> None:
    huge = "registry.example/" + "x" * 100_000
    held = sys.getrefcount(huge)
    pull_policy(huge)
    container_resource_name(huge)
    gc.collect()
    assert sys.getrefcount(huge) == held
