"""Printing: tables as kubectl prints them, JSON and YAML; data to stdout, messages to stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from kubeqos.codec import encode_json, encode_yaml

_GAP = "   "


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, three spaces between them, none after the last."""
    cells = [[header.upper() for header in headers]] + [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        padded = [value.ljust(width) for value, width in zip(row, widths, strict=True)]
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    return "<none>" if value is None or value == "" else str(value)


def emit(value: Any, form: str) -> None:
    """Print a value as JSON or YAML."""
    plain = msgspec.to_builtins(value, enc_hook=str)
    if form == "json":
        click.echo(msgspec.json.format(encode_json(plain), indent=2).decode())
    else:
        click.echo(encode_yaml(plain), nl=False)


output_option = click.option(
    "-o", "--output", "form", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)
file_option = click.option(
    "-f", "--filename", "files", multiple=True, required=True, help="File, directory or - for standard input."
)
wide_output_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
)
