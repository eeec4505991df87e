"""The decision record of a pod (`model.decisions`) in lines that people read. For `kubeqos why` and the dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeqos.model import decisions as d

_WIDTH = 11


def facts_of(record: d.PodDecisions | None) -> dict[str, Any]:
    """The decisions, for JSON and YAML as they are."""
    found = record.wire().get("decisions") if record is not None else None
    return {"decisions": found} if found else {}


def admitted(facts: Mapping[str, Any]) -> list[str]:
    """What the API server decided."""
    return [line for one in _all(facts) if isinstance(one, d.Admission | d.Refusal) for line in _of_server(one)]


def placed(facts: Mapping[str, Any]) -> list[str]:
    """What the scheduler decided, last."""
    found: list[str] = []
    scores = [one for one in _all(facts) if isinstance(one, d.Placement) and one.best]
    for number, score in enumerate(scores[-1].best if scores else ()):
        parts = ", ".join(f"{name} {points}" for name, points in score.parts.items())
        found.append(_line("" if number else "scores", f"{score.node} {score.points}: {parts or 'no part counts'}"))
    for one in _all(facts):
        if isinstance(one, d.Preemption):
            named = ", ".join(map(str, one.victims))
            found.append(_line("preempts", f"{named} on {one.node}" + _because(one.because)))
        elif isinstance(one, d.Preempted):
            found.append(_line("preempted", f"by {one.preemptor} on {one.node}" + _because(one.because)))
    return found


def waited(facts: Mapping[str, Any]) -> list[str]:
    """Why the scheduler found no node when it last looked, for who may not look at the nodes."""
    told = [one for one in _all(facts) if isinstance(one, d.Waiting)]
    if not told:
        return []
    found = []
    for one in told[-1].refused:
        more = f" and {one.count - len(one.nodes)} more" if one.count > len(one.nodes) else ""
        found.append(_line("refused", f"{', '.join(one.nodes)}{more}: {one.reason}"))
    return found + [_line("nearest", one) for one in told[-1].nearest]


def on_node(facts: Mapping[str, Any]) -> list[str]:
    """What the node decided."""
    found: list[str] = []
    for one in _all(facts):
        if isinstance(one, d.NodeAdmission):
            found += _admission(one)
        elif isinstance(one, d.Restart):
            found.append(_line("ended", _restart(one)))
        elif isinstance(one, d.Eviction):
            found += _eviction(one)
        elif isinstance(one, d.Resize):
            found += _resize(one)
        elif isinstance(one, d.Disruption):
            found.append(_line("evicted", _disruption(one)))
    return found


def _all(facts: Mapping[str, Any]) -> tuple[d.AnyDecision, ...]:
    return msgspec.convert(facts.get("decisions") or (), tuple[d.AnyDecision, ...])


def _line(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH}}{text}"


def _because(text: str) -> str:
    return f": {text}" if text else ""


def _listed(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in amounts.items()) or "nothing"


def _times(one: d.AnyDecision) -> str:
    return f" (×{one.times})" if one.times > 1 else ""


def _of_server(one: d.Admission | d.Refusal) -> Iterator[str]:
    if isinstance(one, d.Refusal):
        yield _line("refused", one.message + _times(one))
    else:
        yield from (_line("defaults", f"{note}: by a LimitRange") for note in one.limit_ranges)
        for choice in one.classes:
            whose = f"{choice.container}: " if choice.container else ""
            yield _line("chosen", f"{whose}{choice.resource}={choice.cls}, {choice.source}")
    for charge in one.quotas:
        scopes = f" ({', '.join(charge.scopes)})" if charge.scopes else ""
        if charge.refuses:
            text = f"refuses {_listed(charge.charged)}; left {_listed(charge.left)}"
        else:
            verb = "would take" if isinstance(one, d.Refusal) else "charged"
            text = f"{verb} {_listed(charge.charged)}; left {_listed(charge.left)}"
        yield _line("quota", f"{charge.quota}{scopes}: {text}")


def _admission(one: d.NodeAdmission) -> Iterator[str]:
    if not one.admitted:
        yield _line("node", f"{one.node} refused it, {one.reason}: {one.message}{_times(one)}")
    else:
        yield _line("node", f"{one.node} took it in" + _because(one.alignment.removeprefix("admitted: ")))
    hints = [text for merge in one.hints for text in _hints(merge)]
    yield from (_line("" if number else "hints", text) for number, text in enumerate(hints))
    given = [text for grant in one.containers for text in _given(grant)]
    yield from (_line("" if number else "given", text) for number, text in enumerate(given))


def _hints(merge: d.HintMerge) -> Iterator[str]:
    """What was offered for which containers, and what came of it."""
    whose = ", ".join(merge.containers)
    for offer in merge.offers:
        own = merge.by_resource.get(offer.resource)
        result = f", gets {_numa(own)}" if own is not None else ""
        yield f"{whose}: {offer.resource} by {offer.by}: {offered(offer)}{result}"
    verdict = "preferred by all" if merge.preferred else "not preferred by all"
    yield f"{whose}: merged to {_numa(merge.result)}, {verdict}" + ("" if merge.admitted else ", which is refused")


def offered(offer: d.HintOffer) -> str:
    """One row of the table of hints, in words."""
    if offer.indifferent:
        return "no preference"
    if not offer.preferred and not offer.possible:
        return "nowhere"
    said = [f"prefers {' or '.join(map(_numa, offer.preferred))}"] if offer.preferred else []
    said += [f"could be {' or '.join(map(_numa, offer.possible))}"] if offer.possible else []
    return ", ".join(said) + (f" or {offer.more} wider sets" if offer.more else "")


def _numa(where: str) -> str:
    return where if where == "anywhere" else f"NUMA {where}"


def _given(grant: d.ContainerGrant) -> Iterator[str]:
    """What a container got, and who chose it; a node of an earlier version says it in one line."""
    if not grant.resources and grant.because:
        yield f"{grant.name}: {grant.because}"
    for one in grant.resources:
        yield f"{grant.name}: {one.resource}: {one.given}, chosen by {one.by}"


def _restart(one: d.Restart) -> str:
    used = f", used {one.memory_use} of memory" if one.memory_use else ""
    limit = f", its limit is {one.memory_limit}" if one.memory_limit and one.reason == "OOMKilled" else ""
    again = f", restart {one.restarts}" if one.restarts else ""
    return f"{one.container}: {one.reason or 'ended'}, exit code {one.exit_code}{used}{limit}{again}{_times(one)}"


def _resize(one: d.Resize) -> Iterator[str]:
    """What was asked for, container by container; or what the node made of it."""
    if one.outcome == "Asked":
        for each in one.containers:
            keys = dict.fromkeys((*each.before, *each.after))
            changed = ", ".join(f"{key} {each.before.get(key, 'none')} → {each.after.get(key, 'none')}" for key in keys)
            yield _line("resize", f"asked for {each.name or 'the pod'}: {changed}{_times(one)}")
    elif one.outcome == "Given":
        yield _line("resize", f"given by {one.node}{_times(one)}")
    else:
        yield _line("resize", f"{one.outcome.lower()} by {one.node}" + _because(one.message) + _times(one))


_WHY = {
    "DeletionByTaintManager": "it does not tolerate",
    "EvictionByEvictionAPI": "asked for through the eviction API",
    "DeletionByPodGC": "swept away",
}


def _disruption(one: d.Disruption) -> str:
    where = f"from {one.node}: " if one.node else ""
    said = _WHY.get(one.reason, one.reason)
    if one.taints:
        return f"{where}{said} {', '.join(one.taints)} (any longer)"
    by = f" by {one.asked_by}" if one.asked_by else ""
    allowed = f"; budget {one.budget} allowed it" if one.budget else ""
    told = one.message if one.reason != "EvictionByEvictionAPI" else ""
    return f"{where}{said}{by}{allowed}" + _because(told)


def _eviction(one: d.Eviction) -> Iterator[str]:
    short = f"{one.signal} {one.available} is below {one.threshold}" if one.threshold else one.signal or one.message
    yield _line("evicted", f"from {one.node}: {short}" + _because(one.because))
    for ranked in one.ranking:
        place = f"{ranked.place}." if ranked.place else "stays"
        yield _line("", f"{place:<6}{ranked.pod}: {ranked.because}")
