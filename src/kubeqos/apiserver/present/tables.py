"""Objects in the form a client asked for: as stored, as YAML, as a Table, or as metadata only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeqos.apiserver.present.columns import CREATED_AT
from kubeqos.apiserver.present.negotiation import YAML, Form
from kubeqos.apiserver.present.podrow import row_conditions
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import list_body, shown
from kubeqos.apiserver.registry.reads import Listing
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, decode_json, encode_json, encode_yaml
from kubeqos.web.messages import JSON, Response
from kubeqos.web.status import ApiError, bad_request

_INCLUDES = ("", "Metadata", "Object", "None")


def object_response(kind: Kind, value: bytes, form: Form, request: Request, now: float, code: int = 200) -> Response:
    """One object."""
    if form.plain:
        return Response(code, value if kind.view is None else shown(kind, value))
    if not form.transform:
        return encoded(decode_json(shown(kind, value)), form, code)
    obj: JsonObject = decode_json(value)
    match form.transform:
        case "Table":
            body: Any = table(kind, [obj], form, include(request), now, _version_only(obj))
        case "PartialObjectMetadata":
            body = partial_metadata(obj, form)
        case _:
            raise _not_acceptable("PartialObjectMetadataList", kind, "object")
    return encoded(body, form, code)


def list_response(kind: Kind, listing: Listing, form: Form, request: Request, now: float) -> Response:
    """A page of objects."""
    if form.plain:
        return Response(200, _list_body(kind, listing))
    metadata: JsonObject = {"resourceVersion": str(listing.revision)}
    if listing.token:
        metadata["continue"] = listing.token.encode()
    if listing.remaining is not None:
        metadata["remainingItemCount"] = listing.remaining
    objects = [decode_json(stored.value) for stored in listing.items]
    match form.transform:
        case "Table":
            body: Any = table(kind, objects, form, include(request), now, metadata)
        case "PartialObjectMetadataList":
            items = [partial_metadata(obj, form) for obj in objects]
            body = {"kind": form.transform, "apiVersion": f"meta.k8s.io/{form.version}", "metadata": metadata}
            body["items"] = items
        case "PartialObjectMetadata":
            raise _not_acceptable("PartialObjectMetadata", kind, "list")
        case _:
            body = decode_json(_list_body(kind, listing))
    return encoded(body, form, 200)


def _list_body(kind: Kind, listing: Listing) -> bytes:
    values = (stored.value for stored in listing.items)
    if kind.view is not None:
        values = (shown(kind, value) for value in values)
    return list_body(kind, values, listing.revision, listing.token, listing.remaining)


def encoded(body: Any, form: Form, code: int) -> Response:
    if form.media == YAML:
        return Response(code, encode_yaml(body).encode(), YAML)
    return Response(code, encode_json(body), JSON)


def include(request: Request) -> str:
    """Which part of the object each row of a table carries."""
    asked = request.first("includeObject") or ""
    if asked not in _INCLUDES:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{asked}":'
            " must be 'Metadata', 'Object', 'None', or empty"
        )
    return asked


def table(
    kind: Kind,
    objects: Iterable[JsonObject],
    form: Form,
    included: str,
    now: float,
    metadata: JsonObject,
    *,
    headers: bool = True,
) -> JsonObject:
    """A Table of rows; watches send the headers once."""
    rows = [_row(kind, obj, form, included, now) for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in kind.columns] if headers else None,
        # Kinds that Kubernetes prints with its generic printer have null for no rows.
        "rows": None if not rows and kind.columns[: len(CREATED_AT)] == CREATED_AT else rows,
    }


def _row(kind: Kind, obj: JsonObject, form: Form, included: str, now: float) -> JsonObject:
    row: JsonObject = {"cells": [column.cell(obj, now) for column in kind.columns]}
    if kind.kind == "Pod" and (conditions := row_conditions(obj)):
        row["conditions"] = conditions
    row["object"] = None if included == "None" else obj if included == "Object" else partial_metadata(obj, form)
    return row


def partial_metadata(obj: JsonObject, form: Form) -> JsonObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": obj["metadata"],
    }


def _version_only(obj: JsonObject) -> JsonObject:
    version = obj["metadata"].get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def _not_acceptable(asked: str, kind: Kind, what: str) -> ApiError:
    package = kind.group.partition(".")[0] or "core"
    shape = f"*{package}.{kind.kind}List" if what == "list" else f"*{package}.{kind.kind}"
    return ApiError(
        406, "NotAcceptable", f"you requested {asked}, but the requested object is {_article(what)} {what} ({shape})"
    )


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
