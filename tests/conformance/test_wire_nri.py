"""NRI's messages, and one recorded connection between a real plugin and a real runtime, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.nri.framing import Frames, Message, Messages, MessageType, frames
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.nri.proto import ttrpc_pb2 as ttrpc
from tests.conformance.recorded import cases
from tests.conformance.wire import (
    Case,
    built,
    check_both_directions,
    identify,
    knows_every_field,
    parsed,
    same_value,
)

RECORDED = cases("nri_wire")
MESSAGES = [case for case in RECORDED if "message" in case]
FRAMES = [case for case in RECORDED if case.get("kind") == "transcript" and "hex" in case]


@pytest.mark.parametrize("case", MESSAGES, ids=identify)
def test_bytes_are_equal_in_both_directions(case: Case) -> None:
    assert nri.DESCRIPTOR.package == "nri.pkg.api.v1alpha1"
    check_both_directions(case)


class TestTheRecordedConnection:
    def test_each_frame_completes_the_messages_that_were_seen(self) -> None:
        streams: dict[tuple[str, int], Messages] = {}
        cutting = {"plugin->runtime": Frames(), "runtime->plugin": Frames()}
        for case in FRAMES:
            [(stream, payload)] = cutting[case["dir"]].feed(bytes.fromhex(case["hex"]))
            assert (stream, len(payload)) == (case["mux"]["conn"], case["mux"]["length"])
            messages = streams.setdefault((case["dir"], stream), Messages())
            completed = list(messages.feed(payload))
            assert [(m.stream, m.type, len(m.data)) for m in completed] == [
                (seen["stream"], seen["type"], seen["length"]) for seen in case["ttrpc"]
            ]
            assert messages.pending == case.get("pending", 0)
            for message, seen in zip(completed, case["ttrpc"], strict=True):
                carries_what_was_seen(message, seen)

    def test_bytes_may_come_in_any_pieces(self) -> None:
        whole = b"".join(bytes.fromhex(case["hex"]) for case in FRAMES if case["dir"] == "runtime->plugin")
        at_once = list(Frames().feed(whole))
        cutting = Frames()
        one_by_one = [frame for offset in range(len(whole)) for frame in cutting.feed(whole[offset : offset + 1])]
        assert one_by_one == at_once

    def test_what_we_would_send_is_the_same_stream_in_frames_that_every_peer_takes(self) -> None:
        for case in FRAMES:
            for seen in case["ttrpc"]:
                message = Message(seen["stream"], seen["type"], b"x" * seen["length"])
                sent = list(Frames().feed(frames(case["mux"]["conn"], message.encode())))
                assert {stream for stream, _ in sent} == {case["mux"]["conn"]}
                assert b"".join(payload for _, payload in sent) == message.encode()
                assert max(len(payload) for _, payload in sent) <= 4096


def carries_what_was_seen(message: Message, seen: dict[str, Any]) -> None:
    envelope: ttrpc.Request | ttrpc.Response
    if message.type == MessageType.REQUEST:
        envelope = ttrpc.Request.FromString(message.data)
        told = seen["request"]
        assert (envelope.service, envelope.method) == (told["service"], told["method"])
        assert envelope.timeout_nano == int(told.get("timeout_nano", 0))
        assert [(pair.key, pair.value) for pair in envelope.metadata] == [
            (pair["key"], pair["value"]) for pair in told.get("metadata", ())
        ]
    else:
        envelope = ttrpc.Response.FromString(message.data)
        status = seen["response"].get("status", {})
        assert (envelope.status.code, envelope.status.message) == (status.get("code", 0), status.get("message", ""))
    case = {"message": seen["payload"]["message"], "json": seen["payload"]["json"], "hex": envelope.payload.hex()}
    assert same_value(parsed(case), built(case))
    assert knows_every_field(parsed(case))
