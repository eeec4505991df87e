"""PATCH: the content type picks the kind of patch, the patch rooms do the work, `writes` commits the result."""

from __future__ import annotations

from typing import Any, Literal

from kubeqos.apiserver.core import Core
from kubeqos.apiserver.documents import Unreadable, parse_json
from kubeqos.apiserver.negotiate import media_type
from kubeqos.apiserver.options import field_manager, field_validation
from kubeqos.apiserver.patch import PatchError, apply_patch
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.status import ApiError, bad_request, cause, invalid
from kubeqos.apiserver.writes import Write, Written, update
from kubeqos.codec import JsonObject
from kubeqos.model import schema

Style = Literal["strategic", "merge", "json"]
_STYLES: dict[str, Style] = {
    "application/strategic-merge-patch+json": "strategic",
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
}
APPLY = "application/apply-patch+yaml"


async def patch_object(core: Core, write: Write, request: Request) -> Written:
    """Apply the patch in the request to a stored object."""
    media = media_type(request.content_type)
    if media == APPLY:
        return await _apply(core, write, request)
    style = _STYLES.get(media)
    if style is None:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    validation = field_validation(request, "PatchOptions")
    field_manager(request)
    try:
        document = parse_json(request.body)
    except Unreadable as error:
        raise bad_request(f"error decoding patch: {error}") from error
    write.patching = True
    return await update(core, write, lambda old: _patched(style, old, document, write, validation, request))


def _patched(
    style: Style, old: JsonObject, document: Any, write: Write, validation: str, request: Request
) -> JsonObject:
    kind = write.kind
    try:
        patched = apply_patch(
            style,
            old,
            document,
            schema.kind(kind.group, kind.version, kind.kind),
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
    if not request.first("fieldManager"):
        why = "Required value: is required for apply patch"
        raise invalid("PatchOptions", "meta.k8s.io", "", [cause("fieldManager", "FieldValueRequired", why)])
    raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
