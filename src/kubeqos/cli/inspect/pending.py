"""Why a pod waits, from the nodes as they are now. Called by `kubeqos why`; decided in `simulation.remedies`."""

from __future__ import annotations

from typing import Any

from kubeqos.cli.connection import Target
from kubeqos.client.errors import ApiError

_SHOWN_NODES = 3


def looked_at(target: Target, raw: dict[str, Any], *, fix: bool) -> dict[str, Any]:
    """Reasons with their nodes, nearest misses and remedies; or what may not be read, and so is left out."""
    from kubeqos.cli.rehearse.simulate import snapshot
    from kubeqos.model.objects import PodView
    from kubeqos.placement.placer import Placed, Placer
    from kubeqos.placement.shape import compile_shape
    from kubeqos.simulation.remedies import nearest_misses, refused_by, remedies

    try:
        nodes, pods = target.api.items("/api/v1/nodes"), target.api.items("/api/v1/pods")
    except ApiError as error:
        if not error.forbidden:
            raise
        return {
            "leftOut": "nodes, and with them the nearest miss: this user may not list nodes and pods of all namespaces"
        }
    cluster, _ = snapshot(nodes, pods)
    shape = compile_shape(PodView.of(raw))
    answer = Placer(cluster).place(shape)
    if isinstance(answer, Placed):
        return {"now": f"{answer.node} would take it now"}
    found: dict[str, Any] = {
        "refused": [{"reason": one.reason, "nodes": list(one.nodes)} for one in refused_by(answer)],
        "nearest": nearest_misses(cluster, shape),
    }
    if fix:
        found["remedies"] = [{"change": one.change, "node": one.node} for one in remedies(cluster, raw)]
    return found


def lines(facts: dict[str, Any]) -> list[str]:
    """The same as a person reads it."""
    found = [f"  now        {facts['now']}"] if "now" in facts else []
    for one in facts.get("refused", ()):
        names = one["nodes"]
        more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
        found.append(f"  refused    {', '.join(names[:_SHOWN_NODES])}{more}: {one['reason']}")
    found += [f"  nearest    {one}" for one in facts.get("nearest", ())]
    found += [f"  left out   {facts['leftOut']}"] if "leftOut" in facts else []
    if "remedies" in facts:
        found += [f"  fix        {one['change']}: it would run on {one['node']}" for one in facts["remedies"]]
        found += [] if facts["remedies"] else ["  fix        no single change that is known here would let it run"]
    return found
