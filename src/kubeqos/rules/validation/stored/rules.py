"""Validation of kinds that this house stores for others: their names, their fields, and what may not change.

What Kubernetes writes in code for each of them is here a table. Called through `validation.KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeqos.codec import value_at
from kubeqos.model import names, schema
from kubeqos.model.kinds import BY_VERSION
from kubeqos.rules.fielderror import invalid
from kubeqos.rules.validation.common import Errors, Raw
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.stored import networking, storage, system
from kubeqos.rules.validation.stored.walk import check_fields, check_status

Create = Callable[[Errors, Raw], None]
Update = Callable[[Errors, Raw, Raw], None]


@dataclass(frozen=True, slots=True)
class StoredRules:
    """How a kind is judged beside its fields."""

    name: names.NameRule = names.dns_subdomain
    immutable: tuple[str, ...] = ()
    change: Update | None = None
    """What else may not change."""
    judged_once: bool = False
    """What cannot change is not judged again."""
    shows: bool = True
    """Whether a refusal shows what the unchangeable should have become; some parts of Kubernetes write null there."""


def _judged_with_the_signer(_name: str) -> names.Complaints:
    """A bundle's name depends on whose it is: it is judged among the fields."""
    return ()


RULES: dict[tuple[str, str, str], StoredRules] = {
    ("storage.k8s.io", "v1", "StorageClass"): StoredRules(
        immutable=("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"), shows=False
    ),
    ("storage.k8s.io", "v1", "CSINode"): StoredRules(change=storage.check_node_change),
    ("storage.k8s.io", "v1", "CSIDriver"): StoredRules(immutable=("spec.attachRequired", "spec.volumeLifecycleModes")),
    ("storage.k8s.io", "v1", "CSIStorageCapacity"): StoredRules(immutable=("nodeTopology", "storageClassName")),
    ("storage.k8s.io", "v1", "VolumeAttachment"): StoredRules(immutable=("spec",)),
    ("storage.k8s.io", "v1", "VolumeAttributesClass"): StoredRules(change=storage.check_attributes_change),
    ("", "v1", "PersistentVolume"): StoredRules(change=storage.check_volume_change),
    ("", "v1", "Endpoints"): StoredRules(),
    ("discovery.k8s.io", "v1", "EndpointSlice"): StoredRules(immutable=("addressType",), shows=False),
    ("resource.k8s.io", "v1", "ResourceClaim"): StoredRules(immutable=("spec",), judged_once=True, shows=False),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate"): StoredRules(immutable=("spec",)),
    ("resource.k8s.io", "v1", "ResourceSlice"): StoredRules(
        immutable=("spec.driver", "spec.nodeName", "spec.pool.name")
    ),
    ("resource.k8s.io", "v1", "DeviceClass"): StoredRules(),
    ("resource.k8s.io", "v1", "DeviceTaintRule"): StoredRules(),
    ("node.k8s.io", "v1", "RuntimeClass"): StoredRules(immutable=("handler",), shows=False),
    ("networking.k8s.io", "v1", "NetworkPolicy"): StoredRules(),
    ("networking.k8s.io", "v1", "Ingress"): StoredRules(),
    ("networking.k8s.io", "v1", "IngressClass"): StoredRules(immutable=("spec.controller",)),
    ("networking.k8s.io", "v1", "IPAddress"): StoredRules(names.ip_address, immutable=("spec.parentRef",), shows=False),
    ("networking.k8s.io", "v1", "ServiceCIDR"): StoredRules(change=networking.check_cidrs_change, judged_once=True),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"): StoredRules(),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): StoredRules(immutable=("spec",)),
    ("certificates.k8s.io", "v1", "ClusterTrustBundle"): StoredRules(
        _judged_with_the_signer, immutable=("spec.signerName",)
    ),
    ("certificates.k8s.io", "v1", "PodCertificateRequest"): StoredRules(immutable=("spec",), judged_once=True),
    ("apps", "v1", "ControllerRevision"): StoredRules(
        immutable=("data",), change=system.check_revision_change, judged_once=True
    ),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"): StoredRules(),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"): StoredRules(),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"): StoredRules(),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"): StoredRules(),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"): StoredRules(),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"): StoredRules(),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"): StoredRules(),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"): StoredRules(),
    ("storagemigration.k8s.io", "v1", "StorageVersionMigration"): StoredRules(immutable=("spec",)),
}


def checks_of(key: tuple[str, str, str]) -> tuple[Create, Update, Update]:
    """What judges an object of such a kind, an update of one, and an update of its status."""
    rules, resource = RULES[key], BY_VERSION[key]

    def create(out: Errors, raw: Raw) -> None:
        check_meta(out, meta_of(raw), rules.name, namespaced=resource.namespaced)
        check_fields(out, raw, schema.kind(*key))

    def update(out: Errors, raw: Raw, old: Raw) -> None:
        check_meta_update(out, meta_of(raw), meta_of(old))
        if not rules.judged_once:
            check_fields(out, raw, schema.kind(*key))
        for path in rules.immutable:
            now, was = (value_at(one, path.split(".")) for one in (raw, old))
            if now != was:
                out.append(invalid(path, now if rules.shows else None, names.IMMUTABLE))
        if rules.change is not None:
            rules.change(out, raw, old)

    def status(out: Errors, raw: Raw, old: Raw) -> None:
        check_meta_update(out, meta_of(raw), meta_of(old))
        check_status(out, raw, schema.kind(*key))

    return create, update, status
