"""Binding: a pod gets its node, through the same steps as every update. `Handlers.bind` calls `bind`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kubeqos.apiserver.present.bodies import read_object
from kubeqos.apiserver.present.options import check_options, dry_run, field_validation
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.writes import Write, update
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.text.gotext import quote
from kubeqos.model.timestamps import timestamp
from kubeqos.web.messages import Response
from kubeqos.web.status import bad_request, conflict, success

_POD, _BINDING = kind_named("Pod"), kind_named("Binding")
BOUND = encode_json(success(201))
"""What is answered to a binding."""


async def bind(core: Core, request: Request, namespace: str, name: str) -> Response:
    """Give a pod its node."""
    check_options(request, "CreateOptions")
    binding = read_object(request, "Binding", "", "v1", field_validation(request))
    metadata, target = binding["metadata"], binding.get("target") or {}
    if name and metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    problem = _target_problem(target)
    if problem:
        raise bad_request(problem)
    below, name = bool(name), name or str(metadata.get("name", ""))
    if core.hooks is not None:
        dry = dry_run(request, "CreateOptions")
        asked = Write(_POD, namespace, name, "binding") if below else Write(_BINDING, namespace, name)
        asked = replace(asked, asked=request, dry_run=dry, warnings=request.warnings)
        binding = await core.hooks.below(asked, "CREATE", ("", "v1", "Binding"), binding)
        target = binding.get("target") or {}

    def assign(pod: JsonObject) -> JsonObject:
        return _assigned(pod, binding, target["name"], core.clock())

    write = Write(_POD, namespace, name, "binding", dry_run=dry_run(request, "CreateOptions"))
    await update(core, write, assign)
    return Response(201, BOUND)


def _target_problem(target: JsonObject) -> str | None:
    if target.get("kind") not in (None, "", "Node"):
        return f'target.kind: Unsupported value: {quote(str(target["kind"]))}: supported values: "Node", "<empty>"'
    return None if target.get("name") else "target.name: Required value"


def _assigned(pod: JsonObject, binding: JsonObject, node: str, now: float) -> JsonObject:
    name, spec = pod["metadata"]["name"], pod.setdefault("spec", {})
    given = binding["metadata"].get("uid")
    if given and given != pod["metadata"]["uid"]:
        raise conflict("pods/binding", "", name, f"Precondition failed: UID in precondition: {given}")
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("pods/binding", "", name, f"pod {name} is already assigned to node {quote(spec['nodeName'])}")
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node
    annotations = binding["metadata"].get("annotations")
    if annotations:
        pod["metadata"].setdefault("annotations", {}).update(annotations)
    mark_bound(pod.setdefault("status", {}), now)
    return pod


def mark_bound(status: JsonObject, now: float) -> None:
    """What a binding says in the status: where the pod was to go no longer matters."""
    status.pop("nominatedNodeName", None)
    set_condition(status, {"type": "PodScheduled", "status": "True"}, now)


def set_condition(status: JsonObject, condition: JsonObject, now: float) -> None:
    """Put a condition into a pod's status; its transition time moves only when it changes sides."""
    conditions: list[Any] = status.setdefault("conditions", [])
    stamped = {
        "type": condition["type"],
        "status": condition["status"],
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
        **{k: v for k, v in condition.items() if k not in ("type", "status")},
    }
    for index, known in enumerate(conditions):
        if known.get("type") == condition["type"]:
            if known.get("status") == condition["status"]:
                stamped["lastTransitionTime"] = known.get("lastTransitionTime")
            conditions[index] = stamped
            return
    conditions.append(stamped)
