"""`kubeqos why POD`: the pod's story from its object and events, with the numbers."""

from __future__ import annotations

from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, cluster_options
from kubeqos.cli.inspect import pending
from kubeqos.cli.inspect.usage import pod_holdings
from kubeqos.cli.output import emit, wide_output_option
from kubeqos.client.errors import ApiError
from kubeqos.model.annotations.published import SHARED_PART, decode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, PLACEMENT_ANNOTATION
from kubeqos.model.objects import ContainerStatus, PodView
from kubeqos.model.quantity import Format, Quantity
from kubeqos.rules.podqos import effective_requests, qos_class


@click.command("why")
@cluster_options
@wide_output_option
@click.option("--fix", is_flag=True, help="Tell the smallest changes that would make a waiting pod run.")
@click.argument("name", shell_complete=names.complete("pod"))
def command(target: Target, form: str, fix: bool, name: str) -> None:
    """Tell why a pod has its class, is where it is, waits, was rejected or evicted.

    A pod that is gone is told of for an hour, from its events. Nothing but the namespace of the pod has to be readable:
    what needs more is left out, and said to be.
    """
    try:
        raw = target.api.get(target.path("pods", name))
    except ApiError as error:
        if not error.not_found or not (events := _events_of(target, name)):
            raise
        facts = gone(f"{target.namespace}/{name}", events)
    else:
        facts = _known(target, raw, fix=fix)
    if form == "name":
        click.echo(f"pod/{name}")
    elif form in ("json", "yaml"):
        emit(facts, form)
    else:
        click.echo(as_text(facts) if "qosClass" in facts else gone_text(facts))


def _known(target: Target, raw: dict[str, Any], *, fix: bool) -> dict[str, Any]:
    uid, spec = raw["metadata"].get("uid", ""), raw.get("spec") or {}
    events = target.api.items(target.path("events"), fieldSelector=f"involvedObject.uid={uid}")
    if not (on := spec.get("nodeName")):
        waits = (raw.get("status") or {}).get("phase", "") in ("", "Pending")
        return story(raw, events) | (pending.looked_at(target, raw, fix=fix) if waits else {})
    try:
        return story(raw, events, target.api.get_or_none(f"/api/v1/nodes/{on}"))
    except ApiError as error:
        if not error.forbidden:
            raise
        return story(raw, events) | {"leftOut": "CPUs and memory on its node: this user may not read nodes"}


def _events_of(target: Target, name: str) -> list[dict[str, Any]]:
    """The events of the last pod of this name."""
    about = f"involvedObject.kind=Pod,involvedObject.name={name}"
    found = sorted(target.api.items(target.path("events"), fieldSelector=about), key=_moment)
    uid = found[-1]["involvedObject"].get("uid") if found else None
    return [event for event in found if event["involvedObject"].get("uid") == uid]


def gone(pod: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """What is left of a pod that was deleted."""
    return {
        "pod": pod,
        "phase": "gone",
        "uid": events[-1]["involvedObject"].get("uid", ""),
        "events": _happened(events),
    }


def gone_text(facts: dict[str, Any]) -> str:
    """The same as a person reads it."""
    return "\n".join([f"{facts['pod']} is gone; its events are kept for an hour", "  events", *_event_lines(facts)])


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
        "node": pod.spec.node_name,
        "placement": _placement(pod),
        "status": ": ".join(filter(None, (pod.status.reason, pod.status.message))),
        "containers": [
            {"name": status.name, "state": _state(status.state), "restarts": status.restart_count}
            | _ended_before(pod, status)
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        ],
        "cpus": _cpus(pod, node),
        "memory": _memory(pod, node),
        "events": _happened(events),
    }


def _happened(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "time": _moment(event)[0],
            "reason": event.get("reason", ""),
            "count": event.get("count") or 1,
            "message": event.get("message", ""),
        }
        for event in sorted(events, key=_moment)
    ]


def as_text(facts: dict[str, Any]) -> str:
    """The story as a person reads it."""
    requests = ", ".join(f"{name}={amount}" for name, amount in facts["requests"].items())
    lines = [
        f"{facts['pod']} is {facts['phase'] or 'unknown'}",
        f"  class      {facts['qosClass']}: {facts['because']}",
        f"  requests   {requests or '<none>'}",
        f"  placement  {facts['placement']}",
    ]
    if facts["holds"]:
        holds = ", ".join(f"{what}={cls}" for what, cls in facts["holds"].items())
        lines.append(f"  holds      {holds}")
    lines += pending.lines(facts)
    if facts["status"]:
        lines.append(f"  status     {facts['status']}")
    lines += [
        f"  container  {each['name']}: {each['state']}, {each['restarts']} restarts{_before(each)}"
        for each in facts["containers"]
    ]
    for held in facts["cpus"]:
        own = "its own" if held["exclusive"] else "shared"
        memory = f", memory of NUMA {held['mems']}" if held["mems"] else ""
        lines.append(f"  cpus       {held['container']}: {held['cpus']} ({own}){memory}")
    if protected := facts["memory"]:
        asked, effective = (Quantity.from_int(protected[key], Format.BINARY_SI) for key in ("asked", "effective"))
        short = f" of {asked} asked: {protected['because']}" if protected["because"] else ""
        lines.append(f"  memory     {effective} protected from reclaim{short}")
    lines += ["  events"] if facts["events"] else []
    return "\n".join([*lines, *_event_lines(facts)])


def _event_lines(facts: dict[str, Any]) -> list[str]:
    return [
        f"    {each['time']}  {each['reason']}{_times(each['count'])}: {each['message']}" for each in facts["events"]
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
        }
        for name, held in decode_assignments(published).containers.items()
        if name.startswith(home)
    ]


def _memory(pod: PodView, node: dict[str, Any] | None) -> dict[str, Any]:
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


def _moment(event: dict[str, Any]) -> tuple[str, int]:
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


def _before(container: dict[str, Any]) -> str:
    """The same as a person reads it."""
    last = f", the last ended {container['lastEnd']}" if "lastEnd" in container else ""
    return last + (f": over {container['killedBy']}" if "killedBy" in container else "")


def _times(count: int) -> str:
    return f" (×{count})" if count > 1 else ""
