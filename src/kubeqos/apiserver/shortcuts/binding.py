"""A pod gets its node without being taken apart: what a binding changes is put into the pod's stored bytes.

A binding changes the node, one condition and perhaps annotations: nothing that defaults, quotas or a pod's own rules
look at. Whatever is out of the ordinary is left to `registry.binding`, through the same steps as every update, and is
refused there.
"""

from __future__ import annotations

import msgspec

from kubeqos.apiserver.registry.binding import BOUND, mark_bound
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonError, decode_json, encode_json, typed_decoder
from kubeqos.model.messages import Binding, says_all
from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.validation.meta import check_annotations
from kubeqos.store import Put
from kubeqos.web.messages import JSON, Response

_POD = kind_named("Pod")


class _Scheduling(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    scheduling_gates: list[object] | None = None


_decode_binding = typed_decoder(Binding)
_decode_members = typed_decoder(dict[str, msgspec.Raw])
_decode_scheduling = typed_decoder(_Scheduling)
_UNBOUND = _Scheduling()
_PRICED = frozenset(("containerStatuses", "initContainerStatuses"))
"""Where these say what a node has set aside, a condition may change what the pod costs (`rules.quota`)."""


class SplicedBinding:
    """Binds ordinary pods (a `hooks.Bind`)."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def __call__(self, request: Request, namespace: str, name: str) -> Response | None:
        binding = plain_binding(request, name)
        if binding is None:
            return None
        store = self._core.store
        stored = store.get(_POD.key(namespace, binding.metadata.name), pending=True)
        tail = spliced(stored.value, binding, self._core.clock()) if stored is not None else None
        if stored is None or tail is None:
            return None
        head = _POD.head
        await store.commit(
            [Put(stored.key, lambda revision: b"%b%d%b" % (head, revision, tail), expect=stored.revision)]
        )
        return Response(201, BOUND)


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
    return binding if says_all(binding, request.body) else None


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
    mark_bound(status, now)
    pod["metadata"], pod["status"] = msgspec.Raw(encode_json(metadata)), msgspec.Raw(encode_json(status))
    pod["spec"] = msgspec.Raw(b'%b,"nodeName":%b}' % (bytes(spec)[:-1], encode_json(binding.target.name)))
    return encode_json(pod)[len(_POD.head) :]
