"""A claim's parameters: how many cores of which sort, one group after the other (KEP-3675, Compute Specification).

`parse` reads a ConfigMap's `config.json`, `parse_handle` what the manager sends to drivers, which is the same document
with two keys more. Anything unknown or contradictory is a `Problem` that points into the document. Pure; called by
admission, the manager, the SDK and `kubeqos cci`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.topology.attributes import CpuRequest, DeviceAffinity, Isolation, MemoryAffinity, Siblings
from kubeqos.topology.claims.document import Located, Problem, Unreadable, problem_at, read

CONFIG_KEY = "config.json"
CORES, DEVICE, MEMORY, CPU = "cores", "device attributes", "mem attributes", "cpu attributes"
# Only in a handle: what the manager knows beyond the claim.
DEVICE_NUMA, POLICY, THREADS = "device numa", "policy", "thread granularity"

MAX_CORES = 8192  # Linux stops there

Setting = tuple[str, Any]

CPU_ATTRIBUTES: Mapping[str, Setting] = {
    "EXCLUSIVE": ("exclusive", True),
    "SHARED": ("exclusive", False),
    **{each.value: ("siblings", each) for each in Siblings if each.value},
    # Beyond the KEP's list, for its user stories on core kinds and isolated cores.
    "PERFORMANCE-CORE": ("kind", CoreKind.PERFORMANCE),
    "EFFICIENCY-CORE": ("kind", CoreKind.EFFICIENCY),
    **{each.value: ("isolation", each) for each in Isolation},
}
MEMORY_ATTRIBUTES: Mapping[str, Setting] = {each.value: ("memory", each) for each in MemoryAffinity}
DEVICE_ATTRIBUTES: Mapping[str, Setting] = {each.value: ("device", each) for each in DeviceAffinity}

ATTRIBUTES: Mapping[str, Mapping[str, Setting]] = {
    DEVICE: DEVICE_ATTRIBUTES,
    MEMORY: MEMORY_ATTRIBUTES,
    CPU: CPU_ATTRIBUTES,
}

_HUGE_PAGES = re.compile(r"HUGE_PAGE_SIZE_([1-9][0-9]{0,3})([KMG])\Z")
_UNITS = {"K": 10, "M": 20, "G": 30}
_CORES = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?\Z")


@dataclass(frozen=True, slots=True)
class Group:
    """One group of cores: a number, or a range for burstable use, and what must hold for them."""

    least: int
    most: int
    exclusive: bool = False
    siblings: Siblings = Siblings.ANY
    memory: MemoryAffinity = MemoryAffinity.NONE
    device: DeviceAffinity = DeviceAffinity.NONE
    kind: CoreKind | None = None
    isolation: Isolation = Isolation.NO
    huge_page_bytes: int | None = None
    threads: bool = False
    """Not the claim's wish but the node's setting: EXCLUSIVE owns single threads instead of full cores."""

    def request(self, device_numa: NumaSet = NO_NUMA) -> CpuRequest:
        """The group as the allocator takes it."""
        return CpuRequest(
            self.least,
            self.most if self.most > self.least else None,
            self.exclusive,
            self.siblings,
            self.memory,
            self.device,
            device_numa,
            self.kind,
            self.isolation,
            self.threads,
        )

    def region(self, machine: Machine) -> CpuSet:
        """The CPUs it may come from: those next to huge pages of the size it asks for."""
        size = self.huge_page_bytes
        if size is None:
            return machine.online
        return machine.cpus_in(NumaSet.from_ids(node.id for node in machine.nodes if node.hugepages.get(size)))

    @property
    def cores(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"

    def attributes(self, key: str) -> list[str]:
        """The attributes of one key, spelled as a claim spells them."""
        found = [name for name, (field, value) in ATTRIBUTES[key].items() if self._says(field, value)]
        if key == MEMORY and self.huge_page_bytes is not None:
            found.append(_huge_page_name(self.huge_page_bytes))
        return found

    def _says(self, field: str, value: Any) -> bool:
        return bool(getattr(self, field) == value and value is not Isolation.NO)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a container asks of a driver: groups of cores and, from an annotation, a policy only the driver knows."""

    groups: tuple[Group, ...]
    policy: str = ""
    device_numa: NumaSet = NO_NUMA

    @property
    def least(self) -> int:
        return sum(group.least for group in self.groups)

    @property
    def least_exclusive(self) -> int:
        """What is requested of cores of its own; of a policy nobody but the driver knows, so all of it may be."""
        return sum(group.least for group in self.groups if group.exclusive or self.policy)

    @property
    def most(self) -> int:
        return sum(group.most for group in self.groups)

    def by_threads(self) -> Parameters:
        """The same for a node whose EXCLUSIVE owns single threads."""
        return replace(self, groups=tuple(replace(group, threads=True) for group in self.groups))

    def requests(self) -> tuple[CpuRequest, ...]:
        return tuple(group.request(self.device_numa) for group in self.groups)

    def handle(self) -> str:
        """The text that travels in `AdmitRequest.resource_handle`."""
        document: dict[str, Any] = {CORES: [group.cores for group in self.groups]}
        for key in ATTRIBUTES:
            document[key] = [_entry(key, group.attributes(key)) for group in self.groups]
        if self.device_numa:
            document[DEVICE_NUMA] = str(self.device_numa)
        if self.policy:
            document[POLICY] = self.policy
        if any(group.threads for group in self.groups):
            document[THREADS] = True
        return encode_json(document).decode()


