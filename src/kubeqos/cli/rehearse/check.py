"""`kubeqos check`: what an API server would answer to a set of manifests, offline."""

from __future__ import annotations

import click

from kubeqos.cli.output import emit, emit_names, file_option, is_data, table, wide_output_option
from kubeqos.errors import InputError
from kubeqos.gates import FeatureGates
from kubeqos.manifests import Manifest, read
from kubeqos.rules.offline import Answer, Offline


@click.command(name="check")
@file_option
@click.option("-n", "--namespace", default="default", show_default=True, help="For objects that name none.")
@click.option(
    "--feature-gates",
    default="QOSResources=true",
    show_default=True,
    help="Gates of the server that is imagined.",
)
@wide_output_option
def command(files: tuple[str, ...], namespace: str, feature_gates: str, form: str) -> None:
    """Apply manifests in order to an empty server that exists only here, and print its answers.

    Quotas, limit ranges, priority classes and pods act on each other as they would in a cluster. The exit code is 1
    when anything is refused.
    """
    server = Offline(FeatureGates.parse(feature_gates))
    answers = [(manifest, _apply(server, manifest, namespace)) for manifest in read(files)]
    if is_data(form):
        emit([_plain(manifest, answer) for manifest, answer in answers], form)
    elif form == "name":
        emit_names(f"{answer.kind.lower()}/{answer.name}" for _, answer in answers if answer.ok)
    else:
        rows = [[manifest.source, answer.line] for manifest, answer in answers]
        click.echo(table(["source", "answer"], rows))
        for manifest, answer in answers:
            for warning in answer.warnings:
                click.echo(f"Warning: {manifest.source}: {warning}", err=True)
    if not all(answer.ok for _, answer in answers):
        raise click.exceptions.Exit(1)


def _apply(server: Offline, manifest: Manifest, namespace: str) -> Answer:
    raw = manifest.raw
    metadata = raw.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise InputError("metadata must be an object", where=manifest.source)
    if not isinstance(raw.get("apiVersion"), str):
        raise InputError("apiVersion is missing", where=f"{manifest.source}: {manifest.kind} {manifest.name!r}")
    return server.apply(raw, namespace=namespace)


def _plain(manifest: Manifest, answer: Answer) -> dict[str, object]:
    return {
        "source": manifest.source,
        "kind": answer.kind,
        "name": answer.name,
        "ok": answer.ok,
        "answer": answer.line,
        "warnings": list(answer.warnings),
    }
