"""`kubeqos why POD`: the pod's story from its object, its decision record and its events, with the numbers."""

from __future__ import annotations

from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.inspect import pending, recorded
from kubeqos.cli.output import emit, is_data, wide_output_option
from kubeqos.client.errors import ApiError
from kubeqos.model.quantity import Quantity
from kubeqos.views import decided
from kubeqos.views.why import departed, gone, moment, story


@click.command("why")
@asks("namespace")
@wide_output_option
@click.option("--fix", is_flag=True, help="Tell the smallest changes that would make a waiting pod run.")
@click.argument("name", callback=names.plain("pod"), shell_complete=names.complete("pod"))
def command(target: Target, form: str, fix: bool, name: str) -> None:
    """Tell why a pod has its class, is where it is, waits, was rejected or evicted.

    A pod that is gone, or was refused, is told of for an hour, from the record of decisions. Nothing but the namespace
    of the pod has to be readable: what needs more is left out, and said to be.
    """
    record = recorded.record_of(target, name)
    try:
        raw = target.reader.get(target.path("pods", name))
    except ApiError as error:
        if not error.not_found:
            raise
        events = _events_of(target, name)
        if record is not None and record.object is not None:
            facts = departed(record, record.object, events) | recorded.refused(target, record, fix=fix)
        elif events:
            facts = gone(f"{target.namespace}/{name}", events)
        else:
            raise
    else:
        facts = _known(target, raw, fix=fix) | decided.facts_of(record)
    if form == "name":
        click.echo(f"pod/{name}")
    elif is_data(form):
        emit(facts, form)
    else:
        click.echo(as_text(facts) if "qosClass" in facts else gone_text(facts))


def _known(target: Target, raw: dict[str, Any], *, fix: bool) -> dict[str, Any]:
    uid, spec = raw["metadata"].get("uid", ""), raw.get("spec") or {}
    events = target.reader.items(target.path("events"), fieldSelector=f"involvedObject.uid={uid}")
    if not (on := spec.get("nodeName")):
        waits = (raw.get("status") or {}).get("phase", "") in ("", "Pending")
        return story(raw, events) | (pending.looked_at(target, raw, fix=fix) if waits else {})
    try:
        return story(raw, events, target.reader.get_or_none(f"/api/v1/nodes/{on}"))
    except ApiError as error:
        if not error.forbidden:
            raise
        return story(raw, events) | {"leftOut": "CPUs and memory on its node: this user may not read nodes"}


def _events_of(target: Target, name: str) -> list[dict[str, Any]]:
    """The events of the last pod of this name."""
    about = f"involvedObject.kind=Pod,involvedObject.name={name}"
    found = sorted(target.reader.items(target.path("events"), fieldSelector=about), key=moment)
    uid = found[-1]["involvedObject"].get("uid") if found else None
    return [event for event in found if event["involvedObject"].get("uid") == uid]


def gone_text(facts: dict[str, Any]) -> str:
    """The same as a person reads it."""
    return "\n".join([f"{facts['pod']} is gone; its events are kept for an hour", "  events", *_event_lines(facts)])


def as_text(facts: dict[str, Any]) -> str:
    """The story as a person reads it."""
    requests = ", ".join(f"{name}={amount}" for name, amount in facts["requests"].items())
    lines = [
        _headline(facts),
        f"  class      {facts['qosClass']}: {facts['because']}",
        f"  requests   {requests or '<none>'}",
        *decided.admitted(facts),
        *([] if facts["phase"] == "refused" else [f"  placement  {facts['placement']}"]),
        *decided.placed(facts),
    ]
    if facts["holds"]:
        holds = ", ".join(f"{what}={cls}" for what, cls in facts["holds"].items())
        lines.append(f"  holds      {holds}")
    lines += _class_lines(facts)
    lines += decided.waited(facts) if "leftOut" in facts and not facts["node"] else []
    lines += pending.lines(facts)
    if facts["status"]:
        lines.append(f"  status     {facts['status']}")
    lines += [
        f"  container  {each['name']}: {each['state']}, {each['restarts']} restarts{_before(each)}"
        for each in facts["containers"]
    ]
    lines += decided.on_node(facts)
    for held in facts["cpus"]:
        own = "its own" if held["exclusive"] else "shared"
        own += f"; nobody runs on {held['idle']}" if held["idle"] else ""
        if held["partition"]:
            own += "; a partition" if held["partition"] == "root" else f"; no partition: {held['partition']}"
        memory = f", memory of NUMA {held['mems']}" if held["mems"] else ""
        lines.append(f"  cpus       {held['container']}: {held['cpus']} ({own}){memory}")
    if facts["memory"]:
        lines.append(f"  memory     {protection(facts['memory'])}")
    lines += ["  events"] if facts["events"] else []
    return "\n".join([*lines, *_event_lines(facts)])


def protection(memory: dict[str, Any]) -> str:
    """How much of a pod's memory the kernel leaves alone, and why not more; `describe pod` says it, too."""
    asked, effective = (Quantity.from_bytes(memory[key]) for key in ("asked", "effective"))
    short = f" of {asked} asked: {memory['because']}" if memory["because"] else ""
    return f"{effective} protected from reclaim{short}"


def _headline(facts: dict[str, Any]) -> str:
    if facts["phase"] == "refused":
        return f"{facts['pod']} was refused at {facts['gone']}; the record is kept for an hour"
    if facts["phase"] == "gone":
        was = f"; it was {facts['was']}" if facts["was"] else ""
        return f"{facts['pod']} is gone since {facts['gone']}{was}; its record is kept for an hour"
    return f"{facts['pod']} is {facts['phase'] or 'unknown'}"


def _class_lines(facts: dict[str, Any]) -> list[str]:
    """What a pod's classes count against on its node, and which the runtime gave by itself."""
    lines = []
    if facts["counts"]:
        parts = (f"{one['resource']}={one['class']} {_of(one['count'], one['capacity'])}" for one in facts["counts"])
        lines.append(f"  counts     on {facts['node']}: {', '.join(parts)}")
    for one in facts["byRuntime"]:
        whose = f"{one['container']}: " if one["container"] else ""
        cls = one["class"] or "<system default>"
        lines.append(f"  default    {whose}{one['resource']}={cls}, by the runtime; counts against nothing")
    return lines


def _of(count: int, capacity: int) -> str:
    return f"{count} of {capacity}" if capacity else f"{count}, no limit"


def _event_lines(facts: dict[str, Any]) -> list[str]:
    return [
        f"    {each['time']}  {each['reason']}{_times(each['count'])}: {each['message']}" for each in facts["events"]
    ]


def _before(container: dict[str, Any]) -> str:
    """The same as a person reads it."""
    last = f", the last ended {container['lastEnd']}" if "lastEnd" in container else ""
    return last + (f": over {container['killedBy']}" if "killedBy" in container else "")


def _times(count: int) -> str:
    return f" (×{count})" if count > 1 else ""
