"""The order of merged lists: items of the patch in the patch's order, the others where the server had them.

Strategic merge interleaves the two by the server's order where both are known to it; an item that is new comes before
the items that only the server has.
"""

from __future__ import annotations

from typing import Any

from kubeqos.apiserver.patch.errors import bad_request, go_print


def key_of(item: Any, key: str) -> Any:
    """What identifies an item: its merge key, or the item itself in a list of primitives."""
    if not key:
        return item
    if not isinstance(item, dict) or key not in item:
        raise bad_request(f"map: {go_print(item)} does not contain declared merge key: {key}")
    return item[key]


def all_maps(*lists: list[Any]) -> bool:
    """True for lists of objects, False for lists of primitives; anything mixed is refused."""
    kinds = {type(item) for items in lists for item in items}
    if list in kinds:
        raise bad_request("lists of lists are not supported")
    if len(kinds) > 1:
        raise bad_request("list element types are not identical")
    return kinds == {dict}


def arrange(merged: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """`merged` with the items named by `wanted` in that order, the others in the order of `before`."""
    wanted_keys = [key_of(item, key) for item in wanted]
    before_keys = [key_of(item, key) for item in before]
    patched = [item for item in merged if key_of(item, key) in wanted_keys]
    others = [item for item in merged if key_of(item, key) not in wanted_keys]
    patched.sort(key=lambda item: wanted_keys.index(key_of(item, key)))
    others.sort(key=lambda item: _position(before_keys, key_of(item, key)))
    return _interleave(others, patched, before_keys, key)


def check_directive(patch: list[Any], wanted: list[Any], key: str) -> None:
    """Every item that the patch sets must stand in $setElementOrder, in the same order."""
    named = iter([key_of(item, key) for item in wanted])
    for item in patch:
        if key and isinstance(item, dict) and "$patch" in item:
            continue
        if key_of(item, key) not in named:
            given, named_order = go_print(patch), go_print(wanted)
            raise bad_request(
                f"The order in patch list:\n{given}\n doesn't match $setElementOrder list:\n{named_order}\n"
            )


def _interleave(others: list[Any], patched: list[Any], before_keys: list[Any], key: str) -> list[Any]:
    out = []
    left, right = 0, 0
    while left < len(others) and right < len(patched):
        a = _position(before_keys, key_of(others[left], key))
        b = _position(before_keys, key_of(patched[right], key))
        if 0 <= a < b:
            out.append(others[left])
            left += 1
        else:
            out.append(patched[right])
            right += 1
    return out + others[left:] + patched[right:]


def _position(keys: list[Any], key: Any) -> int:
    return keys.index(key) if key in keys else -1
