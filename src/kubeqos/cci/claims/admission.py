"""Claims and their parameters, judged when they are written: a check for the API server's admission chain.

A pod is told at `kubectl apply` that its claim asks for something that does not exist, with the place in the
ConfigMap; a ConfigMap that a claim refers to cannot be broken, and a claim cannot refer to a broken one. What is not
there yet is no error: objects come in any order, and the node judges again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeqos.model.annotations.wellknown import CONTAINER_POLICY_ANNOTATION, POLICY_ANNOTATION
from kubeqos.model.objects import PodView
from kubeqos.rules.fielderror import FieldError, invalid
from kubeqos.rules.requests import AdmissionRequest, Lookup, Operation
from kubeqos.topology.claims.asks import check_config, check_pod
from kubeqos.topology.claims.parameters import CONFIG_KEY
from kubeqos.topology.claims.resolving import Key, resolve

_RESOURCE = "resource.k8s.io"
_HOLDERS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
"""Who refers to parameters, and where."""
Raw = Mapping[str, Any]


def check_claims(request: AdmissionRequest, obj: Raw, stored: Lookup) -> tuple[FieldError, ...]:
    """What is wrong with an object that is about to be stored, as far as claims are concerned."""
    if request.subresource or request.operation is Operation.DELETE:
        return ()
    kind = request.kind
    if kind == "Pod" and request.operation is Operation.CREATE:
        return _pod(dict(obj), stored)
    if kind in _HOLDERS and request.operation is Operation.CREATE:
        return _holder(kind, request.namespace, obj, stored)
    if kind == "ConfigMap" and CONFIG_KEY in (obj.get("data") or {}):
        name = (obj.get("metadata") or {}).get("name", "")
        if any(reference == name for reference in _referred(request.namespace, stored)):
            return check_config(obj["data"])
    return ()


def _pod(obj: dict[str, Any], stored: Lookup) -> tuple[FieldError, ...]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    by_policy = any(key == POLICY_ANNOTATION or key.startswith(CONTAINER_POLICY_ANNOTATION) for key in annotations)
    if not by_policy and not (obj.get("spec") or {}).get("resourceClaims"):
        return ()
    view = PodView.of(obj)
    objects: dict[Key, dict[str, Any] | None] = {}
    while not isinstance(found := resolve(view, objects), dict):
        for key in found:
            objects[key] = _read(key, stored)
    return check_pod(view, found)


def _holder(kind: str, namespace: str, obj: Raw, stored: Lookup) -> tuple[FieldError, ...]:
    """A claim or template whose parameters are there already and cannot be understood."""
    path = _HOLDERS[kind]
    name = _reference(obj, path)
    found = stored.get("ConfigMap", "", namespace, name) if name else None
    data = (found or {}).get("data") or {}
    errors = check_config(data) if CONFIG_KEY in data else ()
    return tuple(
        invalid(
            f"{'.'.join(path)}.parametersRef", name, f'ConfigMap "{namespace}/{name}": {error.field}: {error.detail}'
        )
        for error in errors
    )


def _referred(namespace: str, stored: Lookup) -> Iterator[str]:
    """Names of the ConfigMaps that claims of a namespace refer to."""
    for kind, path in _HOLDERS.items():
        for holder in stored.all(kind, _RESOURCE, namespace):
            yield _reference(holder, path)


def _reference(obj: Raw, path: tuple[str, ...]) -> str:
    found: Any = obj
    for part in (*path, "parametersRef"):
        found = (found or {}).get(part)
    return str(found.get("name", "")) if found and found.get("kind") == "ConfigMap" else ""


def _read(key: Key, stored: Lookup) -> dict[str, Any] | None:
    kind, namespace, name = key
    return stored.get(kind, _RESOURCE if kind.startswith("Resource") else "", namespace, name)
