"""Short ways to write the objects of these stories."""

from __future__ import annotations

from typing import Any

from kubeqos.rules.offline import Answer, Offline
from kubeqos.rules.requests import RequestRefused

Raw = dict[str, Any]


def container(name: str = "main", *, requests: Raw | None = None, limits: Raw | None = None, **more: Any) -> Raw:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "image": "registry.example/app:1", "resources": resources, **more}


def pod(name: str, *containers: Raw, **spec: Any) -> Raw:
    spec = {"containers": list(containers) or [container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def quota(name: str, hard: Raw | None = None, *scopes: str, **spec: Any) -> Raw:
    spec = {key: value for key, value in {"hard": hard, "scopes": list(scopes), **spec}.items() if value}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}


def limit_range(*items: Raw, name: str = "limits") -> Raw:
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": list(items)}}


def used(cluster: Offline, name: str) -> Raw:
    found = cluster.ledger.quota("default", name)
    assert found is not None
    return found.status()["used"]


def why(answer: Answer) -> str:
    """What the server said no with."""
    assert isinstance(answer.outcome, RequestRefused), answer.line
    return answer.outcome.message
