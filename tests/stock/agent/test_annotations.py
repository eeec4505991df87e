"""Which classes a container of a stock node gets, and what becomes of those that ran before the agent came."""

from __future__ import annotations

from kubeqos.cri.classes.decisions import Denied
from kubeqos.cri.classes.table import ClassTable, Found, Missed
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, Level, Subject
from kubeqos.stock.agent.annotations import MARK, mark, noted, wishes

OFFERS = {
    "rdt": Advertisement("rdt", Level.CONTAINER, True, (ClassInfo("gold", 1), ClassInfo("bronze")), default="bronze"),
    "ulimits": Advertisement("ulimits", Level.CONTAINER, False, (ClassInfo("few"),)),
    "network": Advertisement("network", Level.POD, False, (ClassInfo("fast"),)),
}
POD = "qos.kubeqos.io/pod"
MAIN = "qos.kubeqos.io/container.main"


def container(id: str = "c1", name: str = "main") -> Subject:
    return Subject(Level.CONTAINER, id, "s1", "u1", "team", "web", name)


def sandbox() -> Subject:
    return Subject(Level.POD, "s1", "", "u1", "team", "web")


def classes(subject: Subject, holders: ClassHolders | None = None, **annotations: str) -> dict[str, str] | str:
    keys = {"pod": POD, "main": MAIN, "other": "qos.kubeqos.io/container.other"}
    asked = {keys.get(name, name): value for name, value in annotations.items()}
    table = ClassTable(OFFERS, holders, wishes)
    wanted = table.asked(subject, asked)
    found = wanted if isinstance(wanted, Denied) else table.reserve(subject.id, subject, wanted)
    return found.message if isinstance(found, Denied) else {n: each.class_name for n, each in found.classes.items()}


class Taken:
    """What becomes of those that run already."""

    def __init__(self, found: list[Found]) -> None:
        table = ClassTable(OFFERS, asks=wishes)
        effects = table.synchronize(found)
        assert table.validate() == []
        self.holders = table.holders
        self.broken = [(one.subject, one.reason) for one in effects if isinstance(one, Missed)]


def test_a_container_gets_its_own_wish_then_its_pods_then_the_default() -> None:
    assert classes(container()) == {"rdt": "bronze", "ulimits": ""}
    assert classes(container(), pod="rdt=gold") == {"rdt": "gold", "ulimits": ""}
    assert classes(container(), pod="rdt=gold", main="rdt=bronze,ulimits=few") == {"rdt": "bronze", "ulimits": "few"}
    assert classes(container(), other="rdt=gold") == {"rdt": "bronze", "ulimits": ""}
    assert classes(container(), **{"rdt.resources.beta.kubernetes.io/pod": "gold"}) == {"rdt": "gold", "ulimits": ""}


def test_a_sandbox_gets_the_classes_of_whole_pods() -> None:
    assert classes(sandbox(), pod="network=fast,rdt=gold") == {"network": "fast"}


def test_what_cannot_be_had_is_refused_with_the_reason() -> None:
    assert "unavailable class 'purple' of QoS resource 'rdt'" in classes(container(), main="rdt=purple")
    assert "unavailable pod QoS resource type 'disk'" in classes(sandbox(), pod="disk=fast")
    assert "unavailable container QoS resource type 'disk'" in classes(container(), main="disk=fast")
    assert "not of the form" in classes(container(), main="gold")
    full = ClassHolders()
    full.put("c0", Holder(container("c0"), {"rdt": Assignment("gold", explicit=True)}))
    assert "insufficient class 'gold'" in classes(container(), full, main="rdt=gold")


def test_those_that_we_made_keep_what_they_were_given() -> None:
    given = {"rdt": Assignment("gold", explicit=True), "ulimits": Assignment("few", explicit=True)}
    found = Found(container(), {MAIN: "rdt=gold,ulimits=few"}, noted({MARK: mark(given)}, container()))
    taken = Taken([found])
    [(_, holder)] = list(taken.holders)
    assert holder.classes == given
    assert not taken.broken


def test_those_that_started_without_us_enter_what_can_be_entered_and_are_reported_otherwise() -> None:
    taken = Taken([Found(container(), {MAIN: "rdt=gold"}), Found(container("c2"), {MAIN: "ulimits=few"})])
    assert [key for key, _ in taken.holders] == ["c1"]
    [(subject, reason)] = taken.broken
    assert subject.id == "c2"
    assert "started without its class ulimits=few" in reason


def test_room_belongs_to_the_oldest() -> None:
    both = [Found(container(f"c{n}"), {MAIN: "rdt=gold"}, created_at=9 - n) for n in (1, 2)]
    taken = Taken(both)
    assert [key for key, _ in taken.holders] == ["c2"]
    assert "insufficient class 'gold'" in taken.broken[0][1]
    ended = [Found(container("c1"), {MAIN: "rdt=gold"}, alive=False), both[1]]
    assert not Taken(ended).broken


def test_a_mark_that_cannot_be_read_is_as_none() -> None:
    taken = Taken([Found(container(), {}, noted({MARK: "[]"}, container()))])
    assert [holder.classes["rdt"].class_name for _, holder in taken.holders] == ["bronze"]
