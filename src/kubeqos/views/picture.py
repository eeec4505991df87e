"""A drawing as a value: boxes, lines and words, written as SVG here and as pixels by `cli.inspect.pixels`. Pure.

Used by `kubeqos map -o svg|png` and by the diagrams of the documentation. A picture brings its own paper, so it reads
the same on a light and on a dark page, and it has no script and no font of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]
TEXT, FAINT, LINE, PAPER, PLATE, FREE = "#1b2733", "#5b6875", "#9aa7b3", "#ffffff", "#f4f6f8", "#e3e9ee"
OWNERS = ("#0072b2", "#a63c00", "#00664a", "#8f3f6c", "#7a5200", "#1f5f86", "#5b2a86", "#5e4a12")
"""Colours of owners, as the dashboard has them on light paper: each is dark enough for white letters."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str = PLATE
    stroke: str = ""
    radius: float = 0
    told: str = ""
    """What a pointer over it shows."""


@dataclass(frozen=True, slots=True)
class Path:
    """A line through points; with `arrow`, its end points somewhere."""

    points: tuple[tuple[float, float], ...]
    colour: str = LINE
    width: float = 1.5
    arrow: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """Words; `y` is their base line."""

    x: float
    y: float
    text: str
    size: float = 13
    colour: str = TEXT
    bold: bool = False
    anchor: Anchor = "start"


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, in the order in which it is laid on the paper."""

    width: float
    height: float
    title: str
    parts: tuple[Box | Path | Label, ...]


def svg(picture: Picture) -> str:
    """The picture as a document that scales with its page."""
    size = f'viewBox="0 0 {picture.width:g} {picture.height:g}" width="{picture.width:g}" height="{picture.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">',
        f"<title>{escape(picture.title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{FAINT}"/></marker></defs>',
        f'<rect width="{picture.width:g}" height="{picture.height:g}" rx="6" fill="{PAPER}"/>',
    ]
    return "\n".join([*lines, *map(_element, picture.parts), "</svg>"]) + "\n"


def _element(part: Box | Path | Label) -> str:
    match part:
        case Box():
            shape = (
                f'x="{part.x:g}" y="{part.y:g}" width="{part.width:g}" height="{part.height:g}" rx="{part.radius:g}"'
            )
            told = f"><title>{escape(part.told)}</title></rect>" if part.told else "/>"
            stroke = f' stroke="{part.stroke}"' if part.stroke else ""
            return f'<rect {shape} fill="{part.fill}"{stroke}{told}'
        case Path():
            points = " ".join(f"{x:g},{y:g}" for x, y in part.points)
            head = ' marker-end="url(#head)"' if part.arrow else ""
            drawn = f'fill="none" stroke="{part.colour}" stroke-width="{part.width:g}"'
            return f'<polyline points="{points}" {drawn}{head}/>'
        case Label():
            style = f'font-size="{part.size:g}" fill="{part.colour}" text-anchor="{part.anchor}"'
            weight = ' font-weight="bold"' if part.bold else ""
            return f'<text x="{part.x:g}" y="{part.y:g}" {style}{weight}>{escape(part.text)}</text>'
