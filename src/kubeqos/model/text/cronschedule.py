"""Schedules as cron writes them: `*/5 9-17 * * mon-fri`, `@daily`, `@every 90m`.

`CronSchedule.parse` reads one, `after` says when it comes next in a time zone. Called by validation and by the CronJob
controller. Pure: the present and the zone are arguments.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from kubeqos.errors import InputError
from kubeqos.model.timestamps import parse_duration

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_YEARS = 5  # a schedule that does not come in so many years never comes
_MINUTE = datetime.timedelta(minutes=1)
_BACK = datetime.timedelta(hours=3)  # no clock is set back further


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the five parts: its name, its bounds, and the words that stand for numbers."""

    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()

    def parse(self, text: str) -> tuple[frozenset[int], bool]:
        """The numbers that are meant, and whether all of them are."""
        found: set[int] = set()
        starred = False
        for part in text.split(","):
            whole, _, step_text = part.partition("/")
            every = whole in ("*", "?")
            starred |= every and step_text in ("", "1")
            first, dash, last = whole.partition("-")
            low = self.low if every else self._number(first, text)
            high = self.high if every or (step_text and not dash) else self._number(last, text) if dash else low
            step = self._count(step_text, text) if step_text or "/" in part else 1
            if step == 0:
                raise InputError(f"step of range should be a positive number: {text}")
            if low < self.low or high > self.high:
                raise InputError(f"{'beginning' if low < self.low else 'end'} of range is beyond its bounds: {text}")
            if low > high:
                raise InputError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
            found.update(range(low, high + 1, step))
        if self.name == "day of week" and 7 in found:
            found = found - {7} | {0}
        return frozenset(found), starred

    def _number(self, word: str, text: str) -> int:
        lowered = word.lower()
        if lowered in self.words:
            return self.words.index(lowered) + self.low
        return self._count(word, text)

    def _count(self, word: str, text: str) -> int:
        if not (word.isascii() and word.isdigit()):
            raise InputError(f"failed to parse int from {word}: {text}")
        return int(word)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """When something is due: by the calendar, or after equal times."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    either_day: bool = False
    """Both days are given: it comes on either. With one of them a star, on the other."""
    every_seconds: int = 0

    @classmethod
    def parse(cls, text: str) -> CronSchedule:
        """Read a schedule; `InputError` says what is wrong with it."""
        text = text.strip()
        if text.startswith("@every "):
            seconds = parse_duration(text.removeprefix("@every ").strip()) // 10**9
            return cls(every_seconds=max(1, seconds))
        if text.startswith("@"):
            if text not in _MACROS:
                raise InputError(f"unrecognized descriptor: {text}")
            text = _MACROS[text]
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise InputError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
        parsed = [field.parse(part) for field, part in zip(_FIELDS, parts, strict=True)]
        minutes, hours, days, months, weekdays = (numbers for numbers, _ in parsed)
        either = not parsed[2][1] and not parsed[4][1]
        return cls(minutes, hours, days, months, weekdays, either)

    def after(self, moment: float, zone: datetime.tzinfo) -> float | None:
        """The first time it is due after a moment, in seconds since 1970; None if it never is."""
        if self.every_seconds:
            return float(int(moment) + self.every_seconds)
        local = datetime.datetime.fromtimestamp(moment, zone).replace(second=0, microsecond=0, tzinfo=None) + _MINUTE
        found = self._search(local, zone, moment, fold=0)
        if _goes_back(moment, zone):  # an hour comes twice: it may be due again in the second
            again = self._search(local - _BACK, zone, moment, fold=1)
            found = again if found is None or (again is not None and again < found) else found
        return found

    def _search(self, local: datetime.datetime, zone: datetime.tzinfo, moment: float, fold: int) -> float | None:
        """The first time from what a clock shows on; what it does not show, or has shown before, is passed over."""
        last = local.year + _YEARS
        while local.year <= last:
            if local.month not in self.months:
                local = (local.replace(day=1, hour=0, minute=0) + datetime.timedelta(days=32)).replace(day=1)
            elif not self._on(local.date()):
                local = local.replace(hour=0, minute=0) + datetime.timedelta(days=1)
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + datetime.timedelta(hours=1)
            elif local.minute not in self.minutes:
                local += _MINUTE
            else:
                aware = local.replace(tzinfo=zone, fold=fold)
                found = aware.timestamp()
                shown = datetime.datetime.fromtimestamp(found, zone).replace(tzinfo=None)
                if shown == local and found > moment:
                    return found
                local += _MINUTE
        return None

    def _on(self, day: datetime.date) -> bool:
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week


def _goes_back(moment: float, zone: datetime.tzinfo) -> bool:
    """Whether clocks are set back around a moment."""
    span = _BACK.total_seconds()
    before, after = (datetime.datetime.fromtimestamp(moment + shift, zone).utcoffset() for shift in (-span, span))
    return before is not None and after is not None and after < before
