"""The picture of the house is drawn from the code, and shows what is there."""

from __future__ import annotations

from xml.etree import ElementTree

from tools import rooms


def test_the_page_and_the_picture_are_what_the_code_says() -> None:
    assert list(rooms.outdated()) == []


def test_the_order_of_floors_is_the_contracts() -> None:
    house = rooms.read()
    order = [room.name for room in house.rooms]
    assert order[-1] == "model"
    assert all(order.index(one) < order.index(other) for one, other in house.imports)


def test_what_a_contract_keeps_apart_is_not_drawn_as_allowed() -> None:
    closed = rooms.read().closed
    assert ("scheduler", "apiserver") in closed
    assert ("web", "model") in closed
    assert ("controllers", "store") in closed
    assert ("apiserver", "store") not in closed


def test_the_picture_is_well_formed_and_names_every_room() -> None:
    house = rooms.read()
    drawn = {element.text for element in ElementTree.fromstring(rooms.svg(house)).iter() if element.text}
    assert {room.name for room in house.rooms} <= drawn
    assert {name for room in house.rooms for name in room.inner} <= drawn
