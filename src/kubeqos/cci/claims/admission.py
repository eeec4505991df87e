"""Claims and their parameters, judged when they are written: a check for the API server's admission chain.

A pod is told at `kubectl apply` that its claim asks for something that does not exist, with the place in the
ConfigMap; a ConfigMap that a claim refers to cannot be broken, and a claim cannot refer to a broken one. What is not
there yet is no error: objects come in any order, and the node judges again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeqos.apiserver.admission.contract import Attempt
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.cci.claims.asks import check_config, check_pod
from kubeqos.cci.claims.parameters import CONFIG_KEY
from kubeqos.cci.claims.resolving import Key, Objects, resolve
from kubeqos.codec import decode_json
from kubeqos.model.objects import PodView
from kubeqos.model.wellknown import CONTAINER_POLICY_ANNOTATION, POLICY_ANNOTATION
from kubeqos.rules.fielderror import FieldError, invalid
from kubeqos.store import Store

_RESOURCE = "resource.k8s.io"
_CONFIG_MAP = kind_named("ConfigMap")
_HOLDERS = {
    "ResourceClaim": (kind_named("ResourceClaim", _RESOURCE), ("spec",)),
    "ResourceClaimTemplate": (kind_named("ResourceClaimTemplate", _RESOURCE), ("spec", "spec")),
}
Raw = Mapping[str, Any]


def check_claims(attempt: Attempt, obj: Raw, store: Store) -> tuple[FieldError, ...]:
    """What is wrong with an object that is about to be stored, as far as claims are concerned."""
    if attempt.subresource or attempt.operation == "DELETE":
        return ()
    kind = attempt.kind.kind
    if kind == "Pod" and attempt.operation == "CREATE":
        return _pod(dict(obj), store)
    if kind in _HOLDERS and attempt.operation == "CREATE":
        return _holder(kind, attempt.namespace, obj, store)
    if kind == "ConfigMap" and CONFIG_KEY in (obj.get("data") or {}):
        name = (obj.get("metadata") or {}).get("name", "")
        if any(reference == name for reference in _referred(attempt.namespace, store)):
            return check_config(obj["data"])
    return ()


def _pod(obj: dict[str, Any], store: Store) -> tuple[FieldError, ...]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    by_policy = any(key == POLICY_ANNOTATION or key.startswith(CONTAINER_POLICY_ANNOTATION) for key in annotations)
    if not by_policy and not (obj.get("spec") or {}).get("resourceClaims"):
        return ()
    view = PodView.of(obj)
    objects: Objects = {}
    while not isinstance(found := resolve(view, objects), dict):
        for key in found:
            objects[key] = _read(key, store)
    return check_pod(view, found)


def _holder(kind: str, namespace: str, obj: Raw, store: Store) -> tuple[FieldError, ...]:
    """A claim or template whose parameters are there already and cannot be understood."""
    path = _HOLDERS[kind][1]
    name = _reference(obj, path)
    stored = store.get(_CONFIG_MAP.key(namespace, name), pending=True) if name else None
    data = (decode_json(stored.value).get("data") or {}) if stored else {}
    errors = check_config(data) if CONFIG_KEY in data else ()
    return tuple(
        invalid(
            f"{'.'.join(path)}.parametersRef", name, f'ConfigMap "{namespace}/{name}": {error.field}: {error.detail}'
        )
        for error in errors
    )


def _referred(namespace: str, store: Store) -> Iterator[str]:
    """Names of the ConfigMaps that claims of a namespace refer to."""
    for kind, path in _HOLDERS.values():
        for stored in store.range(kind.range_prefix(namespace)).items:
            yield _reference(decode_json(stored.value), path)


def _reference(obj: Raw, path: tuple[str, ...]) -> str:
    found: Any = obj
    for part in (*path, "parametersRef"):
        found = (found or {}).get(part)
    return str(found.get("name", "")) if found and found.get("kind") == "ConfigMap" else ""


def _read(key: Key, store: Store) -> dict[str, Any] | None:
    resource, namespace, name = key
    stored = store.get(kind_named(resource.kind, resource.group).key(namespace, name), pending=True)
    return decode_json(stored.value) if stored else None
