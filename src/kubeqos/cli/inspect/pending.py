"""Why a pod waits, from the nodes as they are now. Called by `kubeqos why`; worked out in `views.pending`."""

from __future__ import annotations

from typing import Any

from kubeqos.cli.connection import Target
from kubeqos.cli.rehearse.claimed import claimed_now, volumes_now
from kubeqos.client.errors import ApiError
from kubeqos.model.annotations.computepolicies import wanted_compute
from kubeqos.model.objects import PodView
from kubeqos.rules.storage import mounted_claims

_SHOWN_NODES = 3


def looked_at(target: Target, raw: dict[str, Any], *, fix: bool) -> dict[str, Any]:
    """Reasons with their nodes, nearest misses and remedies; or what may not be read, and so is left out."""
    from kubeqos.views import pending  # loads numpy

    try:
        nodes, pods = target.reader.items("/api/v1/nodes"), target.reader.items("/api/v1/pods")
        view = PodView.of(raw)
        claimed = claimed_now(target) if wanted_compute(view) else None
        volumes = volumes_now(target) if any(mounted_claims(view)) else None
    except ApiError as error:
        if not error.forbidden:
            raise
        return {"leftOut": pending.UNREADABLE}
    return pending.looked_at(raw, nodes, pods, claimed, volumes, fix=fix)


def lines(facts: dict[str, Any]) -> list[str]:
    """The same as a person reads it."""
    found = [f"  now        {facts['now']}"] if "now" in facts else []
    found += [f"  waits      {facts['waits']}"] if "waits" in facts else []
    for one in facts.get("refused", ()):
        names = one["nodes"]
        more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
        found.append(f"  refused    {', '.join(names[:_SHOWN_NODES])}{more}: {one['reason']}")
    found += [f"  nearest    {one}" for one in facts.get("nearest", ())]
    found += [f"  left out   {facts['leftOut']}"] if "leftOut" in facts else []
    if "remedies" in facts:
        found += [f"  fix        {one['change']}: {_then(one['node'])}" for one in facts["remedies"]]
        found += [] if facts["remedies"] else ["  fix        no single change that is known here would let it run"]
    return found


def _then(node: str) -> str:
    """A pod that was refused may have to wait once it is taken, or nobody may look where it would run."""
    return f"it would run on {node}" if node else "it would be taken"
