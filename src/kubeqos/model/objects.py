"""Typed, read-only views of API objects.

The raw JSON tree is canonical; a view is a lens over the part of it that decisions need, made with `PodView.of(raw)`.
Fields that no view names survive in the raw tree. Views hold the KEPs' fields beside the upstream ones:
`qosResources` (KEP-3008) and the alpha claim kinds (KEP-3675), spelled as the KEPs' YAML spells them (DESIGN ruling 1).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct, field

from kubeqos.errors import InputError
from kubeqos.model.quantity import Quantity, decode_hook

ResourceList = dict[str, Quantity]
_T = TypeVar("_T")


def convert(raw: Any, kind: type[_T]) -> _T:
    """Read a raw JSON tree as `kind`; the error names the field in Kubernetes' path form.

    Null means "not set" everywhere. The canonical form has few nulls (`containers: null`), so they are looked for only
    where one was in the way.
    """
    try:
        return msgspec.convert(raw, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        if "got `null`" in what and (given := without_nulls(raw)) != raw:
            return convert(given, kind)
        raise InputError(what, where=path.rstrip("`").lstrip(".") or None) from error


def without_nulls(raw: Any) -> Any:
    """The tree without the members of objects that are null."""
    if isinstance(raw, dict):
        return {key: without_nulls(value) for key, value in raw.items() if value is not None}
    return [without_nulls(value) for value in raw] if isinstance(raw, list) else raw


@cache
def _reader(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    return msgspec.json.Decoder(kind, dec_hook=decode_hook)


def resource_list(raw: Any) -> ResourceList:
    """Read a `{name: quantity}` tree."""
    return convert(raw or {}, dict[str, Quantity])


class View(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all views."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Self:
        """Look at `raw` through this view."""
        return convert(raw, cls)

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Look at an encoded object; fields the view does not name are skipped without being built."""
        try:
            view: Self = _reader(cls).decode(raw)
        except msgspec.ValidationError:
            return cls.of(msgspec.json.decode(raw))  # a null may be in the way, or the error is told there
        return view


