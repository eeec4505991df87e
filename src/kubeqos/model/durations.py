"""Durations as people write them: 500ms, 5s, 1m30s, 2h."""

from __future__ import annotations

import re

from kubeqos.errors import InputError

_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as 500ms, 5s or 1m30s."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(f"{text!r} is not a duration", remedy="write it like 500ms, 5s or 1m30s")
    return sum(round(float(number) * _UNITS[unit]) for number, unit in parts)
