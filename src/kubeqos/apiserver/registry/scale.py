"""The scale subresource: how many replicas a workload wants, read and written as an `autoscaling/v1` Scale.

Whoever scales owns `spec.replicas` of the workload from then on, so that a later server-side apply of another number
is a conflict and not a tug of war with an autoscaler.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from kubeqos.apiserver.present.bodies import read_object
from kubeqos.apiserver.present.columns import SCALE, selector_text
from kubeqos.apiserver.present.negotiation import form_of
from kubeqos.apiserver.present.options import check_options, dry_run, field_manager, field_validation
from kubeqos.apiserver.present.tables import object_response
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.registry.patching import patched_document
from kubeqos.apiserver.registry.writes import Transform, Write, update
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import JsonObject, decode_json, encode_json, value_at
from kubeqos.web.messages import Response
from kubeqos.web.status import ApiError, bad_request, cause, invalid

GROUP, VERSION, KIND = "autoscaling", "v1", "Scale"
_SCALE = Kind(GROUP, VERSION, "scales", KIND, columns=SCALE, stored=False)


async def handle(core: Core, request: Request, route: Route, kind: Kind) -> Response:
    """GET, PUT and PATCH of `.../scale`."""
    form = form_of(request, _SCALE)
    defined = kind.definition.scale if kind.definition is not None else None

    def shown(obj: JsonObject) -> JsonObject:
        return scale_of(obj) if defined is None else _defined_scale(obj, defined)

    if route.verb == "get":
        obj = decode(core.stored(kind, route.namespace, route.name))
        if defined is not None and _at(obj, defined["specReplicasPath"]) is None:
            why = f'the spec replicas field "{defined["specReplicasPath"]}" does not exist'
            raise ApiError(
                500, "InternalError", f"Internal error occurred: {why}", details={"causes": [{"message": why}]}
            )
        scale = shown(obj)
        return object_response(_SCALE, encode_json(scale), form, request, core.clock())
    options = "PatchOptions" if route.verb == "patch" else "UpdateOptions"
    check_options(request, options)
    write = Write(
        kind.storage,
        route.namespace,
        route.name,
        "scale",
        dry_run=dry_run(request, options),
        manager=field_manager(request),
        warnings=request.warnings,
    )
    change = _by_patch(request) if route.verb == "patch" else _by_replacement(request)
    if core.hooks is not None:
        had = shown(decode(core.stored(kind, route.namespace, route.name, pending=True)))
        asked = replace(write, asked=request, view=kind)
        sent, body = change(deepcopy(had)), (GROUP, VERSION, KIND)
        reviewed = await core.hooks.below(
            asked, "UPDATE", body, sent, had, completed=lambda new: {**had, "spec": new.get("spec") or {}}
        )
        change = _to(reviewed)
    path = ".spec.replicas" if defined is None else defined["specReplicasPath"]
    written = await update(core, write, lambda obj: _scaled(obj, change(shown(obj)), route.name, path))
    scale = shown(decode_json(written.value))
    return object_response(_SCALE, encode_json(scale), form, request, core.clock())


def _by_replacement(request: Request) -> Transform:
    return _to(read_object(request, KIND, GROUP, VERSION, field_validation(request)))


def _to(scale: JsonObject) -> Transform:
    return lambda _current: scale


def _by_patch(request: Request) -> Transform:
    return patched_document(request, GROUP, VERSION, KIND)


def _defined_scale(obj: JsonObject, paths: JsonObject) -> JsonObject:
    """A Scale of an object whose definition says where its replicas and its selector are."""
    head = scale_of({**obj, "spec": {}, "status": {}})
    wanted, running = _at(obj, paths["specReplicasPath"]), _at(obj, paths["statusReplicasPath"])
    # The one path that a definition may leave out; taken as a path, none at all would be the object itself.
    selector = _at(obj, where) if (where := paths.get("labelSelectorPath")) else None
    status = {"replicas": running or 0, **({"selector": selector} if selector else {})}
    return {**head, "spec": {"replicas": wanted} if wanted else {}, "status": status}


def _at(obj: JsonObject, path: str) -> Any:
    return value_at(obj, path.split(".")[1:])


def _scaled(obj: JsonObject, scale: JsonObject, name: str, path: str) -> JsonObject:
    """The workload with the replicas of the scale that was sent."""
    metadata, replicas = scale.get("metadata") or {}, (scale.get("spec") or {}).get("replicas", 0)
    if metadata.get("name", name) != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if replicas < 0:
        plain = path == ".spec.replicas"
        why = "must be greater than or equal to 0" if plain else "should be a non-negative integer"
        told = cause("spec.replicas" if plain else path, "FieldValueInvalid", f"Invalid value: {replicas}: {why}")
        raise invalid(KIND, GROUP, name, [told])
    *steps, last = path.split(".")[1:]
    holder = obj
    for step in steps:
        holder = holder.setdefault(step, {})
    holder[last] = replicas
    for field in ("resourceVersion", "uid"):
        if metadata.get(field):
            obj["metadata"][field] = metadata[field]
    return obj


def scale_of(obj: JsonObject) -> JsonObject:
    """A workload as a Scale."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    shown = {k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    replicas: JsonObject = {"replicas": spec["replicas"]} if spec.get("replicas") else {}
    answer: JsonObject = {"replicas": status.get("replicas", 0)}
    selector = spec.get("selector") or {}
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    text = selector_text(selector)
    if text and text != "<none>":
        answer["selector"] = text
    return {"kind": KIND, "apiVersion": f"{GROUP}/{VERSION}", "metadata": shown, "spec": replicas, "status": answer}
