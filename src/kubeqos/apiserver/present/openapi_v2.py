"""OpenAPI v2 for tools that never learned v3: the v3 documents of all groups as one, in the older words.

As JSON, and as protobuf for those who ask so: client-go's discovery takes nothing else, and kubectl falls back to it
when it does not find a kind in v3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeqos.apiserver.present.negotiation import takes
from kubeqos.apiserver.present.openapi import document
from kubeqos.apiserver.present.openapi_binary import BINARY, MEDIA, encode_document
from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.web.messages import JSON, Response

_V3_REFERENCE, _V2_REFERENCE = "#/components/schemas/", "#/definitions/"
_NOT_IN_V2 = frozenset(("nullable", "uniqueItems"))


def openapi_v2_response(request: Request, catalog: Catalog) -> Response | None:
    """The answer to /openapi/v2; None for any other path."""
    if request.path.rstrip("/") != "/openapi/v2":
        return None
    if any(clause.split(";")[0].strip() == MEDIA for clause in request.accept.split(",")):
        return Response(200, _remembered("v2 binary", catalog, encode_document), BINARY)
    if not takes(request.accept, JSON):
        return Response(406, content_type="")
    return Response(200, _remembered("v2", catalog, encode_json), JSON)


def _remembered(name: str, catalog: Catalog, encode: Callable[[JsonObject], bytes]) -> bytes:
    if name not in catalog.documents:
        catalog.documents[name] = encode(_whole(catalog))
    found: bytes = catalog.documents[name]
    return found


def _whole(catalog: Catalog) -> JsonObject:
    paths: JsonObject = {}
    definitions: JsonObject = {}
    for group, versions in catalog.groups.items():
        for version in versions:
            found = decode_json(document(group, version, catalog))
            paths.update({path: _path(operations) for path, operations in found["paths"].items()})
            for name, schema in found["components"]["schemas"].items():
                definitions[name] = _schema(schema)
    about = {"title": "kubeqos", "version": "v1"}
    ordered = dict(sorted(definitions.items()))
    return {"swagger": "2.0", "info": about, "paths": dict(sorted(paths.items())), "definitions": ordered}


def _path(operations: JsonObject) -> JsonObject:
    out: JsonObject = {name: _operation(found) for name, found in operations.items() if name != "parameters"}
    if shared := operations.get("parameters"):
        out["parameters"] = [_parameter(found) for found in shared]
    return out


def _parameter(found: JsonObject) -> JsonObject:
    return {**{name: value for name, value in found.items() if name != "schema"}, "type": found["schema"]["type"]}


def _operation(found: JsonObject) -> JsonObject:
    out: JsonObject = {name: value for name, value in found.items() if name.startswith("x-")}
    out.update(tags=found["tags"], operationId=found["operationId"], produces=[JSON])
    out["parameters"] = [_parameter(parameter) for parameter in found["parameters"]]
    if body := found.get("requestBody"):
        content = body["content"]
        out["consumes"] = list(content)
        schema = _schema(next(iter(content.values()))["schema"])
        out["parameters"].append(
            {"name": "body", "in": "body", "required": body.get("required", False), "schema": schema}
        )
    out["responses"] = {code: _response(answer) for code, answer in found["responses"].items()}
    return out


def _response(answer: JsonObject) -> JsonObject:
    out: JsonObject = {"description": answer["description"]}
    if content := answer.get("content"):
        out["schema"] = _schema(next(iter(content.values()))["schema"])
    return out


def _schema(value: Any) -> Any:
    """A schema without what v2 has no word for: of several forms the one that holds every value, a string."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "oneOf" in value or "anyOf" in value:
        rest = {name: item for name, item in value.items() if name not in ("oneOf", "anyOf")}
        return {**_schema(rest), **(_schema(value["anyOf"][0]) if "anyOf" in value else {"type": "string"})}
    if "allOf" in value:
        rest = {name: item for name, item in value.items() if name not in ("allOf", "default")}
        return {**_schema(rest), **_schema(value["allOf"][0])}
    out: JsonObject = {}
    for name, item in value.items():
        if name == "$ref":
            out[name] = item.replace(_V3_REFERENCE, _V2_REFERENCE)
        elif name == "properties":
            out[name] = {field: _schema(inner) for field, inner in item.items()}
        elif name not in _NOT_IN_V2:
            out[name] = item if name in ("default", "required", "enum") or name.startswith("x-") else _schema(item)
    return out
