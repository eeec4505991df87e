"""Classes that a new class file no longer names although somebody has them: they are kept, as retired. Pure.

Asked by the relay's catalog and by the simulated runtime when a file is read again. KEP-3008 says nothing of it; to
refuse the file would let one long-lived pod stop every change, and to take the class away would break a promise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from kubeqos.cri.providers.config import BlockIoSpec, PresetSpec, ResourceSpec
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, Advertisement

Used = Callable[[str, str], int]
"""How many subjects have asked for a class of a resource, and have it."""


def still_held(new: Advertisement | None, old: Advertisement, used: Used) -> Advertisement | None:
    """What is on offer from now on, with those classes of before that somebody has and nobody new gets.

    A resource that is gone stays as long as somebody has a class of it; one that has moved to the other level does not.
    """
    held = tuple(one for one in old.classes if used(old.name, one.name))
    if new is None:
        retired = frozenset(one.name for one in held)
        return dataclasses.replace(old, classes=held, retired=retired, default=SYSTEM_DEFAULT) if held else None
    missing = tuple(one for one in held if new.find(one.name) is None) if new.level is old.level else ()
    if not missing:
        return new
    retired = new.retired | {one.name for one in missing}
    return dataclasses.replace(new, classes=(*new.classes, *missing), retired=retired)


def all_held(new: Iterable[Advertisement], old: Mapping[str, Advertisement], used: Used) -> list[Advertisement]:
    """The same for a whole table."""
    table = {offer.name: offer for offer in new}
    for name, before in old.items():
        if (kept := still_held(table.get(name), before, used)) is not None:
            table[name] = kept
    return list(table.values())


def with_old_rules(new: ResourceSpec, old: ResourceSpec | None, used: Used) -> ResourceSpec:
    """An entry of the file that still knows how classes are enforced that somebody has and it no longer names.

    Not so for rdt: its classes share a cache, and only who writes the file can say how; such a file is refused.
    """
    if old is None:
        return new
    match new.spec, old.spec:
        case (PresetSpec(kind, classes), PresetSpec(before, rules)) if kind is before:
            lost = {name: rule for name, rule in rules.items() if name not in classes and used(old.offer.name, name)}
            return dataclasses.replace(new, spec=PresetSpec(kind, {**classes, **lost})) if lost else new
        case (BlockIoSpec(devices), BlockIoSpec(had)):
            gone = {name: rule for name, rule in had.items() if name not in devices and used(old.offer.name, name)}
            return dataclasses.replace(new, spec=BlockIoSpec({**devices, **gone})) if gone else new
    return new
