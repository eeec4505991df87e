"""Messages with anything in any of their fields: what peers that are broken or hostile could send.

Made from the descriptors, so that a field that is added is filled too.
"""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

texts = st.one_of(
    st.sampled_from(["", "cpu", "x.io/a", "0-3", "0-999999999", "A=B", "/dev/x", "../x", "\0", "uid-web", "web"]),
    st.sampled_from(["CpusetCpus", "CpusetMems", "OomScoreAdj", "Unified", "HugepageLimits", "CpuShares", "-5", "1e9"]),
    st.sampled_from(['{"io.max": "1"}', '{"2MB": 1}', "container0", "exclusive", "any", "4"]),
    st.sampled_from(["0", "0-1", "2-3", "7", "8", "0,0", "-1", "1-0", "0-,x", " 0", "0\n", "[]", '{"cores": ["2"]}']),
    st.text(max_size=12),
    st.integers(0, 9).map(lambda power: "x" * 4**power),
)
doubles = st.one_of(st.floats(), st.sampled_from([0.0, 1.0, 2.0, 2.5, -3.0, math.inf, math.nan, 2.0**63, 1e308]))
unsigned = st.one_of(st.integers(0, 3), st.sampled_from([77, 65535, 65536, 2**31, 2**32 - 1]))
NUMBERS = {
    FieldDescriptor.CPPTYPE_STRING: texts,
    FieldDescriptor.CPPTYPE_DOUBLE: doubles,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_UINT32: unsigned,
    FieldDescriptor.CPPTYPE_UINT64: unsigned | st.just(2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 5),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
}


@st.composite
def filled(draw: st.DrawFn, kind: type[Any], depth: int = 0) -> Any:
    """A message with anything in any of its fields."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        _fill(draw, message, field, depth)
    return message


def _fill(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    count = draw(st.integers(0, 2 if depth < 2 else 1))
    inner: Descriptor | None = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        for _ in range(count):
            name, table = draw(NUMBERS[key.cpp_type]), getattr(message, field.name)
            if value.message_type is None:
                table[name] = draw(NUMBERS[value.cpp_type])
            else:
                table[name].CopyFrom(draw(filled(value.message_type._concrete_class, depth + 1)))
    elif inner is not None:
        made = [draw(filled(inner._concrete_class, depth + 1)) for _ in range(count)]
        if field.is_repeated:
            getattr(message, field.name).extend(made)
        elif made:
            getattr(message, field.name).CopyFrom(made[0])
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(NUMBERS[field.cpp_type]) for _ in range(count))
    elif count:
        setattr(message, field.name, draw(NUMBERS[field.cpp_type]))
