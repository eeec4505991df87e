"""PATCH: the content type picks the kind of patch, the patch rooms do the work, `writes` commits the result."""

from __future__ import annotations

from typing import Any, Literal

from kubeqos.apiserver.patch import PatchError, apply_configuration, apply_patch
from kubeqos.apiserver.patch.jsonpatch import json_patch
from kubeqos.apiserver.patch.merge import merge_patch
from kubeqos.apiserver.present.bodies import completed_object
from kubeqos.apiserver.present.documents import Unreadable, parse_json, parse_yaml
from kubeqos.apiserver.present.negotiation import media_type
from kubeqos.apiserver.present.options import field_manager, field_validation
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.writes import Transform, Write, Written, create, other_name, owner, update
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject
from kubeqos.model import schema
from kubeqos.web.messages import is_true
from kubeqos.web.status import ApiError, bad_request, cause, conflict, invalid, not_found

Style = Literal["strategic", "merge", "json"]
_STYLES: dict[str, Style] = {
    "application/strategic-merge-patch+json": "strategic",
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
}
APPLY = "application/apply-patch+yaml"
_WHOLE = ("", "/spec", "/spec/template")
"""What a JSON patch replaces when its author has written a whole template, as `kubectl rollout undo` does."""


async def patch_object(core: Core, write: Write, request: Request) -> Written:
    """Apply the patch in the request to a stored object."""
    if media_type(request.content_type) == APPLY:
        return await _apply(core, write, request)
    kind = write.view or write.kind
    if kind.definition is not None:
        change = _patched_defined(request, kind)
    else:
        change = patched_document(request, kind.group, kind.version, kind.kind)
    write.manager = field_manager(request)
    write.patching = True
    write.whole = _replaces_template(request)
    return await update(core, write, _through(kind, change))


def _replaces_template(request: Request) -> bool:
    if _STYLES.get(media_type(request.content_type)) != "json":
        return False
    changes = parse_json(request.body)  # readable: whoever applies it has read it
    return isinstance(changes, list) and any(isinstance(one, dict) and one.get("path") in _WHOLE for one in changes)


def _patched_defined(request: Request, kind: Kind) -> Transform:
    """A patch of an object whose kind a definition added: lists have no merge keys there, so no strategic ones."""
    style = _STYLES.get(media_type(request.content_type))
    if style not in ("merge", "json"):
        accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        why = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", why)
    validation = field_validation(request)
    try:
        patch = parse_json(request.body)
    except Unreadable as error:
        raise bad_request(f"error decoding patch: {error}") from error

    def change(old: JsonObject) -> JsonObject:
        try:
            patched = merge_patch(old, patch) if style == "merge" else json_patch(old, patch)
        except PatchError as error:
            raise refused(error) from error
        if (patched.get("apiVersion"), patched.get("kind")) != (kind.api_version, kind.kind):
            raise bad_request("a patch cannot change apiVersion or kind")
        return completed_object(patched, kind, validation, request)

    return change


def _through(kind: Kind, change: Transform) -> Transform:
    """A change of what the client sees as a change of what is stored."""
    view = kind.view
    return change if view is None else lambda old: view.stored(change(view.shown(old)))


def patched_document(request: Request, group: str, version: str, kind: str) -> Transform:
    """What the patch in the request makes of an object of a kind. Problems of the patch itself are raised at once."""
    style = _STYLES.get(media_type(request.content_type))
    if style is None:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    validation = field_validation(request)
    try:
        document = parse_json(request.body)
    except Unreadable as error:
        raise bad_request(f"error decoding patch: {error}") from error
    type_schema = schema.kind(group, version, kind)
    return lambda old: _patched(style, old, document, type_schema, validation, request)


def _patched(
    style: Style, old: JsonObject, document: Any, type_schema: schema.TypeSchema, validation: str, request: Request
) -> JsonObject:
    try:
        patched = apply_patch(
            style,
            old,
            document,
            type_schema,
            validation,  # type: ignore[arg-type]  # checked by field_validation
        )
    except PatchError as error:
        raise refused(error) from error
    except RecursionError as error:
        raise bad_request("exceeded max depth") from error
    request.warnings.extend(patched.warnings)
    return patched.object


def refused(error: PatchError) -> ApiError:
    details: JsonObject = {"causes": error.causes} if error.causes else {}
    return ApiError(
        error.code, error.reason, error.what, details=details if error.causes or error.code == 422 else None
    )


async def _apply(core: Core, write: Write, request: Request) -> Written:
    """Server-side apply: creates the object when it is not there."""
    manager = request.first("fieldManager")
    if not manager:
        why = "Required value: is required for apply patch"
        raise invalid("PatchOptions", "meta.k8s.io", "", [cause("fieldManager", "FieldValueRequired", why)])
    kind = write.view or write.kind
    type_schema = kind.schema
    validation = field_validation(request)
    config = _configuration(request, write, type_schema, validation)
    write.manager, write.patching = manager, True

    def applied(live: JsonObject | None) -> JsonObject:
        try:
            result = apply_configuration(
                live if live is None or kind.view is None else kind.view.shown(live),
                config,
                type_schema,
                owner(core, write),
                force=is_true(request.query, "force"),
            )
        except PatchError as error:
            raise refused(error) from error
        write.applied = result.managed_fields
        return result.object if kind.view is None else kind.view.stored(result.object)

    if core.store.get(kind.key(write.namespace, write.name), pending=True) is None:
        if write.subresource:
            raise not_found(kind.plural, kind.group, write.name)
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and metadata.get("uid"):
            raise conflict(kind.plural, kind.group, write.name, "uid mismatch: the object does not exist")
        made = applied(None)
        if (named := made["metadata"].get("name")) and named != write.name:
            raise other_name(named, write.name)
        return await create(core, write, made)
    return await update(core, write, applied)  # which looks at the name, after the conflicts as a real server does


def _configuration(request: Request, write: Write, type_schema: schema.TypeSchema, validation: str) -> JsonObject:
    try:
        config = parse_yaml(request.body)
    except Unreadable as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: a configuration is an object")
    kind = write.view or write.kind
    strict = schema.check(config, type_schema).strict
    if strict and validation == "Strict":
        text = ", ".join(strict)
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {text}'
        )
    if validation == "Warn":
        request.warnings.extend(strict)
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and kind.namespaced and write.namespace:
        metadata.setdefault("namespace", write.namespace)
    if isinstance(metadata, dict):
        metadata.setdefault("name", write.name)
    return config
