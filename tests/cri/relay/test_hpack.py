"""HPACK: the examples of RFC 7541 Appendix C, and what is encoded is decoded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.relay.hpack import STATIC_TABLE, Decoder, HpackError, encode, huffman_decode


def test_the_static_table_has_the_numbers_of_the_rfc():
    assert len(STATIC_TABLE) == 61
    assert STATIC_TABLE[2 - 1] == (b":method", b"GET")
    assert STATIC_TABLE[16 - 1] == (b"accept-encoding", b"gzip, deflate")
    assert STATIC_TABLE[31 - 1] == (b"content-type", b"")
    assert STATIC_TABLE[58 - 1] == (b"user-agent", b"")
    assert STATIC_TABLE[61 - 1] == (b"www-authenticate", b"")


REQUEST = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com"))

# RFC 7541 C.3 (plain) and C.4 (Huffman): three requests on one connection.
SEQUENCES = [
    (
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ),
    (
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ),
]


@pytest.mark.parametrize("blocks", SEQUENCES, ids=["plain", "huffman"])
def test_requests_of_the_rfc(blocks):
    decoder = Decoder()
    first, second, third = (decoder.decode(bytes.fromhex(block)) for block in blocks)
    assert first == REQUEST
    assert second == (*REQUEST, (b"cache-control", b"no-cache"))
    assert third == (
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    )


def test_responses_of_the_rfc_evict_from_a_small_table():
    """C.5: a table of 256 bytes."""
    decoder = Decoder(256)
    blocks = (
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
        "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
    )
    assert decoder.decode(bytes.fromhex(blocks[0]))[0] == (b":status", b"302")
    second = decoder.decode(bytes.fromhex(blocks[1]))
    assert second == (
        (b":status", b"307"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    )


@pytest.mark.parametrize(
    "block",
    ["ff", "80", "bf", "40", "400a61", "4083ffffff00", "3fe1ff03", "0085ffffffffff00"],
)
def test_garbage_is_refused(block):
    with pytest.raises(HpackError):
        Decoder().decode(bytes.fromhex(block))


def test_huffman_padding_must_be_ones():
    assert huffman_decode(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    with pytest.raises(HpackError):
        huffman_decode(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4fe"))


NAMES = st.sampled_from([b":path", b"grpc-status", b"content-type", b"x-bin"]) | st.binary(min_size=1, max_size=200)


@given(st.lists(st.tuples(NAMES, st.binary(max_size=300)), max_size=12))
@settings(max_examples=100)
def test_what_is_encoded_is_decoded_whatever_came_before(headers):
    decoder = Decoder()
    for _ in range(2):
        assert decoder.decode(encode(tuple(headers))) == tuple(headers)
