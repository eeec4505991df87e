"""Classes that are gone from a file and still in use."""

from __future__ import annotations

from kubeqos.cri.enforcing.host import V2
from kubeqos.cri.providers.config import PresetSpec, parse_classes
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level
from kubeqos.cri.providers.retiring import all_held, still_held, with_old_rules

RDT = Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("gold", 2), ClassInfo("silver")), "silver")
LESS = Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("silver"),), "silver")


def gold(resource: str, cls: str) -> int:
    return int((resource, cls) == ("rdt", "gold"))


def test_a_class_in_use_stays_and_nobody_new_gets_it() -> None:
    kept = still_held(LESS, RDT, gold)
    assert kept is not None
    assert (kept.retired, kept.find("gold")) == ({"gold"}, ClassInfo("gold", 2))
    assert kept.current() == (ClassInfo("silver"),)
    assert still_held(LESS, RDT, lambda *_: 0) == LESS


def test_a_resource_in_use_stays_for_those_who_have_it_and_is_nobodys_default() -> None:
    (kept,) = all_held([], {"rdt": RDT}, gold)
    assert (kept.classes, kept.retired, kept.default) == ((ClassInfo("gold", 2),), {"gold"}, "")
    assert all_held([], {"rdt": RDT}, lambda *_: 0) == []


def test_a_resource_that_moves_to_the_other_level_keeps_nothing() -> None:
    pod = Advertisement("rdt", Level.POD, True, (ClassInfo("silver"),))
    assert still_held(pod, RDT, gold) == pod


def test_what_a_class_means_is_kept_with_it() -> None:
    text = "resources: {memory: {provider: memory, classes: {CLASSES}}}"
    old = parse_classes(text.replace("CLASSES", "kept: {min: 25%}, soft: {high: 50%}"), "f", V2).resources["memory"]
    new = parse_classes(text.replace("CLASSES", "soft: {high: 60%}"), "f", V2).resources["memory"]
    kept = with_old_rules(new, old, lambda _, cls: int(cls == "kept")).spec
    assert isinstance(kept, PresetSpec)
    assert isinstance(old.spec, PresetSpec)
    assert isinstance(new.spec, PresetSpec)
    assert kept.classes == {"soft": new.spec.classes["soft"], "kept": old.spec.classes["kept"]}
    assert with_old_rules(new, old, lambda *_: 0) == new
