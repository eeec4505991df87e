"""`kubeqos bench`: the figures of this machine, beside their targets. The benchmarks lie in the source tree."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from kubeqos.errors import InputError

_ROOT = Path(__file__).parents[3]


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listed", is_flag=True, help="Only tell which there are.")
def command(names: tuple[str, ...], listed: bool) -> None:
    """Measure this machine: all benchmarks, or those that are named. All of them take several minutes."""
    if not (_ROOT / "bench" / "__main__.py").is_file():
        raise InputError(
            "the benchmarks are not installed with the program", remedy="clone the sources and run `make bench` there"
        )
    sys.path.insert(0, str(_ROOT))
    found = importlib.import_module("bench.__main__")
    if listed:
        from kubeqos.cli.output import table

        click.echo(table(["name", "measures"], found.described().items()))
        return
    unknown = [name for name in names if name not in found.known()]
    if unknown:
        raise InputError(f"there is no benchmark {unknown[0]!r}", remedy=f"there are: {', '.join(found.known())}")
    found.main(list(names))
