"""Times as Go reads them: RFC 3339, with the error text of Go's parser.

Strict decoding calls this for every time in a document; a client that sends "yesterday" is told what Kubernetes would
have told it.
"""

from __future__ import annotations

import re

LAYOUT = "2006-01-02T15:04:05Z07:00"
_VALID = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T](\d\d):(\d\d):(\d\d)([.,]\d+)?(?:Z|[+-](\d\d):(\d\d))", re.ASCII)
# The parts of the layout: pattern, name in the message, lower and upper bound.
_PARTS: list[tuple[str, str, str, int, int]] = [
    (r"\d{4}", "2006", "", 0, 9999),
    ("-", "-", "", 0, 0),
    (r"\d\d", "01", "month", 1, 12),
    ("-", "-", "", 0, 0),
    (r"\d\d", "02", "day", 1, 31),
    ("T", "T", "", 0, 0),
    (r"\d\d", "15", "hour", 0, 23),
    (":", ":", "", 0, 0),
    (r"\d\d", "04", "minute", 0, 59),
    (":", ":", "", 0, 0),
    (r"\d\d(?:[.,]\d+)?", "05", "second", 0, 59),
    (r"Z|[+-]\d\d:\d\d", "Z07:00", "", 0, 0),
]
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_error(text: str) -> str | None:
    """What Go says about a text that is not a time; None if it is one. The empty string means "no time"."""
    match = _VALID.fullmatch(text)
    if match and _in_range([int(part) for part in match.group(1, 2, 3, 4, 5, 6)]):
        return None
    if text == "":
        return f'parsing time "" as "{LAYOUT}": cannot parse "" as "2006"'
    rest = text
    for pattern, part, what, low, high in _PARTS:
        found = re.match(pattern, rest, re.ASCII)
        if not found:
            return f'parsing time "{text}" as "{LAYOUT}": cannot parse "{rest}" as "{part}"'
        if what and not low <= int(found[0][:2]) <= high:
            return f'parsing time "{text}": {what} out of range'
        rest = rest[found.end() :]
    if rest:
        return f'parsing time "{text}": extra text: "{rest}"'
    return f'parsing time "{text}": day out of range'


def _in_range(parts: list[int]) -> bool:
    year, month, day, hour, minute, second = parts
    if not (1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] and hour < 24 and minute < 60 and second < 60):
        return False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return not (month == 2 and day == 29 and not leap)
