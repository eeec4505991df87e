"""Printing: tables as kubectl prints them, JSON and YAML, templates and columns; data to stdout, messages to stderr.

Colour is for a person at a terminal: there is none in a pipe, with `NO_COLOR` set or on a dumb terminal, and
no text needs it to be understood.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import indent
from typing import Any, TypeVar

import click
import msgspec

from kubeqos.codec import encode_json, encode_yaml

_F = TypeVar("_F", bound=Callable[..., Any])
_GAP, _NARROW_GAP = "   ", "  "
_PROSE = 24
"""Prose is not made narrower than this while something else can be."""
_SEAM = re.compile(r"(?<=[/,=:_])(?=.)|(?<=[A-Za-z]-)(?=.)|(?<=[-.])(?=[A-Za-z])|(?<=[a-z0-9])(?=[A-Z])")
"""Where a name may be broken: after its separators and before its humps, so that `KubeletHas|Sufficient|Memory` is read
as words and numbers stay whole."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_JSONPATH, _COLUMNS = "jsonpath=", "custom-columns="
LINE = 80
"""Columns where nobody says how many there are."""


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, three spaces between them, none after the last.

    Where a person looks and the line is too short, cells are broken over several lines, prose before names; in a pipe
    every row stays one line.
    """
    cells = [[header.upper() for header in headers]] + [[_cell(value) for value in row] for row in rows]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(headers))]
    gap = _GAP
    if sum(widths) + len(gap) * (len(widths) - 1) > (most := columns()) and looked_at():
        gap = _NARROW_GAP
        widths = _narrowed(cells, widths, most - len(gap) * (len(widths) - 1))
        cells = [list(line) for row in cells for line in _broken(row, widths)]
    lines = []
    for row in cells:
        padded = [value + " " * (width - _width(value)) for value, width in zip(row, widths, strict=True)]
        lines.append(gap.join(padded).rstrip())
    return "\n".join(lines)


def looked_at() -> bool:
    """Whether a line has an end: on a terminal, and wherever somebody has said how wide it is."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def _narrowed(cells: list[list[str]], widths: list[int], room: int) -> list[int]:
    """Widths that fit into the room, as far as the words of headers let them: columns of prose give way first, then
    names as far as their parts stay whole, and at last everything."""
    least = [max(map(len, header.split() or [""])) for header in cells[0]]
    prose = [any(" " in row[column] for row in cells[1:]) for column in range(len(widths))]
    parts = [
        max((len(part) for row in cells[1:] for word in row[column].split() for part in _SEAM.split(word)), default=0)
        for column in range(len(widths))
    ]
    found = list(widths)
    for floors, may in (
        ([max(_PROSE, part) for part in parts], prose),
        (parts, [True] * len(widths)),
        ([0] * len(widths), [True] * len(widths)),
    ):
        while sum(found) > room:
            open_ = [i for i, wide in enumerate(found) if may[i] and wide > max(least[i], floors[i])]
            if not open_:
                break
            widest = max(open_, key=lambda i: found[i])
            found[widest] -= 1
    return found


