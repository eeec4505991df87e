"""Ages as kubectl prints them."""

from __future__ import annotations

import pytest

from kubeqos.model.timestamps import age_since, human_duration, micro_timestamp, seconds_of, timestamp


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"),
        (10799, "179m"), (10800, "3h"), (11000, "3h3m"), (28800, "8h"), (172800, "2d"), (180000, "2d2h"),
        (691200, "8d"), (63072000, "2y"), (63072000 + 86400, "2y1d"), (86400 * 365 * 9, "9y"),
    ],
)  # fmt: skip
def test_durations(seconds: int, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_there_and_back() -> None:
    assert timestamp(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert micro_timestamp(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert seconds_of(timestamp(1_700_000_000)) == 1_700_000_000
    assert age_since("2023-11-14T22:13:20Z", 1_700_000_030) == "30s"
    assert age_since(None, 0) == "<unknown>"
    assert seconds_of("yesterday") is None
