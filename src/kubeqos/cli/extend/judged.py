"""How conformance commands tell what a kit found: a table, or its rows; the exit code says whether all is well."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from kubeqos.cli.output import emit, table

if TYPE_CHECKING:
    from kubeqos.plugins.examined import Check

_VERDICTS = {True: "ok", False: "FAILED", None: "n/a"}


def tell(report: Iterable[Check], form: str) -> None:
    """Print what was found, and end with 1 if something is wrong."""
    rows = [{"check": one.name, "result": _VERDICTS[one.passed], "detail": one.detail} for one in report]
    if form == "table":
        click.echo(table(("check", "result", "detail"), [list(row.values()) for row in rows]))
    else:
        emit(rows, form)
    if any(row["result"] == _VERDICTS[False] for row in rows):
        sys.exit(1)
