"""Container logs in the CRI's form: what of them a request gets."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import InputError
from kubeqos.node.server.logs import LogOptions, Selector, parse_line, read_log, tail_offset

T1, T2, T3 = (f"2026-11-15T10:00:0{n}.000000000Z" for n in (1, 2, 3))
LOG = (
    f"{T1} stdout F one\n{T2} stderr P two is \n{T2} stderr F longer\ntorn line\n{T3} stdout F \n{T3} stdout F last\n"
).encode()


def shown(text: bytes, **query: str) -> bytes:
    options = LogOptions.of({key: [value] for key, value in query.items()}, now=1794736805.0)
    start = tail_offset(io.BytesIO(text), options.tail_lines) if options.tail_lines is not None else 0
    return b"".join(Selector(options).select(text[start:].split(b"\n")[:-1]))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, b"one\ntwo is longer\n\nlast\n"),
        ({"tailLines": "2"}, b"\nlast\n"),
        ({"tailLines": "3"}, b"two is longer\n\nlast\n"),
        ({"tailLines": "0"}, b""),
        ({"tailLines": "99"}, b"one\ntwo is longer\n\nlast\n"),
        ({"stream": "Stderr"}, b"two is longer\n"),
        ({"limitBytes": "6"}, b"one\ntw"),
        ({"sinceTime": "2026-11-15T10:00:03Z"}, b"\nlast\n"),
        ({"timestamps": "true", "tailLines": "1"}, f"{T3} last\n".encode()),
        ({"timestamps": "true", "stream": "Stderr"}, f"{T2} two is longer\n".encode()),
    ],
)
def test_what_a_request_gets(query: dict[str, str], expected: bytes) -> None:
    assert shown(LOG, **query) == expected


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "many"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-11-15T10:00:03Z", "sinceSeconds": "5"},
        {"stream": "Both"},
    ],
)
def test_what_cannot_be_meant_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(InputError):
        LogOptions.of({key: [value] for key, value in query.items()}, now=0.0)


def test_since_seconds_counts_back_from_now() -> None:
    assert LogOptions.of({"sinceSeconds": ["60"]}, now=1_000_000.0).since == "1970-01-12T13:45:40Z"


@pytest.mark.parametrize("line", [b"", b"x", b"time stdout", b"time stdin F text"])
def test_lines_of_another_form_are_left_out(line: bytes) -> None:
    assert parse_line(line) is None


_line = st.tuples(st.sampled_from(["F", "P"]), st.text("ab \r", max_size=9000))


@settings(max_examples=80, deadline=None)
@given(st.lists(_line, max_size=40), st.integers(0, 45))
def test_the_tail_is_the_end_of_the_whole(lines: list[tuple[str, str]], count: int) -> None:
    text = "".join(f"{T1} stdout {tag} {words}\n" for tag, words in lines).encode()
    whole = shown(text).decode()
    tail = shown(text, tailLines=str(count)).decode()
    assert whole.endswith(tail)
    complete = whole.count("\n")
    assert tail.count("\n") == min(count, complete)


async def test_following_ends_when_the_container_does(tmp_path: Path) -> None:
    path, live = tmp_path / "0.log", [True]
    found = bytearray()

    async def follow() -> None:
        async for chunk in read_log(path, LogOptions(follow=True), lambda: live[0]):
            found.extend(chunk)

    reader = asyncio.create_task(follow())
    for number, end in ((1, ""), (2, "\n")):
        await asyncio.sleep(0.15)
        with path.open("a") as file:
            file.write(f"\n{T1} stdout F line {number}{end}".removeprefix("\n" if number == 1 else ""))
    live[0] = False
    await asyncio.wait_for(reader, 5)
    assert found == b"line 1\nline 2\n"


async def test_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert [chunk async for chunk in read_log(tmp_path / "no.log", LogOptions(), lambda: True)] == []
