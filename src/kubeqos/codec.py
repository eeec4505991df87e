"""JSON and YAML at the edges, in one place.

Objects travel as bytes and are decoded to plain dicts (canonical, unknown fields survive) or to msgspec Structs
(read-only views). Nothing else in the code base calls a JSON or YAML library directly.
"""

from __future__ import annotations

from typing import Any

import msgspec

JsonObject = dict[str, Any]

decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode
encode_json_sorted = msgspec.json.Encoder(order="sorted").encode
JsonError = msgspec.DecodeError
