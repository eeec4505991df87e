"""Get and list: stored bytes out, decoded only where a selector has to look inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kubeqos.apiserver.present.options import ListOptions, Token, parse_version
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import decode
from kubeqos.codec import JsonObject
from kubeqos.store import Compacted, FutureRevision, Page, Stored
from kubeqos.web.status import ApiError, expired, too_large_version

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)
_TOO_OLD_VERSION = "The resourceVersion for the provided list is too old."
_PLAIN = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9._/-]+")
_SCAN = 2000  # objects read at a time while a selector looks for enough matches


@dataclass(slots=True)
class Listing:
    """A page of objects, the revision it shows, and where the next page starts."""

    items: list[Stored]
    revision: int
    token: Token | None = None
    remaining: int | None = None


def matches(kind: Kind, obj: JsonObject, options: ListOptions) -> bool:
    """Does an object satisfy both selectors?"""
    if options.labels and not options.labels.matches(obj["metadata"].get("labels")):
        return False
    return not options.fields or options.fields.matches(lambda field: kind.read_field(obj, field))


def needles(options: ListOptions) -> tuple[bytes, ...]:
    """Texts that an object must contain to be selected: a look at the bytes saves decoding most of the others.

    Words that can also stand for an absent field (true, false, numbers), or be escaped in JSON, are no help.
    """
    words = [value for _, value, equal in options.fields.terms if equal]
    for requirement in options.labels.requirements:
        if requirement.operator in ("=", "in", "exists"):
            words.append(requirement.key)
        if requirement.operator in ("=", "in") and len(requirement.values) == 1:  # `exists` asks for no value
            words += requirement.values
    return tuple(word.encode() for word in words if _PLAIN.fullmatch(word) and word not in ("true", "false"))


def check_not_future(core: Core, version: str) -> None:
    """A get with a resourceVersion asks for something at least that new."""
    asked = parse_version(version)
    if asked > core.store.revision:
        raise too_large_version(asked, core.store.revision)


def list_objects(core: Core, kind: Kind, namespace: str, options: ListOptions) -> Listing:
    """The objects that a list asks for, at the revision its options say."""
    revision, limit = _position(core, options)
    prefix = kind.range_prefix(namespace)
    after = prefix + options.token.start if options.token else ""
    try:
        if not options.selects:
            page = core.store.range(prefix, after=after, limit=limit, revision=revision)
            return _listing(page.items, page, prefix, page.remaining if page.more else None)
        return _selected(core, kind, namespace, options, prefix, after, limit, revision)
    except Compacted as error:
        raise _too_old(options) from error
    except FutureRevision as error:
        raise too_large_version(error.requested, error.current) from error


def _position(core: Core, options: ListOptions) -> tuple[int, int]:
    """(revision or 0 for the newest, limit). Version "0" reads everything, as Kubernetes' cache does."""
    if options.token is not None:
        return max(0, options.token.revision), options.limit
    if options.version in ("", "0"):
        return 0, 0 if options.version == "0" else options.limit
    asked = parse_version(options.version, "invalid resource version: ")
    if asked > core.store.revision:
        raise too_large_version(asked, core.store.revision)
    exact = options.match == "Exact" or (not options.match and options.limit > 0)
    return (asked if exact else 0), options.limit


def _listing(items: list[Stored], page: Page, prefix: str, remaining: int | None) -> Listing:
    token = Token(page.revision, items[-1].key.removeprefix(prefix)) if page.more and items else None
    return Listing(items, page.revision, token, remaining)


def _selected(
    core: Core, kind: Kind, namespace: str, options: ListOptions, prefix: str, after: str, limit: int, revision: int
) -> Listing:
    named = options.fields.exact("metadata.name")
    if named is not None and not revision and (namespace or not kind.namespaced):
        stored = core.store.get(kind.key(namespace, named))
        found = [stored] if stored and matches(kind, decode(stored), options) else []
        return Listing(found, core.store.revision)
    at = revision or core.store.revision
    chosen: list[Stored] = []
    wanted = needles(options)
    for stored in _scan(core, prefix, after, at, limit):
        if all(word in stored.value for word in wanted) and matches(kind, decode(stored), options):
            if limit and len(chosen) == limit:
                return Listing(chosen, at, Token(at, chosen[-1].key.removeprefix(prefix)))
            chosen.append(stored)
    return Listing(chosen, at)


def _scan(core: Core, prefix: str, after: str, revision: int, limit: int) -> Iterator[Stored]:
    while True:
        page = core.store.range(prefix, after=after, limit=_SCAN if limit else 0, revision=revision)
        yield from page.items
        if not page.more:
            return
        after = page.items[-1].key


def _too_old(options: ListOptions) -> ApiError:
    if options.token is None:
        return expired(_TOO_OLD_VERSION)
    return expired(_TOO_OLD_TOKEN, Token(-1, options.token.start).encode())
