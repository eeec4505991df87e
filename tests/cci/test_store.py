"""The store: what containers hold, what is left, and what survives on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cci.store import FILE_NAME, Departure, Store
from kubeqos.codec import decode_json
from kubeqos.model.hardware.named import laptop8, tiny2
from kubeqos.topology.attributes import Siblings
from kubeqos.topology.claims.holdings import Holding, ResourceSet, StoredContainer
from kubeqos.topology.claims.parameters import Group, Parameters
from tests.cci.world import cpus


def owner(pod: str, own: str, *, shared: str = "", transient: bool = False, container: str = "main") -> StoredContainer:
    groups = [Group(len(cpus(own)), len(cpus(own)), exclusive=True)]
    sets = [ResourceSet(cpus(own), cpus(own))]
    if shared:
        groups.append(Group(len(cpus(shared)), len(cpus(shared))))
        sets.append(ResourceSet(cpus(shared)))
    holding = Holding("driver", "default", f"claim-{pod}", "claim", Parameters(tuple(groups)), tuple(sets))
    return StoredContainer(pod, container, f"default/{pod}", transient, (holding,), f"id-{pod}")


def store(*entries: StoredContainer, reserved: str = "") -> Store:
    made = Store(laptop8(), cpus(reserved))
    for entry in entries:
        made.add_resource(entry)
    return made


def test_available_is_all_less_reserved_less_exclusive() -> None:
    found = store(owner("a", "2-3", shared="4-5"), StoredContainer("web", "main", "default/web"), reserved="0")
    assert found.available_resources() == cpus("1,4-7")
    found.departures.append(Departure("driver", "default", "u", "n", "", cpus("7")))
    assert found.available_resources() == cpus("1,4-6"), "what a driver was not told of is still held"
    removed = found.remove_resource(("a", "main"))
    assert removed is not None and found.available_resources() == cpus("1-6")
    assert found.remove_resource(("a", "main")) is None


def test_a_pod_may_use_its_finished_init_containers_cpus_again() -> None:
    found = store(owner("a", "2-3", transient=True, container="init"))
    assert found.available_resources("a") == cpus("0-7") and found.available_resources("b") == cpus("0-1,4-7")
    found.add_resource(owner("a", "2-4"))
    assert found.validate() == []


def test_denied_siblings_are_held_too(tmp_path: Path) -> None:
    group = Group(1, 1, exclusive=True, siblings=Siblings.DENIED)
    held = ResourceSet(cpus("0"), cpus("0-1"))
    holding = Holding("driver", "default", "u", "n", Parameters((group,)), (held,))
    found = store(StoredContainer("a", "main", "default/a", holdings=(holding,)))
    assert found.available_resources() == cpus("2-7")
    found.save(tmp_path / FILE_NAME)
    again = store()
    assert again.load(tmp_path / FILE_NAME) == (True, []) and again.available_resources() == cpus("2-7")


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    found = store(owner("a", "2-3", shared="4-5"), StoredContainer("web", "main", "default/web"), reserved="0")
    found.departures.append(Departure("driver", "default", "u", "n", "id", cpus("7")))
    found.save(path)
    assert decode_json(path.read_bytes())["data"]["available"] == "1,4-6", "the available set is saved with the map"
    again = store(reserved="0")
    assert again.load(path) == (True, [])
    assert again.entries == found.entries and again.departures == found.departures
    assert store().load(tmp_path / "nothing") == (False, [])
    found.save(path)
    path.write_bytes(b"torn")
    assert store().load(path) == (False, [f"{FILE_NAME}.damaged-1 was damaged and set aside"])


def test_what_the_machine_cannot_have_any_more_is_dropped_and_named() -> None:
    data = store(owner("a", "0-1"), owner("b", "6-7"), StoredContainer("web", "main", "default/web")).dump()
    smaller = Store(tiny2())
    assert smaller.restore(data) == [
        "dropped container 'main' of pod 'default/b': CPUs 6-7 are not available on this machine any more"
    ]
    assert set(smaller.entries) == {("a", "main"), ("web", "main")}
    doubled = store(owner("a", "0-1")).dump()
    doubled["entries"].append({**doubled["entries"][0], "pod": "thief", "label": "default/thief"})
    assert store().restore(doubled) == [
        "dropped container 'main' of pod 'default/thief': CPUs 0-1 belong to default/a/main"
    ]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pod": 1}', "nonsense"])
def test_an_entry_that_is_none(text: str) -> None:
    assert store().load_entry(text) is None


def test_an_entry_as_text() -> None:
    entry = owner("a", "2-3", shared="4-5")
    assert store().load_entry(store().dump_entry(entry)) == entry


def test_validate_names_what_is_wrong() -> None:
    found = store(owner("a", "2-3"), owner("b", "3-4"), reserved="4")
    wrong = found.validate()
    assert "default/b/main and default/a/main hold 3" in wrong
    assert "default/b/main holds CPUs outside what may be handed out" in wrong
    assert "default/a/main runs on 3 of another pod" in wrong
