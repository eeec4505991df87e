"""Validation of API objects: every field error of an object, in the words of Kubernetes.

`validate` is called by the API server for every write, after decoding and defaulting, and by `kubeqos check`. One
module per family of kinds; `KINDS` says which rules belong to which kind. Adding a kind is one line there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kubeqos.model import names
from kubeqos.model.kinds import BY_VERSION
from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.validation import (
    batch,
    claims,
    cluster,
    config,
    definitions,
    events,
    quota,
    registration,
    service,
    sets,
    workloads,
)
from kubeqos.rules.validation.common import Errors, Raw
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods import spec as pod
from kubeqos.rules.validation.pods import update as podupdate
from kubeqos.rules.validation.stored import rules as stored
from kubeqos.rules.validation.warnings import warnings

__all__ = ["KINDS", "NEWER_EVENT", "KindRules", "Operation", "validate", "warnings"]

Operation = Literal["create", "update"]
Create = Callable[[Errors, Raw], None]
Update = Callable[[Errors, Raw, Raw], None]


@dataclass(frozen=True, slots=True)
class KindRules:
    """How objects of one kind are judged.

    Where a kind has no `update` of its own, an update must keep the metadata's identity and satisfy `create` again;
    `change` then adds what may not change.
    """

    create: Create
    update: Update | None = None
    change: Update | None = None
    subresources: dict[str, Update] = field(default_factory=dict)


def _only_meta(rule: names.NameRule, *, namespaced: bool) -> Create:
    def check(out: Errors, raw: Raw) -> None:
        check_meta(out, meta_of(raw), rule, namespaced=namespaced)

    return check


def _stored_for_others(key: tuple[str, str, str]) -> KindRules:
    create, update, status = stored.checks_of(key)
    return KindRules(create, update, subresources={"status": status})


NEWER_EVENT = "events.k8s.io Event"
"""Events that are written in the newer form; they are stored as the older one."""
_OBJECT = _only_meta(names.dns_subdomain, namespaced=True)

KINDS: dict[str, KindRules] = {
    "Pod": KindRules(
        pod.check_pod_create,
        podupdate.check_pod_update,
        subresources={
            "status": podupdate.check_pod_status_update,
            "resize": podupdate.check_pod_resize,
            "ephemeralcontainers": podupdate.check_ephemeral_update,
        },
    ),
    "PodTemplate": KindRules(workloads.check_pod_template_object),
    "ResourceQuota": KindRules(
        quota.check_quota,
        quota.check_quota_update,
        subresources={"status": quota.check_quota_status_update},
    ),
    "LimitRange": KindRules(quota.check_limit_range),
    "Namespace": KindRules(
        cluster.check_namespace,
        cluster.check_namespace_update,
        subresources={
            "status": cluster.check_namespace_status_update,
            "finalize": cluster.check_namespace_finalize,
        },
    ),
    "Node": KindRules(
        cluster.check_node,
        cluster.check_node_update,
        subresources={"status": cluster.check_node_update},
    ),
    "ConfigMap": KindRules(config.check_config_map, config.check_config_map_update),
    "Secret": KindRules(config.check_secret, config.check_secret_update),
    "Service": KindRules(
        service.check_service, service.check_service_update, subresources={"status": service.check_service_status}
    ),
    "PriorityClass": KindRules(cluster.check_priority_class, cluster.check_priority_class_update),
    "PersistentVolumeClaim": KindRules(claims.check_volume_claim, claims.check_volume_claim_update),
    "ReplicationController": KindRules(
        workloads.check_replication_controller, subresources={"status": workloads.check_replicas_status}
    ),
    "ReplicaSet": KindRules(
        workloads.check_replica_set,
        change=workloads.check_selector_change,
        subresources={"status": workloads.check_replicas_status},
    ),
    "Deployment": KindRules(
        workloads.check_deployment,
        change=workloads.check_selector_change,
        subresources={"status": workloads.check_deployment_status},
    ),
    "DaemonSet": KindRules(
        sets.check_daemon_set, change=sets.check_daemon_change, subresources={"status": sets.check_daemon_status}
    ),
    "StatefulSet": KindRules(
        sets.check_stateful_set,
        sets.check_stateful_update,
        subresources={"status": sets.check_stateful_status},
    ),
    "Job": KindRules(batch.check_job, batch.check_job_update),
    "CronJob": KindRules(batch.check_cron_job),
    "PodDisruptionBudget": KindRules(
        workloads.check_disruption_budget,
        workloads.check_disruption_budget_update,
        subresources={"status": workloads.check_disruption_budget_status},
    ),
    "APIService": KindRules(
        registration.check_api_service, subresources={"status": registration.check_api_service_status}
    ),
    "CustomResourceDefinition": KindRules(definitions.check_definition, definitions.check_definition_update),
    "Lease": KindRules(cluster.check_lease),
    "Event": KindRules(events.check_event),
    NEWER_EVENT: KindRules(events.check_newer_event, events.check_newer_event_update),
    "ServiceAccount": KindRules(_OBJECT),
    "Role": KindRules(cluster.check_role),
    "ClusterRole": KindRules(cluster.check_cluster_role),
    "RoleBinding": KindRules(cluster.check_role_binding, change=cluster.check_binding_change),
    "ClusterRoleBinding": KindRules(cluster.check_cluster_role_binding, change=cluster.check_binding_change),
    "ResourceClass": KindRules(claims.check_resource_class),
    "ResourceClaim": KindRules(claims.check_resource_claim, change=claims.check_spec_change),
    "ResourceClaimTemplate": KindRules(claims.check_claim_template, change=claims.check_spec_change),
    **{BY_VERSION[key].rules: _stored_for_others(key) for key in stored.RULES},
}


def validate(
    kind: str, raw: Raw, *, old: Raw | None = None, operation: Operation = "create", subresource: str = ""
) -> list[FieldError]:
    """Every field error of a decoded and defaulted object. An update is judged against the stored object `old`."""
    out: Errors = []
    rules = KINDS.get(kind)
    if rules is None:
        namespaced = bool(meta_of(raw).get("namespace"))
        rules = KindRules(_only_meta(names.dns_subdomain, namespaced=namespaced))
    if operation == "create" or old is None:
        rules.create(out, raw)
    elif subresource:
        rules.subresources.get(subresource, _identity)(out, raw, old)
    elif rules.update is not None:
        rules.update(out, raw, old)
    else:
        check_meta_update(out, meta_of(raw), meta_of(old))
        rules.create(out, raw)
        if rules.change is not None:
            rules.change(out, raw, old)
    return out


def _identity(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
