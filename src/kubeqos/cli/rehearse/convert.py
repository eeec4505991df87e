"""`kubeqos convert`: manifests with the proposals' fields as manifests for a stock cluster, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from kubeqos.cli.output import file_option
from kubeqos.codec import encode_json, encode_yaml
from kubeqos.errors import InputError
from kubeqos.manifests import Manifest, read


@click.command(name="convert")
@file_option
@click.option(
    "--to",
    "form",
    type=click.Choice(["annotations", "fields"]),
    default="annotations",
    show_default=True,
    help="annotations: for any Kubernetes cluster; fields: for an API server that knows the proposals.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(files: tuple[str, ...], form: str, output: str) -> None:
    """Print manifests in the form of the other home.

    With fields, a pod asks in spec.qosResources; with annotations, in qos.kubeqos.io/pod and
    qos.kubeqos.io/container.NAME. Quotas and limit ranges of classes become QOSClassQuota and QOSClassLimits.
    """
    from kubeqos.stock.convert import to_fields, to_stock

    convert = to_stock if form == "annotations" else to_fields
    manifests = read(files)
    for manifest in manifests:
        _try(manifest, convert)
    objects = convert([manifest.raw for manifest in manifests])
    if output == "json":
        click.echo(encode_json({"apiVersion": "v1", "kind": "List", "items": objects}).decode())
    else:
        click.echo("---\n".join(encode_yaml(raw) for raw in objects), nl=False)


def _try(manifest: Manifest, convert: Callable[[Iterable[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Convert one object alone, so that an error can say whose it is."""
    try:
        convert([manifest.raw])
    except InputError as error:
        whose = f"{manifest.source}: {manifest.kind} {manifest.name!r}"
        raise InputError(error.what, where=f"{whose}  {error.where or ''}".rstrip(), remedy=error.remedy) from error
