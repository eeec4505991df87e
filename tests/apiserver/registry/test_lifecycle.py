"""What becomes of an object besides admission, as pure functions over raw objects."""

from __future__ import annotations

import pytest

from kubeqos.apiserver.registry.lifecycle import shortened
from kubeqos.model.timestamps import timestamp

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("elapsed", "asked", "left", "grace"),
    [
        (2, 5, 3, 5),  # counts from the first request
        (5, 5, 0, 5),
        (8, 5, 0, 1),  # its time is over: the least that is still graceful
        (8, 0, 0, 0),
        (0, 0, 0, 0),
    ],
)
def test_a_grace_period_is_shortened_from_its_beginning(elapsed: int, asked: int, left: int, grace: int) -> None:
    metadata = {"deletionTimestamp": timestamp(NOW - elapsed + 30), "deletionGracePeriodSeconds": 30}
    assert shortened(metadata, asked, NOW) == (NOW + left, grace)
