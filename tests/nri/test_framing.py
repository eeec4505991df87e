"""Bytes from anybody: cut right when they are NRI, refused with one error when they are not."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.nri.framing import LONGEST_MESSAGE, Frames, Message, Messages, NriProtocolError, frames

messages = st.builds(Message, st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=9000))


@given(st.lists(st.tuples(st.sampled_from([1, 2]), messages), max_size=6), st.integers(1, 5000))
def test_what_is_sent_arrives_whatever_the_pieces(sent: list[tuple[int, Message]], piece: int) -> None:
    wire = b"".join(frames(stream, message.encode()) for stream, message in sent)
    cutting, streams = Frames(), {1: Messages(), 2: Messages()}
    got = [
        (stream, message)
        for start in range(0, len(wire), piece)
        for stream, payload in cutting.feed(wire[start : start + piece])
        for message in streams[stream].feed(payload)
    ]
    assert got == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_cut_or_refused(data: bytes) -> None:
    streams = {1: Messages(), 2: Messages()}
    try:
        for stream, payload in Frames().feed(data):
            for message in streams[stream].feed(payload):
                assert len(message.data) <= LONGEST_MESSAGE
    except NriProtocolError as refused:
        assert refused.what


@pytest.mark.parametrize("header", [(0, 4), (3, 4), (1, LONGEST_MESSAGE + 11), (2, 2**32 - 1)])
def test_a_frame_that_cannot_be_is_refused_before_it_is_awaited(header: tuple[int, int]) -> None:
    with pytest.raises(NriProtocolError):
        list(Frames().feed(struct.pack(">II", *header)))


def test_a_message_that_is_too_long_is_refused_before_it_is_awaited() -> None:
    with pytest.raises(NriProtocolError):
        list(Messages().feed(struct.pack(">IIBB", LONGEST_MESSAGE + 1, 1, 1, 0)))
