"""What to ask which plugin about a container: pure decisions from the pod and the table of plugins.

The manager asks for each resource that a container requests and a plugin serves, and asks implicit plugins for every
container of the roles that they name. How a pod tells its role is `model.annotations.podmarks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kubeqos.codec import JsonError, decode_json
from kubeqos.model.annotations.podmarks import (
    KATALYST,
    MAIN_CONTAINER_KEY,
    SKIP_KEY,
    SYSTEM_CORES,
    level_of,
    only_marks,
    role_of,
    type_of,
)
from kubeqos.model.annotations.wellknown import HELD_ANNOTATION
from kubeqos.model.objects import ContainerView, ObjectMeta
from kubeqos.plugins.managers import AdmittedPod, ContainerKind, ContainerRef
from kubeqos.qrm.messages import hint_to_wire
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.rules.qos.podqos import effective_requests
from kubeqos.topology.alignment.hints import ANYWHERE, Hint

ENHANCEMENT_KEYS = tuple(KATALYST + f"{what}_enhancement" for what in ("cpu", "memory", "network"))
NANO = 10**9


@dataclass(frozen=True, slots=True)
class Served:
    """What one plugin serves, as far as asking goes."""

    plugin: str
    implicit: bool = False
    aligned: bool = False
    extra: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()
    """Whom an implicit plugin is asked about; everybody, if it names no role."""

    def is_asked_about(self, role: str) -> bool:
        """Whether it has a say in containers that do not name its resource."""
        return self.implicit and (not self.roles or role in self.roles)


@dataclass(frozen=True, slots=True)
class Question:
    """One resource of one container, for one plugin.

    `resource` is the plugin's name for it, `spelled` the pod's own; requests always travel under the latter, because a
    mapped name would lose its unit (a plugin that knows `cpu` in cores must see `reclaimed_millicpu`).
    """

    plugin: str
    resource: str
    spelled: str
    quantity: float
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to allocate: one hint for everything, or one for a resource by itself (policy numeric)."""

    hint: Hint = ANYWHERE
    by_resource: Mapping[str, Hint] = field(default_factory=dict)

    def of(self, resource: str) -> Hint:
        return self.by_resource.get(resource, self.hint)


@dataclass(frozen=True, slots=True)
class SkipRules:
    """Which pods the manager leaves alone."""

    daemon_sets: bool = True
    annotations: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Catalogue:
    """Plugins by the resource names they answer to, and how the pods' names map to these."""

    served: Mapping[str, Served]
    names: Mapping[str, str] = field(default_factory=dict)

    def server_of(self, resource: str) -> Served | None:
        if resource in self.served:
            return self.served[resource]
        return next((served for served in self.served.values() if resource in served.extra), None)

    def questions(self, pod: AdmittedPod, ref: ContainerRef) -> list[Question]:
        """Everything to ask about this container, at most once for each resource."""
        asked: dict[str, Question] = {}
        for spelled, quantity in sorted(container_of(pod, ref).resources.requests.items()):
            resource = self.names.get(spelled, spelled)
            served = self.server_of(resource)
            if served and not quantity.is_zero:
                asked[resource] = Question(served.plugin, resource, spelled, quantity.nanos / NANO)
        role = role_of(pod.view.metadata)
        for resource, served in self.served.items():
            if resource not in asked and served.is_asked_about(role):
                asked[resource] = Question(served.plugin, resource, resource, 0.0, implicit=True)
        return list(asked.values())

    def pod_questions(self, pod: AdmittedPod) -> list[Question]:
        """The same for the pod as a whole: what its containers need at once.

        A resource that they ask for under several names is none that one question could be about.
        """
        totals = effective_requests(pod.view.spec, overhead=False)
        asked: dict[str, dict[str, Question]] = {}
        for ref, _ in pod.containers():
            for question in self.questions(pod, ref):
                total = totals.get(question.spelled)
                quantity = 0.0 if total is None else total.nanos / NANO
                whole = replace(question, quantity=quantity, implicit=total is None)
                asked.setdefault(question.resource, {})[question.spelled] = whole
        named = [
            [one for one in spelled.values() if not one.implicit] or [*spelled.values()] for spelled in asked.values()
        ]
        return [questions[0] for questions in named if len(questions) == 1]


def container_of(pod: AdmittedPod, ref: ContainerRef) -> ContainerView:
    """By name: a pod that is known from a ledger alone has lost the order of its containers."""
    known = (one for one in pod.view.counted_containers() if one.name == ref.name)
    return next(known, ContainerView(name=ref.name))


