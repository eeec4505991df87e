"""How a recorded message is compared with ours: by bytes, in both directions.

Shared by the test_wire_* files. Maps have no order on the wire, so cases with a map of several keys are
compared after decoding; everything else must be equal byte for byte.
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Case = dict[str, Any]


def message_class(name: str) -> type[Message]:
    """Our class of a full protobuf name; the caller has imported the module that declares it."""
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))


def is_entry_list(field: FieldDescriptor) -> bool:
    """A map that our .proto declares as repeated entries, to tell an absent value from an empty one."""
    kind = field.message_type
    return (
        field.is_repeated
        and kind is not None
        and not kind.GetOptions().map_entry
        and kind.name.endswith("Entry")
        and [f.name for f in kind.fields] == ["key", "value"]
    )


def as_declared(descriptor: Descriptor, json: Any) -> Any:
    """Recorded JSON, maps turned into entry lists where our schema has those, nil values left out."""
    out: dict[str, Any] = {}
    for name, value in json.items():
        field = descriptor.fields_by_name[name]
        kind = field.message_type
        if kind is None:
            out[name] = value
        elif is_entry_list(field):
            inner = kind.fields_by_name["value"].message_type
            out[name] = [
                {"key": key} | ({} if v is None else {"value": as_declared(inner, v)}) for key, v in value.items()
            ]
        elif kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            out[name] = value if inner is None else {k: as_declared(inner, v or {}) for k, v in value.items()}
        elif field.is_repeated:
            out[name] = [as_declared(kind, item) for item in value]
        else:
            out[name] = as_declared(kind, value)
    return out


def built(case: Case) -> Message:
    """Our message made from the recorded JSON form."""
    message = message_class(case["message"])()
    json_format.ParseDict(as_declared(message.DESCRIPTOR, case["json"]), message)
    return message


def parsed(case: Case, field: str = "hex") -> Message:
    """Our message read from the recorded bytes."""
    return message_class(case["message"]).FromString(bytes.fromhex(case[field]))


def identify(case: Case) -> str:
    """The name of a case: its message, without the package, and how many bytes it has."""
    return f"{case['message'].rpartition('.')[2]}-{len(case['hex']) // 2}"


def check_both_directions(case: Case) -> None:
    """The recorded bytes mean the recorded message, and the message gives the bytes."""
    read, made = parsed(case), built(case)
    assert knows_every_field(read)
    assert same_value(read, made)
    if not case.get("multi_key"):
        assert read.SerializeToString(deterministic=True).hex() == case["hex"]
        assert made.SerializeToString(deterministic=True).hex() == case["hex"]


def knows_every_field(message: Message) -> bool:
    """Nothing is outside our schema: a wrong number or type would hide in the unknown fields."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() == message.ByteSize()


def same_value(left: Message, right: Message) -> bool:
    """Equal as values: NaN equals NaN, and maps have no order."""
    return plain(left) == plain(right)


def plain(message: Message) -> dict[str, Any]:
    """The fields that are set, as plain values; of map entries with the same key the last one counts."""
    return {field.name: _plain_field(field, value) for field, value in message.ListFields()}


def _plain_field(field: FieldDescriptor, value: Any) -> Any:
    if is_entry_list(field):
        return {entry.key: plain(entry.value) if entry.HasField("value") else None for entry in value}
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: _plain_item(item) for key, item in value.items()}
    return [_plain_item(item) for item in value] if field.is_repeated else _plain_item(value)


def _plain_item(item: Any) -> Any:
    if isinstance(item, Message):
        return plain(item)
    return "NaN" if isinstance(item, float) and math.isnan(item) else item