def _broken(row: list[str], widths: list[int]) -> Iterator[tuple[str, ...]]:
    """A row as the lines that it takes; what is coloured is never broken."""
    parts = [
        [text] if _width(text) <= width or "\x1b" in text else _wrapped(text, max(1, width))
        for text, width in zip(row, widths, strict=True)
    ]
    return zip_longest(*parts, fillvalue="")


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most this width: whole words, else whole parts of a name, and only what has no seam is cut."""
    lines = [""]
    for word in text.split():
        space = " " if lines[-1] else ""
        if len(lines[-1]) + len(space) + len(word) <= width:
            lines[-1] += space + word
            continue
        for part in [word] if len(word) <= width else _SEAM.split(word):
            if len(lines[-1]) + len(space) + len(part) <= width:
                lines[-1] += space + part
            else:
                lines += [part[start : start + width] for start in range(0, len(part), width)]
            space = ""
    return lines if lines[0] else lines[1:] or [""]


def _cell(value: object) -> str:
    return "<none>" if value is None or value == "" else str(value)


def _width(text: str) -> int:
    """How many columns a text takes on the screen."""
    return len(_ESCAPES.sub("", text)) if "\x1b" in text else len(text)


def is_data(form: str) -> bool:
    """Whether what is asked for is the data itself, to be printed by `emit`."""
    return form in ("json", "yaml") or form.startswith((_JSONPATH, _COLUMNS))


def emit(value: Any, form: str) -> None:
    """Print a value as JSON or YAML, or what a template or columns pick from it."""
    if form.startswith(_JSONPATH):
        from kubeqos.cli.jsonpath import filled

        click.echo(filled(form.removeprefix(_JSONPATH), msgspec.to_builtins(value, enc_hook=str)), nl=False)
    elif form.startswith(_COLUMNS):
        click.echo(_picked(msgspec.to_builtins(value, enc_hook=str), form.removeprefix(_COLUMNS)))
    else:
        click.echo(_encoded(value, form), nl=form == "json")


def _picked(value: Any, spec: str) -> str:
    """A table of columns that were asked for; a row for each element of a list, or of `items`."""
    from kubeqos.cli.jsonpath import columns_of, found, shown

    wanted = columns_of(spec)
    rows = value.get("items", value) if isinstance(value, dict) else value
    lines = [
        [",".join(map(shown, found(path, row))) for _, path in wanted]
        for row in (rows if isinstance(rows, list) else [value])
    ]
    return table([header for header, _ in wanted], lines)


def emit_begin(head: dict[str, Any], form: str, place: int | None = None) -> None:
    """Print the first members of an object, at once; `emit_rest` prints the others when they are known.

    `place` is that of an object in a list; without one it stands alone.
    """
    text = _encoded(head, form).removesuffix("\n}") + "," if form == "json" else _encoded(head, form)
    if place is not None and form == "json":
        text = ("[\n" if place == 0 else ",\n") + indent(text, "  ")
    elif place is not None:
        text = "- " + indent(text, "  ").removeprefix("  ")
    click.echo(text, nl=False)
    sys.stdout.flush()


def emit_rest(rest: dict[str, Any], form: str, place: int | None = None, *, last: bool = True) -> None:
    """Print the members of an object that `emit_begin` has begun, and its end; after the last one that of the list."""
    text = _encoded(rest, form).removeprefix("{")
    if place is not None:
        text = indent(text, "  ") + ("\n]" if last and form == "json" else "")
    click.echo(text, nl=form == "json" and last)


def _encoded(value: Any, form: str) -> str:
    plain = msgspec.to_builtins(value, enc_hook=str)
    return msgspec.json.format(encode_json(plain), indent=2).decode() if form == "json" else encode_yaml(plain)


def emit_names(names: Iterable[str]) -> None:
    """Print one name per line, for the next command; nothing where there is none."""
    for name in names:
        click.echo(name)


def coloured() -> bool:
    """Whether colour helps: a terminal, and nobody asked for none (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str) -> str:
    """The text in a colour, where colour helps."""
    return click.style(text, fg=colour) if coloured() else text


def columns() -> int:
    """How wide a line may be: `COLUMNS`, else the terminal's width, else 80."""
    return shutil.get_terminal_size((LINE, 24)).columns


class _Form(click.Choice[str]):
    """One of a few words, or a template or columns with what follows their `=`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and value.startswith((_JSONPATH, _COLUMNS)):
            return value
        return super().convert(value, param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join((*self.choices, f'{_JSONPATH}…', f'{_COLUMNS}…'))}]"


def _forms(*forms: str, templates: bool = False) -> Callable[[_F], _F]:
    return click.option(
        "-o",
        "--output",
        "form",
        type=_Form(forms) if templates else click.Choice(forms),
        default="table",
        show_default=True,
        help="How to print.",
    )


output_option = _forms("table", "json", "yaml")
wide_output_option = _forms("table", "wide", "json", "yaml", "name", templates=True)
"""As kubectl has them, where objects are shown; `wide` is the table where there is no more to say."""
picture_output_option = _forms("table", "wide", "json", "yaml", "name", "svg", "png", templates=True)
"""Beside these, a drawing."""
file_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    shell_complete=lambda _context, _parameter, _incomplete: [_file_item()],
    help="File, directory or - for standard input.",
)


def _file_item() -> Any:
    from click.shell_completion import CompletionItem

    return CompletionItem("", type="file")
