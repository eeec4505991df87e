"""`kubeqos why POD`: the pod's story from its object and events, with the numbers."""

from __future__ import annotations

from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, cluster_options
from kubeqos.model.objects import PodView
from kubeqos.model.wellknown import PLACEMENT_ANNOTATION
from kubeqos.rules.podqos import effective_requests, qos_class


@click.command("why")
@cluster_options
@click.argument("name", shell_complete=names.complete("pod"))
def command(target: Target, name: str) -> None:
    """Tell why a pod has its class, is where it is, waits, was rejected or evicted."""
    raw = target.api.get(target.path("pods", name))
    uid = raw["metadata"].get("uid", "")
    events = target.api.items(target.path("events"), fieldSelector=f"involvedObject.uid={uid}")
    click.echo(story(raw, events))


def story(raw: dict[str, Any], events: list[dict[str, Any]]) -> str:
    """Class, placement, admission, containers, then what happened, oldest first."""
    pod = PodView.of(raw)
    decision = qos_class(pod)
    requests = ", ".join(f"{name}={amount}" for name, amount in sorted(effective_requests(pod.spec).items()))
    lines = [
        f"{pod.metadata.namespace}/{pod.metadata.name} is {pod.status.phase or 'unknown'}",
        f"  class      {pod.status.qos_class or decision.qos_class}: {decision.because}",
        f"  requests   {requests or '<none>'}",
        f"  placement  {_placement(pod)}",
    ]
    if pod.status.reason or pod.status.message:
        lines.append(f"  status     {': '.join(filter(None, (pod.status.reason, pod.status.message)))}")
    lines += [
        f"  container  {status.name}: {_state(status.state)}, {status.restart_count} restarts"
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ]
    lines += _events(events)
    return "\n".join(lines)


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


def _events(events: list[dict[str, Any]]) -> list[str]:
    if not events:
        return []
    ordered = sorted(events, key=_moment)
    lines = ["  events"]
    for event in ordered:
        count = event.get("count") or 1
        times = f" (×{count})" if count > 1 else ""
        when = event.get("lastTimestamp") or event.get("eventTime") or ""
        lines.append(f"    {when}  {event.get('reason', '')}{times}: {event.get('message', '')}")
    return lines
