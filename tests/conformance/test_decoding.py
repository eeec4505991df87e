"""Decoding against recorded answers: wrong types, unknown and duplicate fields, and the canonical form of objects.

Out of scope here, by rule: bodies that are not JSON objects, kinds that do not fit the URL (`pod/gvk`), wrong options
(`…-bogus`), and everything that is decided after decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json
from kubeqos.model import schema

from .recorded import cases

KINDS = {
    "pods": ("", "v1", "Pod"),
    "resourcequotas": ("", "v1", "ResourceQuota"),
    "limitranges": ("", "v1", "LimitRange"),
    "configmaps": ("", "v1", "ConfigMap"),
    "namespaces": ("", "v1", "Namespace"),
    "priorityclasses": ("scheduling.k8s.io", "v1", "PriorityClass"),
}


def decodable() -> Iterator[Any]:
    for case in cases("validation"):
        resource = urlsplit(case["path"]).path.rsplit("/", 1)[-1]
        json_body = case.get("contentType", "application/json") == "application/json"
        if case["method"] != "POST" or resource not in KINDS or not json_body:
            continue
        if case["tag"] == "pod/gvk" or case["tag"].endswith("-bogus"):
            continue
        body = case["bodyText"].encode() if "bodyText" in case else encode_json(case["body"])
        try:
            raw = decode_json(body)
        except JsonError:
            continue
        if isinstance(raw, dict):
            yield pytest.param(case, body, raw, KINDS[resource], id=case["tag"])


@pytest.mark.parametrize(("case", "body", "raw", "kind"), list(decodable()))
def test_a_body(case: JsonObject, body: bytes, raw: JsonObject, kind: tuple[str, str, str]) -> None:
    found = schema.check(raw, schema.kind(*kind), body)
    validation = parse_qs(urlsplit(case["path"]).query).get("fieldValidation", ["Warn"])[0]
    prefix = f'{kind[2]} in version "v1" cannot be handled as a {kind[2]}: '
    message = case.get("message") or ""
    if message.startswith(prefix):
        assert prefix + (found.error or "strict decoding error: " + ", ".join(found.strict)) == message
        return
    assert found.error is None
    if validation == "Warn":
        warnings = [text[7:-1].replace('\\"', '"') for text in case.get("warnings") or []]
        assert found.strict == [text for text in warnings if text.startswith(("unknown field", "duplicate field"))]


def objects(value: Any) -> Iterator[JsonObject]:
    """Whole objects of kinds that we serve, wherever they stand in an answer."""
    if isinstance(value, list):
        for item in value:
            yield from objects(item)
    elif isinstance(value, dict):
        group, _, version = str(value.get("apiVersion", "")).rpartition("/")
        kind = value.get("kind", "")
        if "metadata" in value and (group, version, kind) in schema.kinds() and not kind.endswith("List"):
            yield value
        else:
            for item in value.values():
                yield from objects(item)


def test_objects_that_a_real_server_wrote_are_canonical() -> None:
    answers: list[Any] = [step.get("response", step.get("events")) for case in cases("http") for step in case["steps"]]
    answers += [case.get(name) for case in cases("patch") for name in ("base", "result")]
    count = 0
    for raw in objects(decode_json(encode_json(answers).replace(b"<time>", b"2024-05-06T07:08:09Z"))):
        group, _, version = raw["apiVersion"].rpartition("/")
        kind = schema.kind(group, version, raw["kind"])
        assert schema.check(raw, kind) == schema.Findings()
        assert schema.normalise(raw, kind) == raw
        count += 1
    assert count > 500
