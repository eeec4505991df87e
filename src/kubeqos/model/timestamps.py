"""Timestamps as the API writes them (RFC 3339, UTC) and ages as kubectl prints them. Pure: now is an argument."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from kubeqos.errors import InputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def timestamp(now: float) -> str:
    """`2026-11-15T07:07:08Z`."""
    return _whole_second(int(now))


@lru_cache(maxsize=64)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now: float) -> str:
    """`2026-11-15T07:07:08.123456Z`, for MicroTime fields (leases, events)."""
    return f"{_whole_second(int(now))[:-1]}.{int(now % 1 * 1_000_000):06}Z"


def seconds_of(text: str) -> float | None:
    """Seconds since the epoch, None when the text is not a timestamp."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo else None


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as 500ms, 5s or 1m30s."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(f"{text!r} is not a duration", remedy="write it like 500ms, 5s or 1m30s")
    return sum(round(float(number) * _UNITS[unit]) for number, unit in parts)


def age_since(text: str | None, now: float) -> str:
    """The AGE column: time since a timestamp, `<unknown>` when there is none."""
    since = seconds_of(text) if text else None
    return "<unknown>" if since is None else human_duration(now - since)


def human_duration(duration: float) -> str:
    """A duration with two significant units at most, as Kubernetes rounds it."""
    seconds = int(duration)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
