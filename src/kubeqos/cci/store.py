"""The compute resource store (KEP-3675): which container holds which CPUs, and what is left.

Keyed by pod id and container name; standard containers, which run on whatever is left, are in it too. `save` and
`load` use the checkpoint rules of every kubeqos component under the KEP's file name, so a torn file never stops a
node. Decisions about it live in `topology.claims.sharing`; the manager is its only writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from kubeqos.checkpoint import Checkpoint
from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.errors import InputError
from kubeqos.model.annotations.wellknown import HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.claims.document import Problem
from kubeqos.topology.claims.holdings import Holding, Holdings, Key, ResourceSet, StoredContainer, exclusive_set
from kubeqos.topology.claims.parameters import Parameters, parse_handle

FILE_NAME = "cci_manager_state"
FORMAT, VERSION = "kubeqos-cci-manager-state", 1


@dataclass(frozen=True, slots=True)
class Departure:
    """A driver that has still to be told that a container is gone; `entry` holds its CPUs until then."""

    driver: str
    namespace: str
    claim_uid: str
    claim_name: str
    container_id: str
    cpus: CpuSet = NO_CPUS


class Store(Holdings):
    """The map of holdings of one machine, as it is kept on disk."""

    def __init__(self, machine: Machine, reserved: CpuSet = NO_CPUS) -> None:
        super().__init__(machine, reserved)
        self.departures: list[Departure] = []
        self.reservations: dict[Key, CpuSet] = {}
        """CPUs that drivers have given to containers which are still being admitted; nobody else may have them."""
        self.withheld_for: dict[Key, CpuSet] = {}
        """CPUs that containers own by a manager which this node no longer has."""
        self._dumped: dict[Key, tuple[StoredContainer, dict[str, Any]]] = {}

    def add_resource(self, entry: StoredContainer) -> None:
        """Record (or replace) what a container holds."""
        self.entries[entry.key] = entry

    def remove_resource(self, key: Key) -> StoredContainer | None:
        """Forget a container; its CPUs are available again."""
        self._dumped.pop(key, None)
        return self.entries.pop(key, None)

    def withheld(self) -> CpuSet:
        departed = (one.cpus for one in self.departures)
        return CpuSet.union(chain(departed, self.reservations.values(), self.withheld_for.values()))

    def of_pod(self, pod: str) -> list[StoredContainer]:
        return [entry for entry in self.entries.values() if entry.pod == pod]

    def save(self, path: Path) -> None:
        """Write the map and the available set; durable when this returns."""
        Checkpoint(path, format=FORMAT, version=VERSION).save(self.dump())

    def load(self, path: Path) -> tuple[bool, list[str]]:
        """Read the map back: whether the newest save was there and whole, and what had to be repaired, in words."""
        loaded = Checkpoint(path, format=FORMAT, version=VERSION).load()
        told = [f"{name} was damaged and set aside" for name in loaded.set_aside]
        if loaded.data is None:
            return False, told
        return not loaded.from_previous, told + self.restore(loaded.data)

    def dump(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "available": str(self.available_resources()),
            "reserved": str(self.reserved),
            "entries": [self._dump(entry) for entry in self.entries.values()],
            "departures": [{**_fields(each), "cpus": str(each.cpus)} for each in self.departures],
        }

    def _dump(self, entry: StoredContainer) -> dict[str, Any]:
        """An entry is dumped once: most of them are the same at the next save."""
        known = self._dumped.get(entry.key)
        if known is None or known[0] is not entry:
            known = self._dumped[entry.key] = entry, _dump_entry(entry)
        return known[1]

    def restore(self, data: Mapping[str, Any]) -> list[str]:
        """Take over dumped state; entries that this machine cannot have any more are dropped and named."""
        repaired: list[str] = []
        self.entries, self._dumped = {}, {}
        for raw in data["entries"]:
            entry = self._load_entry(raw)
            why = entry if isinstance(entry, str) else self.impossible(entry)
            if isinstance(entry, StoredContainer) and not why:
                self.add_resource(entry)
            else:
                repaired.append(f"dropped container {raw.get('container')!r} of pod {raw.get('label')!r}: {why}")
        self.departures = [
            Departure(**{**each, "cpus": CpuSet.parse(each["cpus"]) & self.machine.online})
            for each in data["departures"]
        ]
        return repaired

    def dump_entry(self, entry: StoredContainer) -> str:
        """One entry as text, for the container that it speaks of."""
        return encode_json(self._dump(entry)).decode()

    def load_entry(self, text: str) -> StoredContainer | None:
        """The inverse of `dump_entry`; None when the text is not one."""
        try:
            entry = self._load_entry(decode_json(text.encode()))
        except (JsonError, KeyError, TypeError):
            return None
        return entry if isinstance(entry, StoredContainer) else None

    def impossible(self, entry: StoredContainer) -> str:
        """Why an entry cannot stand beside the others, empty if it can."""
        outside = (entry.cpus | entry.whole) - (self.machine.online - self.reserved)
        if outside:
            return f"CPUs {outside} are not available on this machine any more"
        for other in self.entries.values():
            both = entry.whole & other.whole
            if both and not (entry.pod == other.pod and (entry.transient or other.transient)):
                return f"CPUs {both} belong to {other.label}/{other.container}"
        return ""

    def _load_entry(self, raw: Mapping[str, Any]) -> StoredContainer | str:
        holdings = []
        for each in raw["holdings"]:
            parameters = parse_handle(each["handle"])
            if isinstance(parameters, Problem):
                return f"its claim cannot be read: {parameters}"
            try:
                sets = tuple(self._load_set(parameters, index, one) for index, one in enumerate(each["sets"]))
            except (InputError, KeyError) as error:
                return f"its CPUs cannot be read: {error}"
            names = {name: each[name] for name in ("driver", "namespace", "claim_uid", "claim_name")}
            holdings.append(Holding(**names, parameters=parameters, sets=sets))
        plain = {name: raw[name] for name in ("pod", "container", "label", "transient", "container_id")}
        return StoredContainer(**plain, holdings=tuple(holdings), ignored=raw.get("ignored", ""))

    def _load_set(self, parameters: Parameters, index: int, raw: Mapping[str, Any]) -> ResourceSet:
        cpus = CpuSet.parse(raw["cpuset"])
        if not raw["exclusive"]:
            return ResourceSet(cpus)
        if "whole" in raw:
            return ResourceSet(cpus, CpuSet.parse(raw["whole"]))
        # Written by a version whose EXCLUSIVE owned threads: what was promised then is what others may rely on.
        group = parameters.groups[index] if index < len(parameters.groups) else None
        return exclusive_set(self.machine, group and replace(group, threads=True), cpus, threads=True)

    def validate(self) -> list[str]:
        """Broken invariants, in words."""
        wrong = []
        entries = [entry for entry in self.entries.values() if entry.whole]
        for index, entry in enumerate(entries):
            if entry.whole & self.reserved or entry.whole - self.machine.online:
                wrong.append(f"{entry.label}/{entry.container} holds CPUs outside what may be handed out")
            for other in entries[:index]:
                both = entry.whole & other.whole
                if both and not (entry.pod == other.pod and (entry.transient or other.transient)):
                    wrong.append(f"{entry.label}/{entry.container} and {other.label}/{other.container} hold {both}")
        for key, cpus in self.reservations.items():
            both = cpus & CpuSet.union(entry.whole for entry in entries if entry.pod != key[0])
            if both:
                wrong.append(f"{both} are reserved for {key} and belong to another pod")
        for entry in self.entries.values():
            strangers = CpuSet.union(other.whole for other in entries if other.pod != entry.pod)
            if entry.cpus & strangers:
                wrong.append(f"{entry.label}/{entry.container} runs on {entry.cpus & strangers} of another pod")
        return wrong


def owned_by_claims(annotations: Mapping[str, str]) -> CpuSet:
    """The CPUs that a container keeps from others, by what it was created with."""
    try:
        found = decode_json(annotations.get(HOLDINGS_ANNOTATION, "").encode())
        sets = [one for holding in found["holdings"] for one in holding["sets"] if one["exclusive"]]
        return CpuSet.union(CpuSet.parse(one.get("whole") or one["cpuset"]) for one in sets)
    except (JsonError, InputError, KeyError, TypeError, AttributeError):
        return NO_CPUS


def _fields(departure: Departure) -> dict[str, Any]:
    return {name: getattr(departure, name) for name in Departure.__slots__}


def _dump_entry(entry: StoredContainer) -> dict[str, Any]:
    return {
        "pod": entry.pod,
        "container": entry.container,
        "label": entry.label,
        "transient": entry.transient,
        "container_id": entry.container_id,
        **({"ignored": entry.ignored} if entry.ignored else {}),
        "holdings": [
            {
                "driver": holding.driver,
                "namespace": holding.namespace,
                "claim_uid": holding.claim_uid,
                "claim_name": holding.claim_name,
                "handle": holding.parameters.handle(),
                "sets": [
                    {"cpuset": str(each.cpus), "exclusive": each.exclusive, "whole": str(each.whole)}
                    for each in holding.sets
                ],
            }
            for holding in entry.holdings
        ],
    }
