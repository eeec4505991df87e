"""JSON and YAML at the edges, in one place.

Objects travel as bytes and are decoded to plain dicts (canonical, unknown fields survive) or to msgspec Structs
(read-only views). Nothing else in the code base calls a JSON or YAML library directly.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec

JsonObject = dict[str, Any]


class YamlError(ValueError):
    """A text that is not YAML; the message says where."""


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader with the scalars of kubectl: `y` and `on` are true, `1e3` is a number, `12:30` is text."""
    import yaml  # a CLI that reads no manifest does not pay for the parser

    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"yaml_implicit_resolvers": {}})
    patterns = (
        ("bool", r"true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF|y|Y|yes|Yes|YES|n|N|no|No|NO", "tTfFoOyYnN"),
        ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
        ("float", r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("merge", r"<<", "<"),
    )
    for name, pattern, first in patterns:
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), list(first))
    truths = ("true", "on", "y", "yes")
    loader.add_constructor("tag:yaml.org,2002:bool", lambda _l, node: node.value.lower() in truths)
    loader.add_constructor("tag:yaml.org,2002:int", lambda _l, node: _yaml_int(node.value))
    loader.add_constructor("tag:yaml.org,2002:float", lambda _l, node: _yaml_float(node.value))
    return loader


def _yaml_int(text: str) -> int:
    digits = text.replace("_", "")
    octal = re.fullmatch(r"([-+]?)0([0-7]+)", digits)
    return int(f"{octal[1]}0o{octal[2]}", 8) if octal else int(digits, 0)


def _yaml_float(text: str) -> int | float:
    """A whole number stays whole, as it does on its way through Go's JSON."""
    value = float(text.replace("_", ""))
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


def decode_yaml(text: str | bytes) -> Any:
    """One YAML document as JSON values, with scalars read the way kubectl reads them."""
    import yaml

    try:
        return yaml.load(text, _yaml_loader())
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise YamlError(" ".join(str(error).split())) from error


def encode_yaml(value: Any) -> bytes:
    """A value as a YAML document with sorted keys."""
    import yaml

    return yaml.safe_dump(value, sort_keys=True, allow_unicode=True, default_flow_style=False).encode()


decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode
encode_json_sorted = msgspec.json.Encoder(order="sorted").encode
JsonError = msgspec.DecodeError


def decode_json_pairs(body: bytes) -> Any:
    """Decode with objects as tuples of (key, value) pairs, so that a key given twice is still seen."""
    return json.loads(body, object_pairs_hook=tuple)
