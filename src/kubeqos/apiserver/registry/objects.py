"""Objects as the store keeps them: bytes that begin with kind, apiVersion and their own resourceVersion.

Because every object of a kind begins with the same bytes, the version is put in at commit, lists are joined without
decoding, and watch events wrap the same bytes for every watcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeqos.apiserver.present.options import Token
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.codec import JsonObject, decode_json, encode_json, encode_json_as_go
from kubeqos.store import Stored

Render = Callable[[int], bytes]
COMPARED = ("ControllerRevision",)
"""Kinds that carry JSON which its owner compares with what it would write: a DaemonSet's revision with an `&` in a
command that comes back in other letters is another revision to Go, and its pods are replaced for ever."""


def ordered(kind: Kind, obj: JsonObject, version: str | None) -> JsonObject:
    """The object with its head first; without a version when there is none yet."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    if version is not None:
        metadata = {"resourceVersion": version, **metadata}
    rest = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **rest}


def renderer(kind: Kind, obj: JsonObject) -> Render:
    """Encode once; the returned function only inserts the revision."""
    head = kind.head
    tail = _encoder(kind)(ordered(kind, obj, ""))[len(head) :]
    return lambda revision: b"%b%d%b" % (head, revision, tail)


def unversioned(kind: Kind, obj: JsonObject) -> bytes:
    """An object that was not stored (dry run of a create)."""
    return _encoder(kind)(ordered(kind, obj, None))


def _encoder(kind: Kind) -> Callable[[JsonObject], bytes]:
    return encode_json_as_go if kind.kind in COMPARED else encode_json


def shown(kind: Kind, value: bytes) -> bytes:
    """Stored bytes as the kind that was asked for: they are that, unless it is a view of another."""
    if kind.view is None:
        return value
    obj = kind.view.shown(decode_json(value))
    return encode_json(ordered(kind, obj, obj["metadata"].get("resourceVersion")))


def decode(stored: Stored) -> JsonObject:
    found: JsonObject = decode_json(stored.value)
    return found


def list_body(kind: Kind, items: Iterable[bytes], revision: int, token: Token | None, remaining: int | None) -> bytes:
    """A list of stored objects, spliced together."""
    metadata: JsonObject = {"resourceVersion": str(revision)}
    if token is not None:
        metadata["continue"] = token.encode()
    if remaining is not None:
        metadata["remainingItemCount"] = remaining
    head = encode_json({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
    offset = kind.item_offset
    parts = [head[:-1], b',"items":[']
    opening = b"{"
    for value in items:
        parts.append(opening)
        parts.append(memoryview(value)[offset:])  # type: ignore[arg-type]
        opening = b",{"
    parts.append(b"]}")
    return b"".join(parts)
