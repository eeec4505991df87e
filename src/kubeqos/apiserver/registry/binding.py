"""Binding: a pod gets its node. `Subresources` calls `bind`.

A binding changes the node, one condition and perhaps annotations: nothing that defaults, quotas or a pod's own rules
look at. So a pod that was never bound is not taken apart for it: what changes is put into its stored bytes (`spliced`).
Whatever is out of the ordinary goes the long way, through the same steps as every update, and is refused there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeqos.apiserver.present.bodies import read_object
from kubeqos.apiserver.present.options import check_options, dry_run, field_validation
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.writes import Write, update
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json, typed_decoder
from kubeqos.model.gotext import quote
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.validation.meta import check_annotations
from kubeqos.store import Put
from kubeqos.web.messages import JSON, Response
from kubeqos.web.status import bad_request, conflict, success

_POD = kind_named("Pod")
_CREATED = encode_json(success(201))


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}


class _Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A Binding as our own clients write it."""

    api_version: str
    kind: str
    metadata: _Metadata
    target: _Target


class _Scheduling(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    scheduling_gates: list[object] | None = None


_decode_binding = typed_decoder(Binding)
_decode_members = typed_decoder(dict[str, msgspec.Raw])
_decode_scheduling = typed_decoder(_Scheduling)
_UNBOUND = _Scheduling()
_PRICED = frozenset(("containerStatuses", "initContainerStatuses"))
"""Where these say what a node has set aside, a condition may change what the pod costs (`rules.quota`)."""


async def bind(core: Core, request: Request, namespace: str, name: str) -> Response:
    """Give a pod its node."""
    binding = plain_binding(request, name)
    stored = core.store.get(_POD.key(namespace, binding.metadata.name), pending=True) if binding is not None else None
    tail = spliced(stored.value, binding, core.clock()) if binding is not None and stored is not None else None
    if stored is None or tail is None:
        return await _bind_the_long_way(core, request, namespace, name)
    head = _POD.head
    await core.store.commit(
        [Put(stored.key, lambda revision: b"%b%d%b" % (head, revision, tail), expect=stored.revision)]
    )
    return Response(201, _CREATED)


def plain_binding(request: Request, name: str) -> Binding | None:
    """The binding of an ordinary request to bind; None where there is something to be said about the request."""
    if request.query or request.content_type != JSON:
        return None
    try:
        binding = _decode_binding(request.body)
    except (JsonError, UnicodeDecodeError):
        return None
    metadata, target = binding.metadata, binding.target
    if not (
        binding.kind == "Binding"
        and binding.api_version == "v1"
        and metadata.name
        and name in ("", metadata.name)
        and target.kind in ("", "Node")
        and target.name
    ):
        return None
    # A body that says anything else, or twice, or in another form, is not the text of what was understood.
    return binding if encode_json(binding) == request.body else None


def spliced(value: bytes, binding: Binding, now: float) -> bytes | None:
    """The stored form of a bound pod behind its revision; None where the binding needs a closer look."""
    pod = _decode_members(value)
    if "spec" not in pod or "status" not in pod:
        return None
    metadata, spec = _decode_members(pod["metadata"]), pod["spec"]
    status, asked, scheduling = decode_json(pod["status"]), binding.metadata, _decode_scheduling(spec)
    if (
        (asked.uid and bytes(metadata["uid"]) != encode_json(asked.uid))
        or "deletionTimestamp" in metadata
        or scheduling != _UNBOUND
        or not _PRICED.isdisjoint(status)
    ):
        return None
    if asked.annotations:
        annotations = decode_json(metadata.get("annotations", b"{}")) | asked.annotations
        wrong: list[FieldError] = []
        check_annotations(wrong, "metadata.annotations", annotations)
        if wrong:
            return None
        metadata["annotations"] = msgspec.Raw(encode_json(annotations))
    metadata["resourceVersion"] = msgspec.Raw(b'""')
    set_condition(status, {"type": "PodScheduled", "status": "True"}, now)
    pod["metadata"], pod["status"] = msgspec.Raw(encode_json(metadata)), msgspec.Raw(encode_json(status))
    pod["spec"] = msgspec.Raw(b'%b,"nodeName":%b}' % (bytes(spec)[:-1], encode_json(binding.target.name)))
    return encode_json(pod)[len(_POD.head) :]


async def _bind_the_long_way(core: Core, request: Request, namespace: str, name: str) -> Response:
    check_options(request, "CreateOptions")
    binding = read_object(request, "Binding", "", "v1", field_validation(request))
    metadata, target = binding["metadata"], binding.get("target") or {}
    if name and metadata.get("name") not in ("", None, name):
        raise bad_request("name in URL does not match name in Binding object")
    problem = _target_problem(target)
    if problem:
        raise bad_request(problem)
    name = name or str(metadata.get("name", ""))

    def assign(pod: JsonObject) -> JsonObject:
        return _assigned(pod, binding, target["name"], core.clock())

    write = Write(_POD, namespace, name, "binding", dry_run=dry_run(request, "CreateOptions"))
    await update(core, write, assign)
    return Response(201, _CREATED)


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
    set_condition(pod.setdefault("status", {}), {"type": "PodScheduled", "status": "True"}, now)
    return pod


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
