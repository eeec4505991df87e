"""`kubeqos driver`: the built-in compute drivers, each as a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kubeqos.model.hardware.loading import load_machine
from kubeqos.plugins import DEFAULT_REGISTRY


@click.group("driver")
def command() -> None:
    """Run a built-in compute driver until it is interrupted."""


def machine_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--machine", metavar="NAME|FILE", help="The machine; this one if left out.")(function)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--name", help="The driver's name, as ResourceClasses spell it."),
        click.option(
            "--registry",
            type=click.Path(path_type=Path),
            default=DEFAULT_REGISTRY,
            show_default=True,
            help="The node's plugin folder.",
        ),
        click.option(
            "--manager",
            type=click.Path(path_type=Path),
            help="Socket of the node's CCI manager, to read state back; cci.sock beside the plugin folder if left out.",
        ),
        machine_option,
    ):
        function = option(function)
    return function


@command.command()
@_options
def reference(machine: str | None, name: str | None, registry: Path, manager: Path | None) -> None:
    """Every attribute of KEP-3675."""
    from kubeqos.cci.builtin.reference import Reference

    _serve(Reference, machine, name, registry, manager)


@command.command()
@_options
@click.option(
    "--sysfs", type=click.Path(path_type=Path), default=Path("/sys"), show_default=True, help="Where cores are parked."
)
def power(machine: str | None, name: str | None, registry: Path, manager: Path | None, sysfs: Path) -> None:
    """Dense packing, efficiency cores first, the rest parked."""
    from kubeqos.cci.builtin.power import Power

    _serve(Power, machine, name, registry, manager, sysfs=sysfs)


@command.command()
@_options
def hpc(machine: str | None, name: str | None, registry: Path, manager: Path | None) -> None:
    """Whole NUMA nodes, close together, one thread per core."""
    from kubeqos.cci.builtin.hpc import Hpc

    _serve(Hpc, machine, name, registry, manager)


@command.command()
@_options
@click.option("--script", type=click.Path(path_type=Path), required=True, help="Answers and faults, a JSON list.")
def test(machine: str | None, name: str | None, registry: Path, manager: Path | None, script: Path) -> None:
    """Scripted answers and faults, for testing a node."""
    from kubeqos.cci.builtin.scripted import Scripted

    _serve(Scripted, machine, name, registry, manager, script=script)


def _serve(
    kind: Callable[..., Any], machine: str | None, name: str | None, registry: Path, manager: Path | None, **more: Any
) -> None:
    from kubeqos.cci.sdk import serve

    named = {"name": name} if name else {}
    serve(kind(load_machine(machine), **more, **named), registry, manager)
