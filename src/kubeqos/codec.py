"""JSON and YAML at the edges, in one place.

Objects travel as bytes and are decoded to plain dicts (canonical, unknown fields survive) or to msgspec Structs
(read-only views). Nothing else in the code base calls a JSON or YAML library directly.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

JsonObject = dict[str, Any]

decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode
encode_json_sorted = msgspec.json.Encoder(order="sorted").encode
JsonError = msgspec.DecodeError


def decode_json_pairs(body: bytes) -> Any:
    """Decode with objects as tuples of (key, value) pairs, so that a key given twice is still seen."""
    return json.loads(body, object_pairs_hook=tuple)
