"""A pod's story from its object and events, with the numbers. For `kubeqos why` and the dashboard."""

from __future__ import annotations

from typing import Any

from kubeqos.model.annotations.published import SHARED_PART, decode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, PLACEMENT_ANNOTATION
from kubeqos.model.decisions import REFUSED, PodDecisions
from kubeqos.model.objects import ContainerStatus, NodeView, PodView
from kubeqos.rules.qos.podqos import effective_requests, qos_class
from kubeqos.views.decided import facts_of
from kubeqos.views.usage import counted_against, given_by_runtime, pod_holdings


def departed(record: PodDecisions, raw: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """A pod that was deleted, or never taken, as it was last known."""
    facts = story(raw, [one for one in events if one["involvedObject"].get("uid") == record.pod.uid])
    phase = "refused" if record.pod.uid.startswith(REFUSED) else "gone"
    return facts | {"phase": phase, "gone": record.gone, "was": facts["phase"], "holds": {}} | facts_of(record)


def gone(pod: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """What is left of a pod that was deleted."""
    return {
        "pod": pod,
        "phase": "gone",
        "uid": events[-1]["involvedObject"].get("uid", ""),
        "events": _happened(events),
    }


def story(raw: dict[str, Any], events: list[dict[str, Any]], node: dict[str, Any] | None = None) -> dict[str, Any]:
    """Class, placement, admission, containers and their CPUs, then what happened, oldest first."""
    pod = PodView.of(raw)
    decision = qos_class(pod)
    return {
        "pod": f"{pod.metadata.namespace}/{pod.metadata.name}",
        "phase": pod.status.phase,
        "qosClass": str(pod.status.qos_class or decision.qos_class),
        "because": decision.because,
        "requests": {name: str(amount) for name, amount in sorted(effective_requests(pod.spec).items())},
        "holds": pod_holdings(pod) if pod.spec.node_name and not pod.is_terminal else {},
        "counts": counted_against(pod, NodeView.of(node)) if node is not None and not pod.is_terminal else [],
        "byRuntime": given_by_runtime(pod),
        "node": pod.spec.node_name,
        "placement": _placement(pod),
        "status": ": ".join(filter(None, (pod.status.reason, pod.status.message))),
        "containers": [
            {"name": status.name, "state": _state(status.state), "restarts": status.restart_count}
            | _ended_before(pod, status)
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        ],
        "cpus": _cpus(pod, node),
        "memory": protected_memory(pod, node),
        "events": _happened(events),
    }


def _happened(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "time": moment(event)[0],
            "reason": event.get("reason", ""),
            "count": event.get("count") or 1,
            "message": event.get("message", ""),
        }
        for event in sorted(events, key=moment)
    ]


def _placement(pod: PodView) -> str:
    if pod.spec.node_name:
        because = pod.metadata.annotations.get(PLACEMENT_ANNOTATION)
        return f"on {pod.spec.node_name}" + (f": {because}" if because else "")
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            nominated = pod.status.nominated_node_name
            waits = f"; {nominated} is being freed for it" if nominated else ""
            return f"none, {condition.reason}: {condition.message}{waits}"
    return "none yet; no scheduler has looked at it"


def _cpus(pod: PodView, node: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Where the node says the pod's containers run; one with CPUs of its own and shared ones has two entries."""
    published = ((node or {}).get("metadata", {}).get("annotations") or {}).get(ASSIGNMENTS_ANNOTATION)
    if not published:
        return []
    home = f"{pod.metadata.namespace}/{pod.metadata.name}/"
    return [
        {
            "container": name.removeprefix(home).removesuffix(SHARED_PART),
            "cpus": str(held.cpus),
            "exclusive": held.exclusive,
            "mems": str(held.mems),
            "partition": held.partition,
            "idle": str(held.idle),
        }
        for name, held in decode_assignments(published).containers.items()
        if name.startswith(home)
    ]


def protected_memory(pod: PodView, node: dict[str, Any] | None) -> dict[str, Any]:
    """How much of the pod's memory is protected, where its node says so."""
    published = ((node or {}).get("metadata", {}).get("annotations") or {}).get(ASSIGNMENTS_ANNOTATION)
    found = decode_assignments(published).protected if published else {}
    one = found.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return {"asked": one.asked_bytes, "effective": one.effective_bytes, "because": one.because} if one else {}


def _state(state: dict[str, Any]) -> str:
    for name, detail in state.items():
        words = [name, detail.get("reason") or "", detail.get("message") or ""]
        if "exitCode" in detail:
            words.append(f"exit code {detail['exitCode']}")
        return " ".join(filter(None, words))
    return "not started"


def moment(event: dict[str, Any]) -> tuple[str, int]:
    """When it was last seen; within a second, in the order in which it was written."""
    revision = str(event["metadata"].get("resourceVersion") or "")
    seen = event.get("lastTimestamp") or event.get("eventTime") or ""
    return seen, int(revision) if revision.isdecimal() else 0


def _ended_before(pod: PodView, status: ContainerStatus) -> dict[str, str]:
    """How the container ended the last time, with the limit that killed it, if one did."""
    for state in (status.state, status.last_state):
        if (ended := state.get("terminated")) is None:
            continue
        said = (
            {"lastEnd": _state({"terminated": ended}).removeprefix("terminated ")} if state is not status.state else {}
        )
        if ended.get("reason") == "OOMKilled" and "out of memory" not in (ended.get("message") or ""):
            containers = (*pod.spec.init_containers, *pod.spec.containers)
            limit = next((one.resources.limits.get("memory") for one in containers if one.name == status.name), None)
            said["killedBy"] = f"its memory limit of {limit}" if limit is not None else "memory of its node"
        return said
    return {}
