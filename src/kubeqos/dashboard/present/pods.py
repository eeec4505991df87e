"""A pod as the dashboard shows it: what `kubeqos why`, `describe` and `story` say, as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeqos.dashboard.present.data import Assigned, Happening, HeldCpus, PodData
from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classes import Catalog, Effective, Level, Source, catalog, container_classes, pod_classes
from kubeqos.views.why import story

_SOURCES = {
    Source.CONTAINER: "the container's own request",
    Source.POD: "the pod's request",
    Source.RUNTIME: "the runtime's default",
}


def pod_data(
    raw: dict[str, Any],
    node: dict[str, Any] | None,
    happenings: list[Happening],
    told: Iterable[str],
    decisions: list[dict[str, Any]],
    pending: dict[str, Any],
    left_out: list[str],
) -> PodData:
    """Everything about one pod. `pending` is what `views.pending` says of one that waits, `told` its node's story."""
    pod = PodView.of(raw)
    facts = story(raw, [], node)
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return PodData(
        namespace=namespace,
        name=name,
        uid=pod.metadata.uid,
        phase="Terminating" if pod.metadata.deletion_timestamp else facts["phase"] or "Pending",
        node=facts["node"],
        qos_class=facts["qosClass"],
        because=facts["because"],
        placement=facts["placement"],
        status=facts["status"],
        requests=facts["requests"],
        classes=assigned(pod, node, _chosen(decisions)),
        cpus=[HeldCpus(**held) for held in facts["cpus"]],
        memory=facts["memory"],
        containers=facts["containers"],
        happenings=happenings,
        story=list(told),
        decisions=decisions,
        refused=pending.get("refused", []),
        nearest=pending.get("nearest") or ([pending["waits"]] if "waits" in pending else []),
        fixes=[_fix(pod, one) for one in pending.get("remedies", [])],
        now=pending.get("now", ""),
        left_out=left_out,
        commands=_commands(namespace, name),
    )


def _commands(namespace: str, name: str) -> dict[str, str]:
    where = f" -n {namespace}"
    return {
        "why": f"kubeqos why {name}{where}",
        "fixes": f"kubeqos why {name}{where} --fix",
        "classes": f"kubeqos describe pod {name}{where}",
        "story": f"kubeqos story {name}{where}",
        "object": f"kubectl get pod {name}{where} -o yaml",
        "happenings": f"kubectl get events{where} --field-selector involvedObject.name={name}",
    }


def _fix(pod: PodView, remedy: dict[str, str]) -> dict[str, str]:
    """A change in words, and the command that tells it again or opens what has to be changed."""
    command = f"kubectl edit pod {pod.metadata.name} -n {pod.metadata.namespace}"
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    if owner is not None:
        command = f"kubectl edit {owner.kind.lower()} {owner.name} -n {pod.metadata.namespace}"
    return {"change": remedy["change"], "node": remedy["node"], "command": command}


def _chosen(decisions: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Who decided a class, where it was written down: only the API server knows what a LimitRange filled in."""
    made = [one for decision in decisions for one in decision.get("classes") or ()]
    return {(one.get("container", ""), one.get("resource", "")): str(one.get("source", "")) for one in made}


def assigned(pod: PodView, node: dict[str, Any] | None, chosen: Mapping[tuple[str, str], str]) -> list[Assigned]:
    """Every class that is asked for or given, with who decided it."""
    offered = catalog(NodeView.of(node).status.qos_resources) if node is not None else Catalog()
    given = {one.name: one.class_ for one in pod.status.qos_resources}
    at_pod = {kind.name for kind in offered.of_level(Level.POD)} | given.keys()
    rows = [_row("", name, one, given) for name, one in sorted(pod_classes(pod.spec, at_pod).items())]
    statuses = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        status = statuses.get(container.name)
        has = {one.name: one.class_ for one in status.qos_resources} if status is not None else {}
        names = {kind.name for kind in offered.of_level(Level.CONTAINER)} | has.keys()
        names |= {one.name for one in container.resources.qos_resources}
        if node is None:  # which level a pod-wide request is for, only a node says
            names |= {one.name for one in pod.spec.qos_resources} - at_pod
        effective = container_classes(pod.spec, container, names)
        rows += [_row(container.name, name, one, has) for name, one in sorted(effective.items())]
    return [
        msgspec.structs.replace(one, source=chosen.get((one.container, one.resource)) or one.source)
        for one in rows
        if one.asked or one.assigned
    ]


def _row(container: str, name: str, chosen: Effective, given: dict[str, str]) -> Assigned:
    has = given.get(name)
    return Assigned(
        container=container,
        resource=name,
        asked=chosen.class_name or "",
        assigned="" if has is None else has or "system default",
        source=_SOURCES[chosen.source],
    )
