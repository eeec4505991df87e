"""JSON and YAML at the edges, in one place.

Objects travel as bytes and are decoded to plain dicts (canonical, unknown fields survive) or to msgspec Structs
(read-only views). Nothing else in the code base calls a JSON or YAML library directly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
JsonObject = dict[str, Any]


def _plain_text(value: Any) -> str:
    """A string that knows more than its text is written as its text."""
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"objects of type {type(value).__name__} cannot be encoded")


decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder(enc_hook=_plain_text).encode
encode_json_sorted = msgspec.json.Encoder(enc_hook=_plain_text, order="sorted").encode
JsonError = msgspec.DecodeError
_GO_ESCAPES = tuple((letter.encode(), f"\\u{ord(letter):04x}".encode()) for letter in "&<>\u2028\u2029")


def encode_json_as_go(value: Any) -> bytes:
    """Encode with Go's spelling of letters that HTML knows, for JSON that Go's clients compare byte by byte."""
    written = encode_json(value)
    for letter, escaped in _GO_ESCAPES:  # they occur in strings only, where both spellings mean the same
        if letter in written:
            written = written.replace(letter, escaped)
    return written


def value_at(value: Any, steps: Iterable[str]) -> Any:
    """What stands below a tree of decoded JSON by these names; None where there is nothing on the way."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def copied(value: Any) -> Any:
    """A copy of decoded JSON that shares nothing that can change, in about half the time of `copy.deepcopy`.

    What appears in two places, as YAML's aliases do, is two things in the copy.
    """
    if type(value) is dict:
        return {name: copied(item) if type(item) in _CHANGEABLE else item for name, item in value.items()}
    if type(value) is list:
        return [copied(item) if type(item) in _CHANGEABLE else item for item in value]
    return value


_CHANGEABLE = (dict, list)


def typed_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder of JSON into one Struct; fields that it does not name are skipped without being built."""
    return msgspec.json.Decoder(kind).decode


class JsonNumber(float):
    """A number that remembers how it was written: `1e3` and `1000.0` are different texts of one quantity."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> JsonNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


decode_json_exact = msgspec.json.Decoder(float_hook=JsonNumber).decode
"""Decode with every fractional number as a `JsonNumber`; these cannot be encoded again."""


def decode_json_members(body: bytes) -> dict[str, bytes] | None:
    """The members of an object, each as its own text; None for null."""
    members = _decode_members(body)
    return None if members is None else {name: bytes(token) for name, token in members.items()}


def decode_json_items(body: bytes) -> list[bytes] | None:
    """The items of a list, each as its own text; None for null."""
    items = _decode_items(body)
    return None if items is None else [bytes(token) for token in items]


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


def decode_json_pairs(body: bytes) -> Any:
    """Decode with objects as tuples of (key, value) pairs, so that a key given twice is still seen."""
    return json.loads(body, object_pairs_hook=tuple)


class YamlError(ValueError):
    """A text that is not YAML; the message says what is wrong, `position` where (line, column)."""

    def __init__(self, what: str, position: tuple[int, int] | None = None) -> None:
        super().__init__(what if position is None else f"line {position[0]}, column {position[1]}: {what}")
        self.what = what
        self.position = position


def _marked(error: Any) -> YamlError:
    mark = error.problem_mark or error.context_mark
    return YamlError(error.problem or "cannot be read", (mark.line + 1, mark.column + 1) if mark else None)


def decode_yaml(text: str | bytes) -> Any:
    """One YAML document as JSON values, with scalars read the way kubectl reads them."""
    documents = decode_yaml_all(text)
    if len(documents) > 1:
        raise YamlError("expected a single document in the stream but found another document")
    return documents[0] if documents else None


def decode_yaml_all(text: str | bytes) -> list[Any]:
    """Every document of a YAML stream that is not empty."""
    import yaml  # a process that reads no manifest does not pay for the parser

    try:
        documents = [document for document in yaml.load_all(text, _yaml_loader()) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())) from error
    if (b"*" if isinstance(text, bytes) else "*") in text:  # type: ignore[operator]
        _refuse_excessive_aliases(documents)
    return documents


_MAX_ALIASED_NODES = 1_000_000


def _refuse_excessive_aliases(documents: list[Any]) -> None:
    """A few aliases of aliases can stand for more nodes than fit into memory, or for themselves."""
    counted, waiting = 0, list(documents)
    while waiting:
        value = waiting.pop()
        counted += 1
        if counted > _MAX_ALIASED_NODES:
            raise YamlError("document contains excessive aliasing")
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def compose_yaml(text: str) -> Any:
    """One document as YAML's own nodes, which know their lines; None when there is none. See `kubeqos.document`."""
    import yaml

    try:
        return yaml.compose(text, _yaml_loader())
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())) from error


def construct_yaml(node: Any) -> Any:
    """A node of `compose_yaml` as JSON values."""
    import yaml

    loader = _yaml_loader()("")
    try:
        value = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _marked(error) from error
    finally:
        loader.dispose()
    _refuse_excessive_aliases([value])
    return value


def encode_yaml(value: Any) -> str:
    """A value as block-style YAML, keys in the order given."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True)


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader with the scalars of kubectl: `y` and `on` are true, `1e3` is a number, `12:30` is text.

    A key may stand only once in a map.
    """
    import yaml

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
    loader.add_constructor("tag:yaml.org,2002:map", _yaml_map)
    return loader


def _yaml_int(text: str) -> int:
    digits = text.replace("_", "")
    octal = re.fullmatch(r"([-+]?)0([0-7]+)", digits)
    return int(f"{octal[1]}0o{octal[2]}", 8) if octal else int(digits, 0)


def _yaml_float(text: str) -> int | float:
    """A whole number stays whole, as it does on its way through Go's JSON."""
    value = float(text.replace("_", ""))
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


def _yaml_map(loader: Any, node: Any) -> dict[str, Any]:
    """A map with text keys, as JSON has them."""
    from yaml.constructor import ConstructorError

    loader.flatten_mapping(node)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, bool):
            key = "true" if key else "false"
        elif isinstance(key, int | float):
            key = str(key)
        elif not isinstance(key, str):
            raise ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
        if key in found:
            raise ConstructorError(None, None, f"key {key!r} already set in map", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found
