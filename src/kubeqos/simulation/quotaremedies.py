"""The smallest changes that would let a pod in that a quota refused. Pure.

Every change is tried on the quota engine, with the live pods of the namespace counted anew, before it is told. Used by
`kubeqos why --fix`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import WELL_KNOWN, Level, raw_class_requests
from kubeqos.rules.quota import Charge, OverQuota, Quota, QuotaLedger, Reason, charge_pod, decide

Raw = dict[str, Any]
Remedy = tuple[str, Raw]
"""What to change, and the pod that would be taken then."""
_NAMED = 3
_TRIED = 50
_SIDES = {"requests.": "requests", "limits.": "limits"}


def quota_remedies(pod: Raw, quotas: Sequence[Raw], pods: Sequence[Raw]) -> list[Remedy] | None:
    """Changes of quotas, of the pod or around it, each of which alone would do; None where nothing refuses it."""
    charges = [charge_pod(PodView.of(one)) for one in pods]
    refused = _refused(pod, quotas, charges)
    if not refused:
        return None
    return [
        *_raised(pod, quotas, charges, refused),
        *_lowered(pod, quotas, charges, refused),
        *_another_class(pod, quotas, charges),
        *_freed(pod, quotas, charges, [one["metadata"]["name"] for one in pods]),
    ]


def _refused(pod: Raw, quotas: Iterable[Raw], charges: Iterable[Charge]) -> tuple[Reason, ...]:
    """The real decision: what every quota has against the pod, beside what lives."""
    ledger = QuotaLedger()
    for raw in quotas:
        ledger.put("", Quota.of(raw), charges)
    decision = decide(ledger.quotas(""), None, charge_pod(PodView.of(pod)), container_level=_container_level(quotas))
    return decision.reasons if isinstance(decision, OverQuota) else ()


def _container_level(quotas: Iterable[Raw]) -> frozenset[str]:
    """Resources that some quota lists for containers; the others are as everywhere."""
    listed = (((raw.get("spec") or {}).get("qosResources") or {}).get("container") or () for raw in quotas)
    return frozenset(WELL_KNOWN).union(one["name"] for entries in listed for one in entries)


def _raised(pod: Raw, quotas: Sequence[Raw], charges: Sequence[Charge], refused: Iterable[Reason]) -> Iterator[Remedy]:
    """Give every quota that is exceeded exactly what is missing."""
    made, said = copy.deepcopy(list(quotas)), []
    for reason in refused:
        quota = next(one for one in made if one["metadata"]["name"] == reason.quota)
        for name, (asked, used, limit) in reason.numbers.items():
            more = used + asked - limit
            _raise(quota, name, limit + more)
            said.append(f"{name} of quota {reason.quota} by {more} to {limit + more}")
    if said and not _refused(pod, made, charges):
        yield f"raise {', '.join(said)}", pod


def _raise(quota: Raw, name: str, to: Quantity) -> None:
    """A resource in `hard`, or `level.resource/class` in the class quota."""
    spec = quota["spec"]
    if name in (spec.get("hard") or {}):
        spec["hard"][name] = str(to)
        return
    level, _, rest = name.partition(".")
    resource, _, cls = rest.rpartition("/")
    for listed in (spec.get("qosResources") or {}).get(level) or ():
        for one in listed.get("classes") or () if listed["name"] == resource else ():
            if one["name"] == cls:
                one["capacity"] = to.value()


def _lowered(pod: Raw, quotas: Sequence[Raw], charges: Sequence[Charge], refused: Iterable[Reason]) -> Iterator[Remedy]:
    """Ask for as much as is left."""
    made, said = copy.deepcopy(pod), []
    for reason in refused:
        for name, (asked, used, limit) in reason.numbers.items():
            left = limit - used
            change = _lower(made, name, asked, asked - left) if left.nanos > 0 else None
            if change is None:
                return
            said.append(change)
    if said and not _refused(made, quotas, charges):
        yield f"lower {', '.join(dict.fromkeys(said))}", made


def _lower(pod: Raw, name: str, asked: Quantity, less: Quantity) -> str | None:
    """Take so much from the container that asks for the most; what is to be said of it."""
    side = next((side for prefix, side in _SIDES.items() if name.startswith(prefix)), "requests")
    resource = name.removeprefix("requests.").removeprefix("limits.")
    asking = [one for one in pod["spec"]["containers"] if resource in ((one.get("resources") or {}).get(side) or {})]
    if not asking:
        return None
    largest = max(asking, key=lambda one: Quantity.parse(str(one["resources"][side][resource])))
    had = Quantity.parse(str(largest["resources"][side][resource]))
    if (had - less).nanos <= 0:
        return None
    if side == "limits" or resource in (largest["resources"].get("limits") or {}):
        for each in ("requests", "limits"):  # a request above its limit is no pod
            amounts = largest["resources"].get(each) or {}
            if resource in amounts and Quantity.parse(str(amounts[resource])).nanos > (had - less).nanos:
                amounts[resource] = str(had - less)
    largest["resources"][side][resource] = str(had - less)
    return f"{resource} {side} from {asked} to {asked - less}"


def _another_class(pod: Raw, quotas: Sequence[Raw], charges: Sequence[Charge]) -> Iterator[Remedy]:
    """Ask for a class that the quotas allow and have left."""
    for resource, asked in sorted(_classes_asked(pod)):
        for cls in sorted(_classes_listed(quotas, resource) - {asked}):
            made = copy.deepcopy(pod)
            for one in raw_class_requests(made["spec"]):
                if one.get("name") == resource and one.get("class") == asked:
                    one["class"] = cls
            if not _refused(made, quotas, charges):
                yield f"ask for {resource}={cls} instead of {resource}={asked}", made


def _classes_asked(pod: Raw) -> set[tuple[str, str]]:
    return {(one["name"], one["class"]) for one in raw_class_requests(pod["spec"])}


def _classes_listed(quotas: Iterable[Raw], resource: str) -> set[str]:
    return {
        cls["name"]
        for raw in quotas
        for level in Level
        for listed in (((raw.get("spec") or {}).get("qosResources") or {}).get(level.value) or ())
        if listed["name"] == resource
        for cls in listed.get("classes") or ()
    }


def _freed(pod: Raw, quotas: Sequence[Raw], charges: Sequence[Charge], names: Sequence[str]) -> Iterator[Remedy]:
    """End one of the pods that the quotas count; of many only the first are tried."""
    enough = [
        name
        for number, name in enumerate(names[:_TRIED])
        if not _refused(pod, quotas, [*charges[:number], *charges[number + 1 :]])
    ]
    if enough:
        more = f" and {len(enough) - _NAMED} more" if len(enough) > _NAMED else ""
        yield f"delete one of {', '.join(sorted(enough)[:_NAMED])}{more}", pod
