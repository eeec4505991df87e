"""Strategic merge patch: a merge patch that knows the lists of the API and takes directives.

The patch of `kubectl apply`, `edit`, `patch`, `cordon`. Lists with a merge key in the schema are merged item by item;
`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/x` and `$setElementOrder/x` steer the merge. Null removes a field.
See "Update API Objects in Place Using kubectl patch" in the Kubernetes documentation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubeqos.apiserver.patch import order
from kubeqos.apiserver.patch.errors import bad_request, go_print, require_object
from kubeqos.codec import JsonObject
from kubeqos.model.schema import Field, TypeSchema

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_PREFIX = "$deleteFromPrimitiveList"
ORDER_PREFIX = "$setElementOrder"


def strategic_merge(base: JsonObject, patch: Any, schema: TypeSchema) -> JsonObject:
    """The object with the patch merged in."""
    require_object(patch)
    return _merge_map(base, patch, schema) if patch else base


def _merge_map(original: JsonObject, patch: JsonObject, schema: TypeSchema | None) -> JsonObject:
    """A new map; what the patch does not mention is shared with the original."""
    original, patch = dict(original), dict(patch)
    if DIRECTIVE in patch:
        return _whole_map(patch)
    _retain_keys(original, patch)
    _ordered_lists(original, patch, schema)
    for key, value in patch.items():
        deletes = key.startswith(DELETE_PREFIX)
        if deletes:
            key = _named_list(key, DELETE_PREFIX, "primitive list")
        if value is None:
            original.pop(key, None)
        elif key not in original:
            if not deletes and (kept := without_directives(value)) is not _DROPPED:
                original[key] = kept
        elif type(value) is not type(original[key]):
            if not deletes:
                original[key] = _without_nulls(value)
        else:
            original[key] = _merge_value(original[key], value, _field(schema, key), deletes)
    return original


def _merge_value(original: Any, patch: Any, field: Field | None, deletes: bool) -> Any:
    """Merge two values of the same JSON type."""
    strategies = field.patch if field else ()
    if isinstance(patch, dict):
        return (
            patch
            if "replace" in strategies
            else _merge_map(original, patch, field.shape.object_type if field else None)
        )
    if isinstance(patch, list) and (deletes or "merge" in strategies):
        return _merge_list(original, patch, field, deletes)
    return patch


def _whole_map(patch: JsonObject) -> JsonObject:
    """A map that carries $patch is not merged."""
    directive = patch.pop(DIRECTIVE)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    raise bad_request(f"unknown patch type: {go_print(directive)} in map: {go_print({DIRECTIVE: directive, **patch})}")


def _retain_keys(original: JsonObject, patch: JsonObject) -> None:
    """$retainKeys: fields that it does not name go away, as when a union changes its member."""
    if RETAIN_KEYS not in patch:
        return
    keep = patch.pop(RETAIN_KEYS)
    if not isinstance(keep, list):
        raise bad_request("invalid patch format of retainKeys")
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_PREFIX, ORDER_PREFIX)) and key not in keep:
            raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in keep]:
        del original[key]


def _ordered_lists(original: JsonObject, patch: JsonObject, schema: TypeSchema | None) -> None:
    """$setElementOrder/x: merge list x now, and give it the order that the directive names."""
    for directive in [key for key in patch if key.startswith(ORDER_PREFIX)]:
        wanted = patch.pop(directive)
        name = _named_list(directive, ORDER_PREFIX, "setElementOrder list")
        before, change = original.get(name), patch.pop(name, None)
        if not isinstance(wanted, list) or not isinstance(before or [], list) or not isinstance(change or [], list):
            raise bad_request("invalid patch format of setElementOrder list")
        field = _field(schema, name)
        key = field.merge_key if field else ""
        order.check_directive(change or [], wanted, key)
        if before is None and change is None:
            continue
        if before is None:
            merged = without_directives(change)
        elif change is None:
            merged = before
        else:
            merged = _merge_value(before, change, field, deletes=False)
        original[name] = order.arrange(merged, wanted, before or [], key)


def _merge_list(original: list[Any], patch: list[Any], field: Field | None, deletes: bool) -> list[Any]:
    if not original and not patch:
        return original
    if not order.all_maps(original, patch):
        if deletes:
            gone = {order.token_of(item, "") for item in patch}
            return [item for item in original if order.token_of(item, "") not in gone]
        merged = list(dict.fromkeys([*original, *patch]))
        return order.arrange(merged, patch, original, "")
    key = field.merge_key if field else ""
    if not key:
        raise bad_request("cannot merge lists without merge key")
    original, patch = _special_items(original, patch, key)
    merged = _merge_items(original, patch, key, field.shape.object_type if field else None)
    return order.arrange(merged, patch, original, key)


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Act on list items that carry $patch, and take them out of the patch."""
    plain, replace = [], False
    gone = set[Hashable]()
    for item in patch:
        if DIRECTIVE not in item:
            plain.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            gone.add(order.token_of(item, key))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise bad_request("merging lists cannot yet be specified in the patch")
        else:
            raise bad_request(f"unknown patch type: {go_print(directive)} in map: {go_print(item)}")
    if replace:
        return plain, []
    return [kept for kept in original if order.token_of(kept, key) not in gone] if gone else original, plain


def _merge_items(original: list[Any], patch: list[Any], key: str, schema: TypeSchema | None) -> list[Any]:
    original = list(original)
    places: dict[Hashable, int] = {}
    for index, existing in enumerate(original):
        places.setdefault(order.token_of(existing, key), index)
    for item in patch:
        token = order.token_of(item, key)
        place = places.get(token)
        if place is not None:
            original[place] = _merge_map(original[place], item, schema)
        else:
            places[token] = len(original)
            original.append(without_directives(item))
    return original


_DROPPED: Any = object()


def without_directives(value: Any) -> Any:
    """A value that has nothing to be merged with, free of directives and of nulls."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _DROPPED
        kept = ((k, without_directives(v)) for k, v in value.items() if v is not None and not _is_directive(k))
        return {k: v for k, v in kept if v is not _DROPPED}
    if isinstance(value, list):
        return [kept for item in value if (kept := without_directives(item)) is not _DROPPED]
    return value


def _is_directive(key: str) -> bool:
    return key == RETAIN_KEYS or key.startswith((DELETE_PREFIX, ORDER_PREFIX))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _named_list(key: str, prefix: str, what: str) -> str:
    head, slash, name = key.partition("/")
    if head != prefix or not slash or not name:
        raise bad_request(f"invalid patch format of {what}")
    return name


def _field(schema: TypeSchema | None, key: str) -> Field | None:
    return schema.fields.get(key) if schema else None
