"""Bytes of a request body to a JSON value: JSON, YAML, and the ways in which they can be broken."""

from __future__ import annotations

import re
from typing import Any

from kubeqos.apiserver.present.negotiation import PROTOBUF, YAML, media_type
from kubeqos.apiserver.protobuf import decode_body
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonError, YamlError, decode_json, decode_yaml
from kubeqos.errors import InputError
from kubeqos.model.text.gojson import syntax_problem
from kubeqos.web.messages import JSON
from kubeqos.web.status import ApiError

_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F].."
)
MAX_DEPTH = 200


class Unreadable(ValueError):
    """A body that is not a document; the text says why, in Go's words."""


def unknown_format() -> ApiError:
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}, {PROTOBUF}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def document(request: Request) -> Any:
    """The body as a value; `Unreadable` when it is none, 415 for a type that is neither JSON nor YAML."""
    media = media_type(request.content_type)
    if media in ("", JSON):
        return parse_json(request.body)
    if media == YAML:
        return parse_yaml(request.body)
    if media == PROTOBUF:
        try:
            return decode_body(request.body)
        except InputError as error:
            raise Unreadable(error.what) from error
    raise unknown_format()


def parse_json(body: bytes) -> Any:
    """JSON as Go reads it: lone surrogates become U+FFFD, and nesting is bounded."""
    try:
        value = decode_json(body)
        # Cheap first: a text with few brackets cannot be deep.
        return value if body.count(b"{") + body.count(b"[") < MAX_DEPTH else bounded(value)
    except JsonError as error:
        problem = syntax_problem(body)
        if problem is None and (repaired := _LONE_SURROGATE.sub(rb"\\ufffd", body)) != body:
            return parse_json(repaired)
        raise Unreadable(problem or str(error)) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise Unreadable("exceeded max depth" if isinstance(error, RecursionError) else str(error)) from error


def parse_yaml(body: bytes) -> Any:
    try:
        return bounded(decode_yaml(body))
    except (YamlError, RecursionError) as error:
        raise Unreadable(f"error converting YAML to JSON: {error}") from error


def bounded(value: Any) -> Any:
    """The value, if no part of it is nested deeper than any API type could be."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if type(item) is dict:
                deeper += item.values()
            elif type(item) is list:
                deeper += item
        if not deeper:
            return value
        level = deeper
    raise RecursionError
