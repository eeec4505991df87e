"""From a file of classes (`classes.yaml`) to the providers behind them. Called by the relay and by agents."""

from __future__ import annotations

from pathlib import Path

from kubeqos.cri.providers.catalog import Catalog, LocalMachine, build, nobody
from kubeqos.cri.providers.config import parse_classes
from kubeqos.cri.providers.remote import connect
from kubeqos.cri.providers.retiring import Used
from kubeqos.errors import ConfigurationError


async def read_catalog(
    path: Path, machine: LocalMachine, previous: Catalog | None = None, used: Used = nobody
) -> Catalog:
    """Every provider that the file asks for, checked. Changes nothing on the machine."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the class configuration: {error}", where=str(path)) from error
    return await build(parse_classes(text, str(path), machine.host.version), machine, connect, previous, used)
