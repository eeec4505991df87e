"""The file of node groups, for `kubeqos simulate scale-up` and `kubeqos autoscale plan`.

groups:
- name: gold
  min: 0                     # how many there are at least; 0 if left out
  max: 4                     # and at most; 10 if left out
  cost: 2.5                  # of one node, in whatever you pay; 1 if left out
  selector: {pool: gold}     # labels by which its nodes are known
  template:                  # a node of it, for as long as there is none to look at
    labels: {pool: gold}
    allocatable: {cpu: "8", memory: 32Gi}
    qosResources:
      containerQoSResources: [{name: rdt, classes: [{name: gold, capacity: 2}]}]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeqos.errors import InputError
from kubeqos.model.reading import quantity

if TYPE_CHECKING:
    from kubeqos.document import Doc
    from kubeqos.placement.growth.groups import NodeGroup

MAX_NODES = 100_000


def read_groups(path: Path, nodes: Sequence[dict[str, Any]] = ()) -> list[NodeGroup]:
    """Node groups from their file, strictly; `nodes` are those of the cluster, which may be theirs."""
    from kubeqos.document import read_document

    doc = read_document(path, "node groups", InputError)
    listed = doc if doc.is_list else doc.fields(("groups",)).get("groups")
    groups = [_group(each, nodes) for each in (listed.elements() if listed is not None else ())]
    if not groups:
        doc.fail("no node groups found", "list them under `groups:`")
    return groups


def _group(doc: Doc, nodes: Sequence[dict[str, Any]]) -> NodeGroup:
    from kubeqos.placement.growth.groups import NodeGroup

    fields = doc.fields(("name", "min", "max", "cost", "selector", "template"))
    name = doc.required(fields, "name").text()
    least = fields["min"].integer(0, MAX_NODES) if "min" in fields else 0
    most = fields["max"].integer(0, MAX_NODES) if "max" in fields else max(10, least)
    if least > most:
        fields["min"].fail(f"{least} is more than max, {most}", "raise max, or lower min")
    cost = quantity(fields["cost"]).milli() / 1000 if "cost" in fields else 1.0
    chosen = fields["selector"].items() if "selector" in fields else {}
    selector = {key: value.text() for key, value in chosen.items()}
    members = [raw for raw in nodes if selector and selector.items() <= (raw["metadata"].get("labels") or {}).items()]
    template = _like(members[0]) if members else _template(fields.get("template"))
    return NodeGroup(name, template, most, least, cost, tuple(raw["metadata"]["name"] for raw in members))


def _like(node: dict[str, Any]) -> Any:
    """A node as one that is there (KEP-3008: all of a group have the same classes), with nothing on it."""
    from kubeqos.scheduler.reading.nodegroups import template_of

    return template_of(node)


def _template(doc: Doc | None) -> Any:
    from kubeqos.scheduler.reading.nodegroups import TEMPLATE, described

    try:
        return described({key: child.plain() for key, child in doc.fields(TEMPLATE).items()} if doc else {})
    except InputError as error:
        where = f"{doc.where}: {error.where}" if doc else error.where
        raise InputError(error.what, where=where) from error
