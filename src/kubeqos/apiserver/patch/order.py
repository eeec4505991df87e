"""The order of merged lists: items of the patch in the patch's order, the others where the server had them.

Strategic merge interleaves the two by the server's order where both are known to it; an item that is new comes before
the items that only the server has.
"""

from __future__ import annotations

from collections.abc import Hashable
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


def token_of(item: Any, key: str) -> Hashable:
    """The same as something that can be looked up: a client may identify items by anything."""
    value = key_of(item, key)
    return value if isinstance(value, Hashable) else ("", repr(value))


def arrange(merged: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """`merged` with the items named by `wanted` in that order, the others in the order of `before`."""
    asked, known = _positions(wanted, key), _positions(before, key)
    items = [(token_of(item, key), item) for item in merged]
    patched = [pair for pair in items if pair[0] in asked]
    others = [pair for pair in items if pair[0] not in asked]
    patched.sort(key=lambda pair: asked[pair[0]])
    others.sort(key=lambda pair: known.get(pair[0], -1))
    return _interleave(others, patched, known)


def _positions(items: list[Any], key: str) -> dict[Hashable, int]:
    """Where each item stands first."""
    found: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        found.setdefault(token_of(item, key), index)
    return found


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


def _interleave(
    others: list[tuple[Hashable, Any]], patched: list[tuple[Hashable, Any]], known: dict[Hashable, int]
) -> list[Any]:
    out = []
    left, right = 0, 0
    while left < len(others) and right < len(patched):
        a, b = known.get(others[left][0], -1), known.get(patched[right][0], -1)
        if 0 <= a < b:
            out.append(others[left])
            left += 1
        else:
            out.append(patched[right])
            right += 1
    return [item for _, item in out + others[left:] + patched[right:]]
