"""Sets of fields in the form that managedFields stores: FieldsV1.

A set is a tree of plain dicts. A key is one step of a path: `f:name` a field, `k:{"name":"a"}` an item of a list with
keys, `v:"x"` a member of a list of values. A node belongs to the set if it has no children or a child named ".". The
empty set is the empty tree. Nothing here changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeqos.codec import JsonError, decode_json
from kubeqos.model.text.gotext import quote

# A nested dict: step -> FieldSet.
FieldSet = dict[str, Any]
MEMBER = "."
MAX_DEPTH = 100


def is_member(node: FieldSet) -> bool:
    """True if the path that ends in this node is in the set."""
    return not node or MEMBER in node


def is_field_set(value: Any, depth: int = 0) -> bool:
    """True if a value that a client wrote has the form of a set."""
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return False
    return all(_is_step(step) and is_field_set(below, depth + 1) for step, below in value.items())


def _is_step(step: str) -> bool:
    kind, _, rest = step.partition(":")
    if kind in ("k", "v"):
        try:
            value = decode_json(rest)
        except JsonError:
            return False
        return kind == "v" or isinstance(value, dict)
    return step == MEMBER or kind in ("f", "i")


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Paths that are in either set."""
    if not a or not b:
        return a or b
    out = dict(a)
    for step, right in b.items():
        left = a.get(step)
        out[step] = (
            right if left is None else _node(union(_below(left), _below(right)), is_member(left) or is_member(right))
        )
    return out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Paths of `a` that are not in `b`."""
    if not b:
        return a
    out: FieldSet = {}
    for step, left in a.items():
        right = b.get(step)
        if right is None:
            out[step] = left
            continue
        below = difference(_below(left), _below(right))
        member = is_member(left) and not is_member(right)
        if below or member:
            out[step] = _node(below, member)
    return out


def recursive_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Paths of `a` that are neither in `b` nor below a path of `b`."""
    out: FieldSet = {}
    for step, left in a.items():
        right = b.get(step)
        if right is None:
            out[step] = left
        elif not is_member(right):
            below, member = recursive_difference(_below(left), right), is_member(left)
            if below or member:
                out[step] = _node(below, member)
    return out


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Paths that are in both sets."""
    out: FieldSet = {}
    for step, left in a.items():
        right = b.get(step)
        if right is None:
            continue
        below = intersection(_below(left), _below(right))
        member = is_member(left) and is_member(right)
        if below or member:
            out[step] = _node(below, member)
    return out


def leaves(fields: FieldSet, path: str = "") -> Iterator[str]:
    """The paths that have nothing below them, printed and in order."""
    for step in sorted(_below(fields)):
        node = fields[step]
        here = path + printed(step)
        if below := _below(node):
            yield from leaves(below, here)
        else:
            yield here


def printed(step: str) -> str:
    """A step as messages show it: `.data`, `[name="main"]`, `[="x"]`."""
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        return "[" + ",".join(f"{name}={_value(value)}" for name, value in decode_json(rest).items()) + "]"
    return f"[={_value(decode_json(rest))}]" if kind == "v" else f"[{rest}]"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else str(value)


def _below(node: FieldSet) -> FieldSet:
    if MEMBER not in node:
        return node
    return {step: child for step, child in node.items() if step != MEMBER}


def _node(below: FieldSet, member: bool) -> FieldSet:
    if member and below:
        return {MEMBER: {}, **below}
    return below