def marks_of(meta: ObjectMeta) -> dict[str, dict[str, str]]:
    """The labels and annotations that decisions about a pod rest on, to be kept with what it holds."""
    return {"labels": only_marks(meta.labels), "annotations": only_marks(meta.annotations)}


def is_shadow(pod: AdmittedPod) -> bool:
    """Whether only a ledger tells of this pod, so that its role is not known."""
    return not any("image" in one for one in pod.raw.get("spec", {}).get("containers") or ())


def with_marks(pod: AdmittedPod, marks: Mapping[str, Mapping[str, str]]) -> AdmittedPod:
    """A pod of which the API server has not told us yet, with the marks that were kept."""
    meta = pod.view.metadata
    if meta.labels or meta.annotations or not any(marks.values()):
        return pod
    raw = {**pod.raw, "metadata": {**pod.raw.get("metadata", {}), **marks}}
    return AdmittedPod.of(raw, pod.claims)


def why_skipped(pod: AdmittedPod, rules: SkipRules) -> str | None:
    """Why the manager has nothing to do with this pod, or None."""
    meta = pod.view.metadata
    if meta.annotations.get(SKIP_KEY) == "true":
        return f"annotation {SKIP_KEY}"
    named = sorted(rules.annotations & meta.annotations.keys())
    if named:
        return f"annotation {named[0]}"
    owner = meta.controller()
    if rules.daemon_sets and owner and owner.kind == "DaemonSet" and level_of(meta) != SYSTEM_CORES:
        return f"owned by DaemonSet {owner.name} and not {SYSTEM_CORES}"
    return None


def wrong_annotation(pod: AdmittedPod) -> str | None:
    """The first enhancement annotation that is not a JSON object, with its field path."""
    for key in ENHANCEMENT_KEYS:
        text = pod.view.metadata.annotations.get(key)
        if text is None:
            continue
        try:
            good = isinstance(decode_json(text.encode()), dict)
        except JsonError:
            good = False
        if not good:
            return f'metadata.annotations[{key}]: Invalid value: "{text}": must be a JSON object'
    return None


def wire_kind(pod: AdmittedPod, ref: ContainerRef) -> pb.ContainerType.ValueType:
    """The main container is the one that the pod names, or the first; whatever else stays beside it is a sidecar."""
    if ref.kind is ContainerKind.INIT:
        return pb.INIT
    if ref.kind is ContainerKind.SIDECAR:
        return pb.SIDECAR
    names = [container.name for container in pod.view.spec.containers]
    main = pod.view.metadata.annotations.get(MAIN_CONTAINER_KEY)
    return pb.MAIN if ref.name == (main if main in names else names[0]) else pb.SIDECAR


def _annotations(meta: ObjectMeta, held: str) -> Mapping[str, str]:
    return {**meta.annotations, HELD_ANNOTATION: held} if held else meta.annotations


def request_for(
    pod: AdmittedPod, ref: ContainerRef, question: Question, hint: Hint | None, held: str = ""
) -> pb.ResourceRequest:
    """The message for GetTopologyHints (without hint) and Allocate; `held` is what a running container has of it."""
    meta = pod.view.metadata
    return pb.ResourceRequest(
        pod_uid=meta.uid,
        pod_namespace=meta.namespace,
        pod_name=meta.name,
        container_name=ref.name,
        container_type=wire_kind(pod, ref),
        container_index=ref.index,
        pod_role=role_of(meta),
        pod_type=type_of(meta),
        resource_name=question.resource,
        hint=hint_to_wire(hint) if hint is not None else None,
        resource_requests={question.spelled: question.quantity},
        labels=meta.labels,
        annotations=_annotations(meta, held),
        native_qos_class=pod.qos,
        runtime_class=str(pod.raw.get("spec", {}).get("runtimeClassName") or ""),
    )


def pod_request_for(pod: AdmittedPod, question: Question, hint: Hint | None, held: str = "") -> pb.PodResourceRequest:
    """The message for GetPodTopologyHints (without hint) and AllocateForPod."""
    meta = pod.view.metadata
    return pb.PodResourceRequest(
        pod_uid=meta.uid,
        pod_namespace=meta.namespace,
        pod_name=meta.name,
        pod_role=role_of(meta),
        pod_type=type_of(meta),
        resource_name=question.resource,
        hint=hint_to_wire(hint) if hint is not None else None,
        resource_requests={question.spelled: question.quantity},
        labels=meta.labels,
        annotations=_annotations(meta, held),
    )
