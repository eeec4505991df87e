"""Draws the house from its code: rooms, inner rooms, what the contracts allow and what is really imported.

    python -m tools.rooms            write docs/rooms.svg and the lists in docs/architecture.md
    python -m tools.rooms --check    say what is no longer as the code is

The floors and the inner layers come from the contracts in pyproject.toml, the sentences from the packages' prologues,
the arrows from the imports. `make check` runs the check, so that the picture never shows a house that was.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kubeqos"
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "rooms.svg"
ROOMS, INSIDE, CONTRACTS = "rooms", "inside", "contracts"

Arrows = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Room:
    """A package directly below ours."""

    name: str
    about: str
    """The first sentence of its prologue."""
    inner: tuple[str, ...]


@dataclass(frozen=True)
class House:
    """Everything that is drawn."""

    rooms: tuple[Room, ...]
    """From the top floor down."""
    ground: tuple[str, ...]
    """Modules that every room may use."""
    imports: Arrows
    closed: Arrows
    """What the order of floors would allow and another contract does not."""
    inside: dict[str, tuple[tuple[str, ...], ...]]
    """Layers inside a room, from the top down."""
    inner_imports: dict[str, Arrows]
    contracts: tuple[str, ...]
    pure: frozenset[str]
    """Rooms that a contract keeps from I/O."""


# -- reading -------------------------------------------------------------------------------------------------------


def read() -> House:
    """The house as code and contracts have it now."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layered = {contract["containers"][0]: contract for contract in contracts if contract["type"] == "layers"}
    floors = [name for layer in layered["kubeqos"]["layers"] for name in _siblings(layer)]
    edges = list(_edges())
    inside = {
        container.removeprefix("kubeqos."): tuple(tuple(_siblings(layer)) for layer in contract["layers"])
        for container, contract in layered.items()
        if container != "kubeqos"
    }
    return House(
        rooms=tuple(_room(name) for name in floors),
        ground=tuple(sorted(layered["kubeqos"]["exhaustive_ignores"])),
        imports=frozenset((one[0], other[0]) for one, other in edges if one[0] != other[0] and other[0] in floors),
        closed=frozenset(pair for contract in contracts for pair in _closed(contract, floors)),
        inside=inside,
        inner_imports={room: _inner(edges, room, layers) for room, layers in inside.items()},
        contracts=tuple(contract["name"] for contract in contracts),
        pure=frozenset(
            module.removeprefix("kubeqos.")
            for contract in contracts
            if "socket" in contract.get("forbidden_modules", ())
            for module in contract["source_modules"]
        ),
    )


