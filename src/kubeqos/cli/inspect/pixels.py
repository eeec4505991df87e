"""A picture as PNG, for places that take no SVG: chats, slides.

Needs Pillow, which nothing else here does. It has a font of its own, so the result is the same where there is none.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from kubeqos.errors import InputError
from kubeqos.views.picture import FAINT, PAPER, Box, Label, Path, Picture

if TYPE_CHECKING:
    from PIL import ImageDraw

SCALE = 2
"""Pixels per unit: sharp on today's screens."""


def png(picture: Picture) -> bytes:
    """Draw it."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise InputError(
            "a PNG needs Pillow, which is not installed",
            remedy="pip install 'kubeqos[png]', or take -o svg, which needs nothing",
        ) from error
    image = Image.new("RGB", (round(picture.width * SCALE), round(picture.height * SCALE)), PAPER)
    pen = ImageDraw.Draw(image)
    for part in picture.parts:
        _draw(pen, part)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _draw(pen: ImageDraw.ImageDraw, part: Box | Path | Label) -> None:
    match part:
        case Box():
            corners = [part.x * SCALE, part.y * SCALE, (part.x + part.width) * SCALE, (part.y + part.height) * SCALE]
            pen.rounded_rectangle(corners, part.radius * SCALE, part.fill, part.stroke or None, SCALE)
        case Path():
            points = [(x * SCALE, y * SCALE) for x, y in part.points]
            pen.line(points, part.colour, round(part.width * SCALE))
            if part.arrow:
                x, y = points[-1]
                pen.ellipse([x - 3 * SCALE, y - 3 * SCALE, x + 3 * SCALE, y + 3 * SCALE], FAINT)
        case Label():
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[part.anchor]
            where, weight = (part.x * SCALE, part.y * SCALE), SCALE // 2 if part.bold else 0
            pen.text(where, part.text, part.colour, _font(part.size), anchor, stroke_width=weight and 0.6)


def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size * SCALE)
