"""Validation of kinds that this house stores for others: by their schema, their names, and what may not change.

What Kubernetes writes in code for each of them is here a table: a required text is not empty, a choice is one of those
there are, an immutable field keeps its value. Called through `validation.KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model import names, schema
from kubeqos.model.kinds import BY_VERSION, ApiResource
from kubeqos.rules.fielderror import not_supported, required
from kubeqos.rules.validation.common import Errors, Raw, check_immutable
from kubeqos.rules.validation.meta import check_meta, meta_of

_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_FAILURES = ("Fail", "Ignore")
_JUDGED_ELSEWHERE = frozenset(("metadata", "status", "kind", "apiVersion"))


@dataclass(frozen=True, slots=True)
class PublishedRules:
    """How a kind is judged beside its schema."""

    name: names.NameRule = names.dns_subdomain
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    immutable: tuple[str, ...] = ()


def _bundle_name(name: str) -> names.Complaints:
    """A signer's bundle begins with the signer's name, whose slash is a colon there."""
    return names.dns_subdomain(name.replace(":", "."))


RULES: dict[tuple[str, str, str], PublishedRules] = {
    ("storage.k8s.io", "v1", "StorageClass"): PublishedRules(
        choices={
            "reclaimPolicy": ("Delete", "Retain"),
            "volumeBindingMode": ("Immediate", "WaitForFirstConsumer"),
        },
        immutable=("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    ),
    ("storage.k8s.io", "v1", "CSINode"): PublishedRules(),
    ("storage.k8s.io", "v1", "CSIDriver"): PublishedRules(
        choices={
            "spec.fsGroupPolicy": ("ReadWriteOnceWithFSType", "File", "None"),
            "spec.volumeLifecycleModes[]": ("Persistent", "Ephemeral"),
        },
        immutable=("spec.attachRequired", "spec.volumeLifecycleModes"),
    ),
    ("storage.k8s.io", "v1", "CSIStorageCapacity"): PublishedRules(immutable=("nodeTopology", "storageClassName")),
    ("storage.k8s.io", "v1", "VolumeAttachment"): PublishedRules(immutable=("spec",)),
    ("storage.k8s.io", "v1", "VolumeAttributesClass"): PublishedRules(immutable=("driverName", "parameters")),
    ("", "v1", "PersistentVolume"): PublishedRules(
        choices={
            "spec.accessModes[]": _ACCESS_MODES,
            "spec.persistentVolumeReclaimPolicy": ("Delete", "Recycle", "Retain"),
            "spec.volumeMode": ("Block", "Filesystem"),
        },
        immutable=("spec.volumeMode",),
    ),
    ("", "v1", "Endpoints"): PublishedRules(choices={"subsets[].ports[].protocol": _PROTOCOLS}),
    ("discovery.k8s.io", "v1", "EndpointSlice"): PublishedRules(
        choices={"addressType": ("IPv4", "IPv6", "FQDN"), "ports[].protocol": _PROTOCOLS},
        immutable=("addressType",),
    ),
    ("resource.k8s.io", "v1", "ResourceClaim"): PublishedRules(immutable=("spec",)),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate"): PublishedRules(immutable=("spec",)),
    ("resource.k8s.io", "v1", "ResourceSlice"): PublishedRules(immutable=("spec.driver", "spec.nodeName")),
    ("resource.k8s.io", "v1", "DeviceClass"): PublishedRules(),
    ("resource.k8s.io", "v1", "DeviceTaintRule"): PublishedRules(
        choices={"spec.taint.effect": ("NoSchedule", "NoExecute", "None")}
    ),
    ("node.k8s.io", "v1", "RuntimeClass"): PublishedRules(immutable=("handler",)),
    ("networking.k8s.io", "v1", "NetworkPolicy"): PublishedRules(
        choices={
            "spec.policyTypes[]": ("Ingress", "Egress"),
            "spec.ingress[].ports[].protocol": _PROTOCOLS,
            "spec.egress[].ports[].protocol": _PROTOCOLS,
        }
    ),
    ("networking.k8s.io", "v1", "Ingress"): PublishedRules(
        choices={"spec.rules[].http.paths[].pathType": ("Exact", "ImplementationSpecific", "Prefix")}
    ),
    ("networking.k8s.io", "v1", "IngressClass"): PublishedRules(immutable=("spec.controller",)),
    ("networking.k8s.io", "v1", "IPAddress"): PublishedRules(names.ip_address, immutable=("spec.parentRef",)),
    ("networking.k8s.io", "v1", "ServiceCIDR"): PublishedRules(),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"): PublishedRules(
        choices={"spec.metrics[].type": ("ContainerResource", "External", "Object", "Pods", "Resource")}
    ),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): PublishedRules(immutable=("spec",)),
    ("certificates.k8s.io", "v1", "ClusterTrustBundle"): PublishedRules(_bundle_name, immutable=("spec.signerName",)),
    ("certificates.k8s.io", "v1", "PodCertificateRequest"): PublishedRules(immutable=("spec",)),
    ("apps", "v1", "ControllerRevision"): PublishedRules(immutable=("data",)),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"): PublishedRules(
        choices={
            "webhooks[].failurePolicy": _FAILURES,
            "webhooks[].reinvocationPolicy": ("IfNeeded", "Never"),
            "webhooks[].sideEffects": ("None", "NoneOnDryRun"),
        }
    ),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"): PublishedRules(
        choices={"webhooks[].failurePolicy": _FAILURES, "webhooks[].sideEffects": ("None", "NoneOnDryRun")}
    ),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"): PublishedRules(
        choices={"spec.failurePolicy": _FAILURES}
    ),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"): PublishedRules(
        choices={"spec.validationActions[]": ("Audit", "Deny", "Warn")}
    ),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"): PublishedRules(
        choices={"spec.failurePolicy": _FAILURES}
    ),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"): PublishedRules(),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"): PublishedRules(),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"): PublishedRules(
        choices={"spec.type": ("Exempt", "Limited")}
    ),
    ("storagemigration.k8s.io", "v1", "StorageVersionMigration"): PublishedRules(immutable=("spec.resource",)),
}


def checks_of(key: tuple[str, str, str]) -> tuple[Callable[[Errors, Raw], None], Callable[[Errors, Raw, Raw], None]]:
    """What judges an object of such a kind, and what judges a change of one."""
    rules, resource = RULES[key], BY_VERSION[key]

    def create(out: Errors, raw: Raw) -> None:
        check_meta(out, meta_of(raw), rules.name, namespaced=resource.namespaced)
        _check_required(out, raw, resource)
        for path, choices in rules.choices.items():
            _check_choices(out, "", raw, path.split("."), choices)

    def change(out: Errors, raw: Raw, old: Raw) -> None:
        for path in rules.immutable:
            check_immutable(out, path, _at(raw, path), _at(old, path))

    return create, change


def _at(raw: Raw, path: str) -> Any:
    found: Any = raw
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _check_required(out: Errors, raw: Raw, resource: ApiResource) -> None:
    kind = schema.kind(resource.group, resource.version, resource.kind)
    for name, each in kind.fields.items():
        if name not in _JUDGED_ELSEWHERE:
            _check_value(out, name, raw.get(name), each)


def _check_value(out: Errors, path: str, value: Any, each: schema.Field) -> None:
    """A required text is not empty, here and further down."""
    shape = each.shape
    if shape.kind in ("string", "bytes") and each.required and not value:
        out.append(required(path))
    elif shape.kind == "object" and isinstance(value, dict):
        _check_object(out, path, value, shape.object_type)
    elif shape.kind == "list" and shape.object_type is not None:
        for index, item in enumerate(value or ()):
            _check_object(out, f"{path}[{index}]", item, shape.object_type)


def _check_object(out: Errors, path: str, value: Raw, kind: schema.TypeSchema | None) -> None:
    if kind is None or kind.name in _ELSEWHERE:
        return
    for name, each in kind.fields.items():
        _check_value(out, f"{path}.{name}", value.get(name), each)


_ELSEWHERE = frozenset(("ObjectMeta", "ObjectReference", "PodTemplateSpec", "LabelSelector"))
"""Types that are judged elsewhere, or hold nothing that must be said."""


def _check_choices(out: Errors, path: str, value: Any, steps: list[str], choices: tuple[str, ...]) -> None:
    if value is None:
        return
    if not steps:
        if value != "" and value not in choices:
            out.append(not_supported(path, value, choices))
        return
    step, rest = steps[0], steps[1:]
    name = step.removesuffix("[]")
    found = value.get(name) if isinstance(value, dict) else None
    below = f"{path}.{name}" if path else name
    if not step.endswith("[]"):
        _check_choices(out, below, found, rest, choices)
        return
    for index, item in enumerate(found or ()):
        _check_choices(out, f"{below}[{index}]", item, rest, choices)