def _closed(contract: dict[str, Any], floors: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of rooms that a contract keeps apart."""

    def rooms(key: str) -> list[str]:
        named = (module.removeprefix("kubeqos.") for module in contract.get(key, ()))
        return [name for name in named if name in floors]

    if contract["type"] == "independence":
        yield from ((one, other) for one in rooms("modules") for other in rooms("modules") if one != other)
    elif contract["type"] == "forbidden":
        yield from ((one, other) for one in rooms("source_modules") for other in rooms("forbidden_modules"))
    elif contract["type"] == "protected":
        strangers = set(floors) - set(rooms("allowed_importers"))
        yield from ((one, other) for one in strangers for other in rooms("protected_modules"))


def _siblings(layer: str) -> list[str]:
    return [name.strip() for name in layer.replace("|", ":").split(":")]


def _room(name: str) -> Room:
    folder = SOURCE / name
    inner = sorted(path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name != "proto")
    return Room(name, _about(folder / "__init__.py"), tuple(inner))


def _about(path: Path) -> str:
    prologue = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(prologue.partition("\n\n")[0].split())


def _inner(edges: list[tuple[list[str], list[str]]], room: str, layers: tuple[tuple[str, ...], ...]) -> Arrows:
    known = {name for layer in layers for name in layer}
    return frozenset(
        (one[1], other[1])
        for one, other in edges
        if one[0] == other[0] == room and one[1:2] != other[1:2] and {*one[1:2], *other[1:2]} <= known and other[1:]
    )


def _edges() -> Iterator[tuple[list[str], list[str]]]:
    """Who imports whom, as paths below our package."""
    for path in sorted(SOURCE.rglob("*.py")):
        importer = list(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kubeqos."):
                yield importer, _module((node.module or "").split(".")[1:], node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "kubeqos":
                yield from ((importer, [alias.name]) for alias in node.names)
            elif isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
                yield from ((importer, name[1:]) for name in names if name[0] == "kubeqos" and len(name) > 1)


def _module(path: list[str], names: list[ast.alias]) -> list[str]:
    """`from kubeqos.node import agent` names a module of a package, not the package."""
    inner = SOURCE.joinpath(*path, names[0].name)
    return [*path, names[0].name] if inner.with_suffix(".py").exists() or inner.is_dir() else path


# -- writing: text -------------------------------------------------------------------------------------------------


def lists(house: House) -> dict[str, str]:
    """The parts of the page that this tool writes."""
    rows = [
        f"| `{room.name}` | {room.about} | {', '.join(room.inner) or '–'} | {_uses(house, room.name)} |"
        for room in house.rooms
    ]
    ground = ", ".join(f"`{name}`" for name in house.ground)
    table = ["| room | what lives there | inner rooms | imports |", "|---|---|---|---|", *rows]
    layers = [_layers(house, room) for room in house.inside]
    return {
        ROOMS: "\n".join([*table, "", f"Below them all, for everybody: {ground}."]),
        INSIDE: "\n\n".join(layers),
        CONTRACTS: "\n".join(f"{number}. {name}" for number, name in enumerate(house.contracts, 1)),
    }


def _uses(house: House, room: str) -> str:
    return ", ".join(other.name for other in house.rooms if (room, other.name) in house.imports) or "–"


def _layers(house: House, room: str) -> str:
    drawn = "\n   ↓\n".join("   ".join(layer) for layer in house.inside[room])
    return f"`{room}`, from the top:\n\n```text\n{drawn}\n```"


def page(house: House, text: str) -> str:
    """The page with the lists as they are now."""
    for name, content in lists(house).items():
        begin, end = f"<!-- {name}: written by tools/rooms.py -->", f"<!-- end of {name} -->"
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{PAGE.name} has no place for {name}: add {begin} and {end}")
        text = f"{head}{begin}\n\n{content}\n\n{end}{tail}"
    return text


# -- writing: the picture ------------------------------------------------------------------------------------------

ROW, LEFT, BOX, CELL, TOP = 30, 16, 590, 24, 64
FONT = """
text { font: 13px system-ui, sans-serif } .small { font-size: 11px } .title { font-size: 15px; font-weight: 600 }
.arrow { stroke-width: 1.2; fill: none; marker-end: url(#tip) }
"""
LIGHT = {
    "ink": "#1f2328", "soft": "#59636e", "paper": "#ffffff", "wall": "#d1d9e0", "room": "#f6f8fa", "chip": "#ddf4ff",
    "dot": "#0969da", "may": "#d1d9e0", "pure": "#dafbe1",
}  # fmt: skip
DARK = {
    "ink": "#f0f6fc", "soft": "#9198a1", "paper": "#0d1117", "wall": "#3d444d", "room": "#151b23", "chip": "#12304f",
    "dot": "#58a6ff", "may": "#3d444d", "pure": "#12351f",
}  # fmt: skip


def _colours(of: dict[str, str]) -> str:
    """Rules for one background. Plain colours, since not every viewer of pictures knows variables."""
    filled = "".join(
        f" .{name} {{ fill: {of[name]} }}" for name in ("soft", "paper", "room", "chip", "dot", "may", "pure")
    )
    lines = (
        f" .room, .pure {{ stroke: {of['wall']} }} .arrow {{ stroke: {of['soft']} }} #tip path {{ fill: {of['soft']} }}"
    )
    return f"text {{ fill: {of['ink']} }}{filled}{lines}"


def svg(house: House) -> str:
    """The picture: floors with their inner rooms and who imports whom; below, the layers inside rooms."""
    matrix = LEFT + BOX + 20
    width = matrix + CELL * len(house.rooms) + LEFT
    inner, height = _insides(house, TOP + (len(house.rooms) + 3) * ROW, width)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<title>The rooms of kubeqos: a lower room never imports a higher one</title>",
            f"<style>{FONT}{_colours(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {_colours(DARK)} }}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *_floors(house),
            *_matrix(house, matrix),
            *inner,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, style: str = "", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}" {more}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{style}"/>'


def _floors(house: House) -> Iterator[str]:
    """One row per room, its inner rooms as chips, and the ground floor."""
    yield _text(LEFT, 28, "Rooms and inner rooms", "title")
    yield _text(LEFT, 48, "A lower room never imports a higher one. Green: decides, and does no I/O.", "small soft")
    for row, room in enumerate(house.rooms):
        y = TOP + row * ROW
        yield _box(LEFT, y, BOX, ROW - 4, "pure" if room.name in house.pure else "room")
        yield _text(LEFT + 8, y + 18, room.name)
        x = LEFT + 92.0
        for name in room.inner:
            wide = 6.1 * len(name) + 10
            yield _box(x, y + 4, wide, ROW - 12, "chip")
            yield _text(x + 5, y + 17, name, "small")
            x += wide + 4
    y = TOP + len(house.rooms) * ROW
    yield _box(LEFT, y, BOX, ROW - 4, "room")
    yield _text(LEFT + 8, y + 18, "ground floor, for everybody: " + ", ".join(house.ground), "small")


def _matrix(house: House, left: int) -> Iterator[str]:
    """Who imports whom. Rooms stand in the order of floors, so that whatever is allowed lies right of the diagonal."""
    yield _text(left, 28, "Who imports whom", "title")
    yield _text(left, 48, "Row imports column: blue. Allowed and not used: grey. Not allowed: empty.", "small soft")
    bottom = TOP + len(house.rooms) * ROW
    for row, room in enumerate(house.rooms):
        y = TOP + row * ROW + ROW / 2 - 2
        x = left + row * CELL + CELL / 2 + 4
        yield _text(x, bottom + 2, room.name, "small", f'transform="rotate(-90 {x:g} {bottom + 2})" text-anchor="end"')
        for column in range(row + 1, len(house.rooms)):
            pair = (room.name, house.rooms[column].name)
            used = pair in house.imports
            if pair in house.closed and not used:
                continue
            where = f'cx="{left + column * CELL + CELL / 2:g}" cy="{y:g}"'
            yield f'<circle {where} r="{5 if used else 3}" class="{"dot" if used else "may"}"/>'


def _insides(house: House, top: int, width: int) -> tuple[list[str], int]:
    """The layers inside rooms, side by side, each line in the middle of its column; and how far down they reach."""
    out: list[str] = []
    bottom = top
    column = (width - 2 * LEFT) / len(house.inside)
    for index, (room, layers) in enumerate(house.inside.items()):
        left, y = LEFT + index * column, top + 16
        out.append(_text(left, top, f"Inside {room}", "title"))
        places: dict[str, tuple[float, int, float]] = {}
        for layer in layers:
            wide = [6.1 * len(name) + 14 for name in layer]
            x = left + (column - sum(wide) - 4 * len(layer)) / 2
            for name, own in zip(layer, wide, strict=True):
                places[name] = (x, y, own)
                style = "pure" if f"{room}.{name}" in house.pure else "room"
                out += [_box(x, y, own, ROW - 6, style), _text(x + 7, y + 16, name, "small")]
                x += own + 4
            y += ROW + 18
        out += _arrows(layers, places, house.inner_imports[room])
        bottom = max(bottom, y)
    return out, bottom


def _arrows(
    layers: tuple[tuple[str, ...], ...], places: dict[str, tuple[float, int, float]], used: Arrows
) -> Iterator[str]:
    """From each room to the nearest layer below it that it imports from: further ones would only cross the picture."""
    depth = {name: level for level, layer in enumerate(layers) for name in layer}
    for name in places:
        below = [other for one, other in used if one == name and depth[other] > depth[name]]
        nearest = min((depth[other] for other in below), default=0)
        for other in sorted(other for other in below if depth[other] == nearest):
            (x, y, wide), (to_x, to_y, to_wide) = places[name], places[other]
            start, end = f"{x + wide / 2:g} {y + ROW - 6}", f"{to_x + to_wide / 2:g} {to_y - 2}"
            yield f'<path class="arrow" d="M{start} L{end}"/>'


# -- the command ---------------------------------------------------------------------------------------------------


def outdated() -> dict[Path, str]:
    """Files that are not what the code says, with what they should hold."""
    house = read()
    wanted = {PICTURE: svg(house), PAGE: page(house, PAGE.read_text(encoding="utf-8"))}
    return {
        path: text for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: list[str]) -> int:
    stale: dict[Path, Any] = outdated()
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} does not show the house as it is: run python -m tools.rooms")
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
