"""The QoS resource plugin protocol has the bytes of the plugins in production."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from kubeqos.qrm.proto import resourceplugin_pb2 as qrm
from tests.conformance.recorded import cases
from tests.conformance.wire import Case, built, knows_every_field, parsed, same_value

CASES = cases("qrm_wire")
ENCODED = [case for case in CASES if "kind" not in case]
DECODED = [case for case in CASES if case.get("kind") == "decode"]

# Where the real code does what no standard protobuf runtime does, or the bytes have no single form.
OTHER_BYTES = {
    "value nil": "a map value that is absent, in maps whose values are never absent in meaning",
    "one nil": "the same, beside other entries",
    ": nil": "the same, in a longer list",
    "double -0 dropped": "the real code drops a negative zero",
    "double NaN": "NaN has many bit patterns",
    "map-order": "the order of a map is not fixed",
}


def identify(case: Case) -> str:
    return f"{case['message'].rpartition('.')[2]}-{case.get('note') or len(case['hex']) // 2}"


def bytes_are_fixed(case: Case) -> bool:
    hints = case["message"].endswith("HintsResponse")  # here an absent value is told from an empty one
    note = case.get("note", "")
    free = [part for part in OTHER_BYTES if part in note and not (hints and "nil" in part)]
    return not case.get("multi_key") and not free


@pytest.mark.parametrize("case", ENCODED, ids=identify)
def test_bytes_are_equal_in_both_directions(case: Case) -> None:
    read, made = parsed(case), built(case)
    assert knows_every_field(read)
    if "double -0 dropped" not in case.get("note", ""):
        assert same_value(read, made)
    if bytes_are_fixed(case):
        assert read.SerializeToString(deterministic=True).hex() == case["hex"]
        assert made.SerializeToString(deterministic=True).hex() == case["hex"]


# Malformed input on which every standard protobuf runtime, ours too, differs from the real decoder.
DIFFERENT_ON_PURPOSE = {
    "wrong wire type": "the field is kept as unknown instead of refused",
    "entry: value twice": "the two values are merged instead of the last one taken",
}
# Only in maps that are declared as maps: there our runtime sets the whole entry aside.
DIFFERENT_IN_MAPS = {"entry with an unknown field": "the entry is kept as unknown instead of read without the field"}


@pytest.mark.parametrize("case", DECODED, ids=identify)
def test_odd_bytes_are_understood_as_the_real_decoder_does(case: Case) -> None:
    different = [*DIFFERENT_ON_PURPOSE, *({} if case["message"].endswith("HintsResponse") else DIFFERENT_IN_MAPS)]
    if any(note in case["note"] for note in different):
        assert parsed(case).SerializeToString(), "read without an error, and nothing of it is lost"
    elif "error" in case:
        with pytest.raises(DecodeError):
            parsed(case)
    else:
        assert same_value(parsed(case), built(case))


def test_no_preference_and_no_possible_node_are_different_on_the_wire() -> None:
    anywhere = qrm.ResourceHintsEntry(key="cpu")
    nowhere = qrm.ResourceHintsEntry(key="cpu", value=qrm.ListOfTopologyHints())
    assert anywhere.SerializeToString() == b"\x0a\x03cpu"
    assert nowhere.SerializeToString() == b"\x0a\x03cpu\x12\x00"
    assert not qrm.ResourceHintsEntry.FromString(b"\x0a\x03cpu").HasField("value")