def parse(text: str) -> Parameters | Problem:
    """Read a claim's `config.json`."""
    return _read(text, (CORES, *ATTRIBUTES))


def parse_handle(text: str) -> Parameters | Problem:
    """Read what a manager put into `resource_handle`."""
    return _read(text, (CORES, *ATTRIBUTES, DEVICE_NUMA, POLICY, THREADS))


def _read(text: str, keys: tuple[str, ...]) -> Parameters | Problem:
    document = read(text)
    if isinstance(document, Problem):
        return document
    try:
        return _Interpreter(text, keys).parameters(document)
    except Unreadable as error:
        return error.problem


def _entry(key: str, names: list[str]) -> str | list[str]:
    return names if key == CPU or len(names) != 1 else names[0]


def _huge_page_name(size: int) -> str:
    unit = next(unit for unit, shift in reversed(_UNITS.items()) if size % (1 << shift) == 0)
    return f"HUGE_PAGE_SIZE_{size >> _UNITS[unit]}{unit}"


class _Interpreter:
    """Gives meaning to a document, and points at what has none."""

    def __init__(self, text: str, keys: tuple[str, ...]) -> None:
        self.text = text
        self.keys = keys

    def fail(self, at: Located, path: str, what: str, remedy: str = "") -> Unreadable:
        return Unreadable(problem_at(self.text, at.start, what, path=path, remedy=remedy))

    def parameters(self, document: Located) -> Parameters:
        members = self.members(document)
        if CORES not in members:
            raise self.fail(document, "", f'"{CORES}" is missing', 'say how many cores, such as "cores": ["2"]')
        cores = self.entries(members[CORES], CORES)
        if not cores:
            raise self.fail(members[CORES], CORES, "must name at least one group of cores")
        settings: list[dict[str, Any]] = []
        for index, entry in enumerate(cores):
            least, most = self.core_range(entry, f"{CORES}[{index}]")
            settings.append({"least": least, "most": most})
        for key in ATTRIBUTES:
            if key in members:
                self.attributes(key, members[key], settings)
        groups = tuple(Group(**found) for found in settings)
        for index, (group, entry) in enumerate(zip(groups, cores, strict=True)):
            for wrong in group.request().contradictions():
                at = self.entry_of(members, wrong.rule, index) or entry
                raise self.fail(at, f"group {index}", str(wrong))
        found = Parameters(groups, self.policy(members), self.device_numa(members))
        return found.by_threads() if THREADS in members and members[THREADS].value is True else found

    def members(self, document: Located) -> dict[str, Located]:
        if not isinstance(document.value, tuple):
            raise self.fail(document, "", f"expected an object, found {document.kind}")
        found: dict[str, Located] = {}
        for key, value in document.value:
            if key.value in found:
                raise self.fail(key, "", f'"{key.value}" is given twice')
            if key.value not in self.keys:
                raise self.fail(key, "", f'unknown key "{key.value}"', _advice(key.value, self.keys))
            found[key.value] = value
        return found

    def entries(self, value: Located, path: str) -> list[Located]:
        if not isinstance(value.value, list):
            raise self.fail(value, path, f"expected a list with one entry per group of cores, found {value.kind}")
        return value.value

    def core_range(self, entry: Located, path: str) -> tuple[int, int]:
        text = entry.value
        if isinstance(text, int) and not isinstance(text, bool):
            text = str(text)
        found = _CORES.match(text) if isinstance(text, str) else None
        if not found:
            raise self.fail(entry, path, "expected a number of cores or a range", 'write it like "2" or "6-8"')
        least = int(found[1])
        most = int(found[2]) if found[2] is not None else least
        if least < 1 or most > MAX_CORES:
            raise self.fail(entry, path, f"must be between 1 and {MAX_CORES} cores, not {text}")
        if most < least:
            raise self.fail(entry, path, f"range {text} is empty", f'write it like "{most}-{least}"')
        return least, most

    def attributes(self, key: str, value: Located, settings: list[dict[str, Any]]) -> None:
        entries = self.entries(value, key)
        if len(entries) != len(settings):
            wanted = f"{len(settings)} group{'s' if len(settings) != 1 else ''} of cores"
            raise self.fail(value, key, f"has {len(entries)} entries for {wanted}", "give one entry per group")
        for index, entry in enumerate(entries):
            listed = isinstance(entry.value, list)
            said: dict[str, str] = {}
            for position, name in enumerate(entry.value if listed else [entry]):
                path = f"{key}[{index}]" + (f"[{position}]" if listed else "")
                field, meaning = self.setting(key, name, path)
                if field in said:
                    other = said[field]
                    both = "is given twice" if other == name.value else f"contradicts {other}"
                    raise self.fail(name, path, f"{name.value} {both}")
                said[field] = name.value
                settings[index][field] = meaning

    def setting(self, key: str, name: Located, path: str) -> Setting:
        table = ATTRIBUTES[key]
        if not isinstance(name.value, str):
            raise self.fail(name, path, f"expected an attribute, found {name.kind}")
        if name.value in table:
            return table[name.value]
        pages = _HUGE_PAGES.match(name.value) if key == MEMORY else None
        if pages:
            return "huge_page_bytes", int(pages[1]) << _UNITS[pages[2]]
        owner = next((other for other, names in ATTRIBUTES.items() if name.value in names), None)
        remedy = f'it belongs into "{owner}"' if owner else _advice(name.value, tuple(table))
        raise self.fail(name, path, f'unknown attribute "{name.value}"', remedy)

    def entry_of(self, members: Mapping[str, Located], rule: str, index: int) -> Located | None:
        """Where the attribute `rule` stands in the entry of one group."""
        for key in ATTRIBUTES:
            for entry in members[key].value[index : index + 1] if key in members else ():
                for name in entry.value if isinstance(entry.value, list) else [entry]:
                    if name.value == rule:
                        return name  # type: ignore[no-any-return]
        return None

    def policy(self, members: Mapping[str, Located]) -> str:
        found = members.get(POLICY)
        if found is not None and not isinstance(found.value, str):
            raise self.fail(found, POLICY, f"expected a name, found {found.kind}")
        return found.value if found else ""

    def device_numa(self, members: Mapping[str, Located]) -> NumaSet:
        found = members.get(DEVICE_NUMA)
        if found is None:
            return NO_NUMA
        try:
            return NumaSet.parse(found.value)
        except (InputError, AttributeError) as error:
            raise self.fail(found, DEVICE_NUMA, "expected a list of NUMA nodes such as 0-1") from error


def _advice(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name.upper(), [each.upper() for each in known], 1)
    if close:
        match = next(each for each in known if each.upper() == close[0])
        return f'did you mean "{match}"?'
    return "known: " + ", ".join(known)
