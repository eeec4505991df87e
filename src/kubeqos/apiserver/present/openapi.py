"""OpenAPI v3, one document per group version, made from the schema tables and the table of kinds.

`kubectl explain` walks the schemas; `kubectl create -f` and `apply` look for a PATCH operation of the kind with a
`fieldValidation` parameter before they send anything. Documents are made when first asked for and kept as bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from kubeqos.apiserver.present.negotiation import takes
from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.registry.kinds import GROUPS, KINDS, Kind
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model import schema
from kubeqos.model.schema import Field, Shape, TypeSchema
from kubeqos.web.messages import JSON, Response

_SCALARS: dict[str, JsonObject] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intstr": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "any": {},
    "free": {},
    "object": {"type": "object"},
}
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def _query(name: str, kind: str, about: str) -> JsonObject:
    return {"name": name, "in": "query", "description": about, "schema": {"type": kind, "uniqueItems": True}}


_LIST_PARAMETERS = (
    _query("allowWatchBookmarks", "boolean", "Send BOOKMARK events on a watch."),
    _query("continue", "string", "Where to go on, from the previous page."),
    _query("fieldSelector", "string", "Restrict by the kind's selectable fields."),
    _query("labelSelector", "string", "Restrict by labels."),
    _query("limit", "integer", "At most this many objects per page."),
    _query("resourceVersion", "string", "Which version of the data may or must be served."),
    _query("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    _query("sendInitialEvents", "boolean", "Begin a watch with the present state."),
    _query("timeoutSeconds", "integer", "End a watch after this time."),
    _query("watch", "boolean", "Stream changes instead of answering with a list."),
)
_WRITE_PARAMETERS = (
    _query("dryRun", "string", "All: check everything and store nothing."),
    _query("fieldManager", "string", "Who makes the change."),
    _query("fieldValidation", "string", "Unknown and duplicate fields: Ignore, Warn or Strict."),
)
_FORCE = _query("force", "boolean", "Take over fields of other managers (server-side apply).")
_DELETE_PARAMETERS = (
    _query("dryRun", "string", "All: check everything and delete nothing."),
    _query("gracePeriodSeconds", "integer", "Seconds to wait before the object is removed."),
    _query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    _query("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
)


def openapi_response(request: Request, catalog: Catalog) -> Response | None:
    """The answer to an /openapi/v3 path; None for any other path."""
    path = request.path
    if path in ("/openapi/v3", "/openapi/v3/"):
        return Response(200, _root(catalog), JSON)
    known = {
        _path(group, version): (group, version) for group, versions in catalog.groups.items() for version in versions
    }
    found = known.get(path.removeprefix("/openapi/v3/"))
    if not path.startswith("/openapi/v3/") or found is None:
        return None
    if not takes(request.accept, JSON):
        return Response(406, content_type="")
    body = document(*found, catalog)
    headers = [(b"etag", f'"{_digest(body)}"'.encode()), (b"cache-control", b"public, immutable, max-age=31536000")]
    return Response(200, body, JSON, headers)


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _digest(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _root(catalog: Catalog) -> bytes:
    paths = {}
    for group, versions in catalog.groups.items():
        for version in versions:
            path = _path(group, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(document(group, version, catalog))}"}
    return encode_json({"paths": paths})


def document(group: str, version: str, catalog: Catalog) -> bytes:
    """The document of one group version."""
    if group in GROUPS:
        return _built_in(group, version)
    key = ("openapi", group, version)
    if key not in catalog.documents:
        catalog.documents[key] = _document([k for k in catalog.added if (k.group, k.version) == (group, version)])
    found: bytes = catalog.documents[key]
    return found


@cache
def _built_in(group: str, version: str) -> bytes:
    return _document([kind for kind in KINDS if (kind.group, kind.version) == (group, version)])


def _document(kinds: list[Kind]) -> bytes:
    paths: JsonObject = {}
    for kind in kinds:
        paths.update(_paths(kind))
    return encode_json(
        {
            "openapi": "3.0.0",
            "info": {"title": "kubeqos", "version": "v1"},
            "paths": paths,
            "components": {"schemas": _schemas(kinds)},
        }
    )


# schemas


def _schemas(kinds: Iterable[Kind]) -> JsonObject:
    wanted = [schema.kinds()["", "v1", "DeleteOptions"], schema.kinds()["", "v1", "Status"]]
    kinds = list(kinds)
    if any(kind.definition is not None for kind in kinds):
        wanted.append("meta/v1.ObjectMeta")
    for kind in kinds:
        names = [kind.kind, f"{kind.kind}List", *(sub.kind for sub in kind.subresources if sub.kind)]
        for name in names:
            for group, version in ((kind.group, kind.version), *((s.group, s.version) for s in kind.subresources)):
                key = schema.kinds().get((group, version, name))
                if key and key not in wanted:
                    wanted.append(key)
    found: JsonObject = {}
    while wanted:
        type_schema = schema.type_named(wanted.pop())
        if type_schema.openapi_name in found:
            continue
        found[type_schema.openapi_name] = _type(type_schema)
        wanted += [inner.key for field in type_schema.fields.values() if (inner := _inner(field.shape))]
    for kind in kinds:
        if kind.definition is not None:
            found.update(_defined(kind))
    return dict(sorted(found.items()))


def _defined(kind: Kind) -> JsonObject:
    """The schemas of a kind that a definition added, and of its list: as the definition wrote them."""
    assert kind.definition is not None
    raw = kind.definition.schema
    metadata = {"allOf": [{"$ref": _reference(schema.type_named("meta/v1.ObjectMeta"))}]}
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties = {**(raw.get("properties") or {}), **head, "metadata": metadata}
    named = {"group": kind.group, "version": kind.version}
    one = {**raw, "properties": properties, "x-kubernetes-group-version-kind": [{**named, "kind": kind.kind}]}
    items = {
        "type": "array",
        "items": {"$ref": f"#/components/schemas/{_defined_name(kind.group, kind.version, kind.kind)}"},
    }
    listed = {
        "type": "object", "required": ["items"], "properties": {**head, "items": items, "metadata": {"type": "object"}},
        "x-kubernetes-group-version-kind": [{**named, "kind": f"{kind.kind}List"}],
    }  # fmt: skip
    name = _defined_name(kind.group, kind.version, kind.kind)
    return {name: one, f"{name}List": listed}


def _defined_name(group: str, version: str, kind: str) -> str:
    return ".".join([*reversed(group.split(".")), version, kind])


def _inner(shape: Shape) -> TypeSchema | None:
    while shape.of is not None:
        shape = shape.of
    return schema.type_named(shape.ref) if shape.kind == "object" and shape.ref else None


def _type(type_schema: TypeSchema) -> JsonObject:
    about = schema.description(type_schema.key)
    out: JsonObject = {"description": about, "type": "object"} if about else {"type": "object"}
    required = [name for name, field in type_schema.fields.items() if field.required]
    if required:
        out["required"] = required
    out["properties"] = {name: _field(type_schema, name, field) for name, field in type_schema.fields.items()}
    owners = [list(gvk) for gvk, key in schema.kinds().items() if key == type_schema.key]
    if owners:
        out["x-kubernetes-group-version-kind"] = [
            {"group": group, "version": version, "kind": kind} for group, version, kind in owners
        ]
    return out


def _field(owner: TypeSchema, name: str, field: Field) -> JsonObject:
    out = _shape(field.shape)
    about = schema.description(owner.key, name)
    if about:
        out = {"description": about, **out}
    if field.default is not None:
        out["default"] = field.default
    if schema.may_be_null(field):
        out["nullable"] = True
    if field.shape.kind == "list":
        out["x-kubernetes-list-type"] = field.list_type
        if field.list_keys:
            out["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.patch:
        out["x-kubernetes-patch-strategy"] = ",".join(field.patch)
    if field.merge_key:
        out["x-kubernetes-patch-merge-key"] = field.merge_key
    return out


def _shape(shape: Shape) -> JsonObject:
    if shape.kind == "list" and shape.of:
        return {"type": "array", "items": _shape(shape.of)}
    if shape.kind == "map" and shape.of:
        return {"type": "object", "additionalProperties": _shape(shape.of)}
    if shape.kind == "object" and shape.ref:
        return {"allOf": [{"$ref": _reference(schema.type_named(shape.ref))}]}
    return dict(_SCALARS[shape.kind])


def _reference(type_schema: TypeSchema) -> str:
    return f"#/components/schemas/{type_schema.openapi_name}"


# paths


def _paths(kind: Kind) -> JsonObject:
    base = f"/{_path(kind.group, kind.version)}"
    scoped = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    shared = [_in_path("namespace")] if kind.namespaced else []
    out: JsonObject = {}
    collection = {
        method: _operation(kind, verb, method)
        for verb, method in (("list", "get"), ("create", "post"), ("deletecollection", "delete"))
        if verb in kind.verbs
    }
    out[scoped] = {**collection, "parameters": shared}
    if kind.namespaced and "list" in kind.verbs:
        out[f"{base}/{kind.plural}"] = {"get": _operation(kind, "list", "get", everywhere=True)}
    one = {
        method: _operation(kind, verb, method)
        for verb, method in (("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete"))
        if verb in kind.verbs
    }
    if one:
        out[f"{scoped}/{{name}}"] = {**one, "parameters": [_in_path("name"), *shared]}
    for sub in kind.subresources:
        operations = {
            method: _operation(kind, verb, method, sub.name)
            for verb, method in (("get", "get"), ("update", "put"), ("patch", "patch"), ("create", "post"))
            if verb in sub.verbs
        }
        out[f"{scoped}/{{name}}/{sub.name}"] = {**operations, "parameters": [_in_path("name"), *shared]}
    return out


def _in_path(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


_ACTIONS = {"create": "post", "update": "put"}
_PARAMETERS: dict[str, tuple[JsonObject, ...]] = {
    "list": _LIST_PARAMETERS,
    "create": _WRITE_PARAMETERS,
    "update": _WRITE_PARAMETERS,
    "patch": (*_WRITE_PARAMETERS, _FORCE),
    "delete": _DELETE_PARAMETERS,
    "deletecollection": (*_LIST_PARAMETERS[1:7], *_DELETE_PARAMETERS),
}


def _operation(kind: Kind, verb: str, method: str, sub: str = "", *, everywhere: bool = False) -> JsonObject:
    group, version, name = kind.group, kind.version, kind.kind
    found = next((s for s in kind.subresources if s.name == sub and s.kind), None)
    if found:
        group, version, name = found.group, found.version, found.kind
    content = _answer(kind, verb, sub, (group, version, name))
    scope = "ForAllNamespaces" if everywhere else "Namespaced" if kind.namespaced else ""
    operation: JsonObject = {
        "tags": [f"{kind.group.partition('.')[0] or 'core'}_{kind.version}"],
        "operationId": _operation_id(kind, verb, scope, sub),
        "parameters": list(_PARAMETERS.get(verb, ())),
        "responses": {
            "200": {"description": "OK", "content": content},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": name},
    }
    if verb == "create":
        operation["responses"]["201"] = {"description": "Created", "content": content}
    body = _request_body(verb, group, version, name)
    if body:
        operation["requestBody"] = body
    return operation


def _answer(kind: Kind, verb: str, sub: str, sent: tuple[str, str, str]) -> JsonObject:
    """What comes back when all is well, by media type."""
    answers = next((s.answers for s in kind.subresources if s.name == sub), "")
    status = _content("", "v1", "Status")
    if answers == "text":
        return {"text/plain": {"schema": {"type": "string"}}}
    if answers == "Status" or kind.kind == "Binding":
        return status
    group, version, name = sent
    content = _content(group, version, f"{name}List" if verb in ("list", "deletecollection") else name)
    if verb == "delete" and not kind.lifecycle.answers_object:
        # Gone at once: a Status. Still there, since a finalizer or a grace period holds it: the object.
        return {JSON: {"schema": {"anyOf": [content[JSON]["schema"], status[JSON]["schema"]]}}}
    return content


def _content(group: str, version: str, name: str, media: Iterable[str] = (JSON,)) -> JsonObject:
    key = schema.kinds().get((group, version, name))
    inner: Any = {"type": "object"}
    if key:
        inner = {"$ref": _reference(schema.type_named(key))}
    elif group and group not in GROUPS:
        inner = {"$ref": f"#/components/schemas/{_defined_name(group, version, name)}"}
    return {kind: {"schema": inner} for kind in media}


def _request_body(verb: str, group: str, version: str, name: str) -> JsonObject | None:
    match verb:
        case "create" | "update":
            return {"content": _content(group, version, name), "required": True}
        case "patch":
            # kubectl looks here whether a kind takes strategic merge patches.
            taken = [media for media in _PATCHES if group in GROUPS or "strategic" not in media]
            return {"content": {media: {"schema": {"type": "object"}} for media in taken}, "required": True}
        case "delete" | "deletecollection":
            return {"content": _content("", "v1", "DeleteOptions")}
    return None


def _operation_id(kind: Kind, verb: str, scope: str, sub: str) -> str:
    group = "".join(part.title() for part in kind.group.split(".")) or "Core"
    return f"{verb}{group}{kind.version.title()}{scope}{kind.kind}{sub.title()}"
