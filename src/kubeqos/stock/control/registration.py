"""How an API server is told of the webhooks. Pure.

Only namespaces with the label `qos.kubeqos.io/enforce: "true"` depend on them: there a pod that nobody could judge is
not created. Elsewhere a pod is created as it is when no webhook answers, so that a stopped controller blocks nothing.
The system's namespace and our own are never asked about: what runs the webhooks must not wait for them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kubeqos.client.resources import Resource, resource_named
from kubeqos.model.kinds import ADMISSION

Raw = dict[str, Any]
NAME = "kubeqos"
ENFORCE_LABEL = "qos.kubeqos.io/enforce"
MUTATING = resource_named("MutatingWebhookConfiguration", ADMISSION)
VALIDATING = resource_named("ValidatingWebhookConfiguration", ADMISSION)
_NAME_LABEL = "kubernetes.io/metadata.name"
_PATHS = {MUTATING.kind: "/mutate", VALIDATING.kind: "/validate"}
_SECONDS = {"Fail": 10, "Ignore": 2}


@dataclass(frozen=True, slots=True)
class Address:
    """Where an API server finds the webhooks: a Service of the cluster, or a URL."""

    service: str = ""
    namespace: str = ""
    port: int = 443
    url: str = ""

    @property
    def hosts(self) -> list[str]:
        """The names that the certificate is for."""
        if self.url:
            return [urlsplit(self.url).hostname or ""]
        return [f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local"]

    def client_config(self, path: str, bundle: bytes) -> Raw:
        trusted = {"caBundle": base64.b64encode(bundle).decode()}
        if self.url:
            return {"url": self.url.rstrip("/") + path, **trusted}
        named = {"namespace": self.namespace, "name": self.service, "port": self.port, "path": path}
        return {"service": named, **trusted}


def configurations(address: Address, bundle: bytes, own_namespace: str) -> list[tuple[Resource, Raw]]:
    """Both configurations, whole."""
    return [(kind, _configuration(kind, address, bundle, own_namespace)) for kind in (MUTATING, VALIDATING)]


def published(configuration: Raw) -> bytes:
    """The bundle that a stored configuration names; nothing where its webhooks do not agree."""
    bundles = {(hook.get("clientConfig") or {}).get("caBundle") or "" for hook in configuration.get("webhooks") or ()}
    return base64.b64decode(bundles.pop()) if len(bundles) == 1 else b""


def _configuration(kind: Resource, address: Address, bundle: bytes, own_namespace: str) -> Raw:
    webhooks = []
    for policy, operator in (("Fail", "In"), ("Ignore", "NotIn")):
        hook: Raw = {
            "name": f"{'enforced' if policy == 'Fail' else 'offered'}.{NAME}.io",
            "clientConfig": address.client_config(_PATHS[kind.kind], bundle),
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"] if kind is MUTATING else ["CREATE", "UPDATE"],
                    "scope": "Namespaced",
                }
            ],
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": ENFORCE_LABEL, "operator": operator, "values": ["true"]},
                    {"key": _NAME_LABEL, "operator": "NotIn", "values": sorted({"kube-system", own_namespace})},
                ]
            },
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None" if kind is MUTATING else "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": _SECONDS[policy],
        }
        if kind is MUTATING:
            hook["reinvocationPolicy"] = "IfNeeded"
        webhooks.append(hook)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": NAME}, "webhooks": webhooks}
