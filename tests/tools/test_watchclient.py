"""The client of `bench.watchers` believes nobody: however an answer is cut it sees every byte, and every wrong one."""

from __future__ import annotations

import itertools
import socket
import ssl
from typing import cast

import pytest
from bench.watchclient import Stream, Watcher
from hypothesis import given
from hypothesis import strategies as st

lines = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b" ") + b"\n"), min_size=1, max_size=12)


def watcher() -> Watcher:
    return Watcher(cast(socket.socket, None), cast(ssl.SSLObject, None))


def answer(content: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in content)


def read(reader: Watcher, stream: Stream, raw: bytes, cuts: list[int]) -> None:
    """Give an answer in pieces, as records of TLS cut it."""
    places = sorted({0, len(raw), *(cut % len(raw) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        reader.take(memoryview(raw)[start:end], stream)


@given(lines, lines, st.lists(st.integers(0, 2000)), st.lists(st.integers(0, 2000)))
def test_everybody_sees_the_same_however_it_was_cut(
    first: list[bytes], more: list[bytes], cuts: list[int], others: list[int]
) -> None:
    everything = b"".join(first + more)
    stream = Stream(expected=len(first + more))
    ahead, behind = watcher(), watcher()
    read(ahead, stream, answer(first), cuts)
    assert stream.complete is not bool(more)
    read(behind, stream, answer([b"".join(first), b"".join(more)]), others)  # it overtakes the other
    read(ahead, stream, answer(more), cuts)
    assert stream.complete
    assert bytes(stream.content) == everything
    assert ahead.position == behind.position == len(everything)


@pytest.mark.parametrize("wrong", [[b"one\n", b"three\n"], [b"one\n", b"one\n"], [b"two\n", b"one\n"]])
def test_an_event_too_few_twice_or_in_another_order_is_noticed(wrong: list[bytes]) -> None:
    stream = Stream(expected=3)
    read(watcher(), stream, answer([b"one\n", b"two\n", b"three\n"]), [])
    with pytest.raises(AssertionError, match="another stream"):
        read(watcher(), stream, answer(wrong), [])