class OwnerReference(View, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(View, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class QosResourceRequest(View, frozen=True, kw_only=True):
    """KEP-3008: one class of one QoS-class resource, as asked for or as assigned; "" is the system default."""

    name: str
    class_: str = field(name="class", default="")


class ResourceClaimUse(View, frozen=True, kw_only=True):
    """A container's use of one of the pod's claims."""

    name: str
    request: str = ""


class Resources(View, frozen=True, kw_only=True):
    """Requests, limits, claims and classes of a container or of a whole pod."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: list[ResourceClaimUse] = []
    qos_resources: list[QosResourceRequest] = []


NO_RESOURCES = Resources()


class ContainerPort(View, frozen=True, kw_only=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerView(View, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    resources: Resources = NO_RESOURCES
    restart_policy: str | None = None
    ports: list[ContainerPort] = []

    @property
    def is_sidecar(self) -> bool:
        """Whether, as an init container, it keeps running beside the app containers."""
        return self.restart_policy == "Always"


class LabelExpression(View, frozen=True, kw_only=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelectorView(View, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelExpression] = []


class NodeSelectorTerm(View, frozen=True, kw_only=True):
    match_expressions: list[LabelExpression] = []
    match_fields: list[LabelExpression] = []


class NodeSelectorView(View, frozen=True, kw_only=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredNodeTerm(View, frozen=True, kw_only=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelectorView | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredNodeTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(View, frozen=True, kw_only=True):
    topology_key: str = ""
    label_selector: LabelSelectorView | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelectorView | None = None


class WeightedPodAffinityTerm(View, frozen=True, kw_only=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(View, frozen=True, kw_only=True):
    required: list[PodAffinityTerm] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(View, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpread(View, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelectorView | None = None
    min_domains: int | None = None


class SchedulingGate(View, frozen=True, kw_only=True):
    name: str


class ReadinessGate(View, frozen=True, kw_only=True):
    condition_type: str = ""


class ClaimSource(View, frozen=True, kw_only=True):
    """Where a pod's claim comes from: an existing claim, or a template to make one from."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaim(View, frozen=True, kw_only=True):
    """A claim a pod names. The alpha form nests `source`, the later form has its members inline."""

    name: str
    source: ClaimSource | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None

    @property
    def origin(self) -> ClaimSource:
        """The source, whichever of the two forms was written."""
        return self.source or ClaimSource(
            resource_claim_name=self.resource_claim_name,
            resource_claim_template_name=self.resource_claim_template_name,
        )


class PodSpec(View, frozen=True, kw_only=True):
    containers: list[ContainerView] = []
    init_containers: list[ContainerView] = []
    ephemeral_containers: list[ContainerView] = []
    overhead: ResourceList = {}
    resources: Resources | None = None
    qos_resources: list[QosResourceRequest] = []
    resource_claims: list[PodResourceClaim] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpread] = []
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[SchedulingGate] = []
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    restart_policy: str = "Always"
    runtime_class_name: str | None = None
    host_network: bool = False
    readiness_gates: list[ReadinessGate] = []
    service_account_name: str = ""
    volumes: list[dict[str, Any]] = []


class ContainerStatus(View, frozen=True, kw_only=True):
    name: str = ""
    allocated_resources: ResourceList = {}
    resources: Resources | None = None
    qos_resources: list[QosResourceRequest] = []
    ready: bool = False
    restart_count: int = 0
    state: dict[str, Any] = {}
    last_state: dict[str, Any] = {}


class Condition(View, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    qos_class: str = ""
    qos_resources: list[QosResourceRequest] = []
    resources: Resources | None = None
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    start_time: str | None = None
    reason: str = ""
    message: str = ""


EMPTY_META = ObjectMeta()


class PodView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def counted_containers(self) -> list[ContainerView]:
        """The containers that decide the QoS class: init containers, then regular ones; ephemeral ones never."""
        return self.spec.init_containers + self.spec.containers

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has finished and will not run again."""
        return self.status.phase in ("Succeeded", "Failed")


class QosClassInfo(View, frozen=True, kw_only=True):
    name: str
    capacity: int = 0


class QosHandlerInfo(View, frozen=True, kw_only=True):
    """The classes of a resource that pods of one runtime handler are offered."""

    name: str
    classes: list[str] = []


class QosResourceInfo(View, frozen=True, kw_only=True):
    """KEP-3008: one QoS-class resource as a node advertises it."""

    name: str
    mutable: bool = False
    classes: list[QosClassInfo] = []
    runtime_handlers: list[QosHandlerInfo] = []


class NodeQosResources(View, frozen=True, kw_only=True):
    pod_qos_resources: list[QosResourceInfo] = field(name="podQoSResources", default_factory=list)
    container_qos_resources: list[QosResourceInfo] = field(name="containerQoSResources", default_factory=list)


class Taint(View, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(View, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(View, frozen=True, kw_only=True):
    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(View, frozen=True, kw_only=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: list[Condition] = []
    images: list[ContainerImage] = []
    qos_resources: NodeQosResources = NodeQosResources()


class NodeView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ScopeExpression(View, frozen=True, kw_only=True):
    scope_name: str
    operator: str
    values: list[str] = []


class ScopeSelector(View, frozen=True, kw_only=True):
    match_expressions: list[ScopeExpression] = []


class ClassCapacity(View, frozen=True, kw_only=True):
    """One class in a quota; no capacity means as many as one likes."""

    name: str
    capacity: int | None = None


class ClassQuota(View, frozen=True, kw_only=True):
    """The classes of one QoS-class resource that a quota allows."""

    name: str
    classes: list[ClassCapacity] = []


class QuotaQosResources(View, frozen=True, kw_only=True):
    """Class quota. A level that is present is an allow-list, a level that is absent is not governed (ruling 4)."""

    pod: list[ClassQuota] | None = None
    container: list[ClassQuota] | None = None


class ResourceQuotaSpec(View, frozen=True, kw_only=True):
    hard: ResourceList = {}
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None
    qos_resources: QuotaQosResources | None = None


class ResourceQuotaStatus(View, frozen=True, kw_only=True):
    hard: ResourceList = {}
    used: ResourceList = {}
    qos_resources: QuotaQosResources | None = None
    qos_resources_usage: QuotaQosResources | None = None


class ResourceQuotaView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class ClassLimit(View, frozen=True, kw_only=True):
    """KEP-3008 limits of one QoS-class resource: the default class and how many of each class one pod may use."""

    name: str
    default: str | None = None
    max: list[ClassCapacity] = []


class LimitRangeItem(View, frozen=True, kw_only=True):
    type: str = ""
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}
    qos_resources: list[ClassLimit] = []


class PriorityClassView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ParametersReference(View, frozen=True, kw_only=True):
    """What a claim or class is configured by: for CCI a ConfigMap with `config.json`."""

    name: str
    kind: str = ""
    api_group: str = ""
    namespace: str = ""


class ResourceClassView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    driver_name: str = ""
    parameters_ref: ParametersReference | None = None


class ResourceClaimSpec(View, frozen=True, kw_only=True):
    resource_class_name: str = ""
    parameters_ref: ParametersReference | None = None
    allocation_mode: str = "WaitForFirstConsumer"


class ResourceClaimView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplateView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = EMPTY_META
    spec: ResourceClaimView = ResourceClaimView()
    """The claim to make: metadata and spec."""
