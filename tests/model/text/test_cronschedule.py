"""Schedules: what cron means by them, and when they come next."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest

from kubeqos.errors import InputError
from kubeqos.model.text.cronschedule import CronSchedule

UTC = datetime.UTC
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: datetime.tzinfo = UTC) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "due"),
    [
        ("* * * * *", "2026-03-04T10:20:30", "2026-03-04T10:21:00"),
        ("* * * * *", "2026-03-04T10:20:00", "2026-03-04T10:21:00"),
        ("*/15 * * * *", "2026-03-04T10:20:00", "2026-03-04T10:30:00"),
        ("5/20 * * * *", "2026-03-04T10:26:00", "2026-03-04T10:45:00"),
        ("0 9-17/4 * * *", "2026-03-04T10:00:00", "2026-03-04T13:00:00"),
        ("30 8 * * mon-fri", "2026-03-06T09:00:00", "2026-03-09T08:30:00"),  # from Friday to Monday
        ("0 0 31 * *", "2026-04-01T00:00:00", "2026-05-31T00:00:00"),
        ("0 0 29 feb *", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 13 * fri", "2026-03-01T00:00:00", "2026-03-06T00:00:00"),  # either of both days
        ("0 0 13 * ?", "2026-03-01T00:00:00", "2026-03-13T00:00:00"),
        ("0 0 * * 7", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),  # Sunday is 0 and 7
        ("0 0 1,15 JAN,jul *", "2026-01-16T00:00:00", "2026-07-01T00:00:00"),
        ("@hourly", "2026-03-04T10:20:00", "2026-03-04T11:00:00"),
        ("@daily", "2026-03-04T10:20:00", "2026-03-05T00:00:00"),
        ("@weekly", "2026-03-04T10:20:00", "2026-03-08T00:00:00"),
        ("@monthly", "2026-03-04T10:20:00", "2026-04-01T00:00:00"),
        ("@yearly", "2026-03-04T10:20:00", "2027-01-01T00:00:00"),
        ("@every 1h30m", "2026-03-04T10:20:00", "2026-03-04T11:50:00"),
    ],
)
def test_when_a_schedule_comes_next(schedule: str, after: str, due: str) -> None:
    assert CronSchedule.parse(schedule).after(at(after), UTC) == at(due)


def test_a_zone_has_its_own_midnight() -> None:
    found = CronSchedule.parse("@daily").after(at("2026-07-01T12:00:00"), BERLIN)
    assert found == at("2026-07-01T22:00:00")


def test_an_hour_that_is_left_out_has_no_jobs() -> None:
    """On 29 March 2026 clocks go from 2 to 3 in Berlin: half past two comes the day after."""
    found = CronSchedule.parse("30 2 * * *").after(at("2026-03-28T12:00:00"), BERLIN)
    assert found == at("2026-03-30T02:30:00", BERLIN)


def test_an_hour_that_comes_twice_has_its_jobs_twice() -> None:
    schedule = CronSchedule.parse("30 2 * * *")
    first = schedule.after(at("2026-10-25T00:00:00", BERLIN), BERLIN)
    assert first == at("2026-10-25T00:30:00")  # still summer
    second = schedule.after(first, BERLIN)
    assert second == at("2026-10-25T01:30:00")  # an hour later, in winter
    assert schedule.after(second, BERLIN) == at("2026-10-26T02:30:00", BERLIN)


def test_half_hours_while_the_clocks_go_back() -> None:
    schedule, moment = CronSchedule.parse("*/30 * * * *"), at("2026-10-24T23:00:00")
    for _ in range(8):
        following = schedule.after(moment, BERLIN)
        assert following == moment + 1800
        moment = following


def test_a_day_that_never_comes() -> None:
    assert CronSchedule.parse("0 0 30 2 *").after(at("2026-01-01T00:00:00"), UTC) is None


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("", "expected exactly 5 fields, found 0"),
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "end of range is beyond its bounds"),
        ("* * 0 * *", "beginning of range is beyond its bounds"),
        ("5-1 * * * *", r"beginning of range \(5\) beyond end of range \(1\)"),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("a * * * *", "failed to parse int from a"),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("@every soon", "'soon' is not a duration"),
    ],
)
def test_what_is_no_schedule(schedule: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        CronSchedule.parse(schedule)
