"""The ResourceSlices of a node: what is to be written and deleted so that they say what the machine has. Pure.

All slices of a node are one pool. Schedulers take the highest generation of a pool, and only when it is complete: so
whatever changes, all of them are written with the next generation. Called by `publishing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.stock.cores.devices import API_VERSION, DRIVER, devices

Raw = Mapping[str, Any]
MOST_DEVICES = 128
"""In one ResourceSlice, as Kubernetes has it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What leads from what is stored to what is to be; `because` says why, and is empty where nothing is to be done."""

    written: Sequence[dict[str, Any]] = ()
    stale: Sequence[Raw] = ()
    """Slices of the pool that are not part of it any more; those that are written go first."""
    because: str = ""


def slices(node: Raw, machine: Machine, reserved: CpuSet, generation: int = 1) -> list[dict[str, Any]]:
    """The ResourceSlices of a node, which go with its Node."""
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    every = devices(machine, reserved)
    parts = [every[start : start + MOST_DEVICES] for start in range(0, len(every), MOST_DEVICES)] or [[]]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{DRIVER}-{index}", "ownerReferences": [owner]},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for index, part in enumerate(parts)
    ]


def changes(node: Raw, machine: Machine, reserved: CpuSet, stored: Iterable[Raw]) -> Changes:
    """What is to be done about the slices that the API server has; nothing where they say it all already."""
    name = node["metadata"]["name"]
    found = {
        one["metadata"]["name"]: one
        for one in stored
        if one["spec"].get("driver") == DRIVER and one["spec"].get("nodeName") == name
    }
    newest = max((_generation(one) for one in found.values()), default=0)
    same = slices(node, machine, reserved, newest or 1)
    named = {one["metadata"]["name"] for one in same}
    stale = tuple(one for key, one in found.items() if key not in named)
    there = [one for one in same if one["metadata"]["name"] in found]
    if any(not _is_current(found[one["metadata"]["name"]], one) for one in there) or (stale and not there):
        because = "the node's cores have changed, or somebody changed what is said of them"
        return Changes(slices(node, machine, reserved, newest + 1), stale, because)
    missing = [one for one in same if one not in there]
    if missing:
        return Changes(missing, stale, "not published")
    return Changes((), stale, "slices that are not the node's any more" if stale else "")


def _generation(one: Raw) -> int:
    return int((one["spec"].get("pool") or {}).get("generation") or 0)


def _is_current(stored: Raw, wanted: Raw) -> bool:
    """An object of a list does not say of which kind it is."""
    return all(_says(stored.get(part), wanted[part]) for part in ("metadata", "spec"))


def _says(stored: Any, wanted: Any) -> bool:
    """Whether what is stored says all that is wanted; a server may add to it, and leaves out what is empty."""
    if isinstance(wanted, dict):
        known = stored if isinstance(stored, Mapping) else {}
        return all(_says(known.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        rows = stored or []
        return len(rows) == len(wanted) and all(map(_says, rows, wanted))
    return bool(stored == wanted)
