"""`kubeqos relay-hook`: what a container runtime is given so that no container runs outside its class."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from kubeqos.cli.output import emit
from kubeqos.cli.parts.relay import socket_path


@click.command("relay-hook")
@click.option("--listen", required=True, metavar="ENDPOINT", help="The --listen of the relay that the hook asks.")
@click.option(
    "--for",
    "runtime",
    type=click.Choice(["containerd", "cri-o"]),
    default="containerd",
    show_default=True,
    help="Whose form: a base_runtime_spec for containerd, a file for CRI-O's hooks_dir.",
)
@click.option(
    "--spec", type=click.File("rb"), default="-", help="The OCI spec to add the hook to, from `ctr oci spec` [stdin]."
)
def command(listen: str, runtime: str, spec: BinaryIO) -> None:
    """Print the OCI hook that holds each container back until its classes are enforced.

    For containerd: ctr oci spec | kubeqos relay-hook --listen unix:///run/kubeqos/cri.sock > /etc/containerd/qos.json,
    and base_runtime_spec = "/etc/containerd/qos.json" in the runtime's section of containerd's CRI configuration.
    """
    from kubeqos.cri.relay.gate import base_spec, hook_file

    path: Path = socket_path(listen, "--listen")
    made = hook_file(path) if runtime == "cri-o" else base_spec(spec.read(), path, spec.name)
    emit(made, "json")
