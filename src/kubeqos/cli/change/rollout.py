"""`kubeqos rollout undo`: a deployment back to an earlier revision, with everything that its template said.

`kubectl rollout undo` reads the earlier template through compiled types and loses the classes in it; on a server that
does not restore them (`rules.qos.restoredclasses`) they are gone. The choice of the revision
and the words are kubectl's.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from kubeqos.cli.connection import Target, asks
from kubeqos.codec import JsonObject
from kubeqos.errors import InputError, KubeqosError
from kubeqos.model.annotations.wellknown import REVISION_ANNOTATION, TEMPLATE_HASH_LABEL

_APPS = "/apis/apps/v1"
_NAMES = ("deployment", "deployments", "deploy", "deployment.apps", "deployments.apps")
_KEPT = (
    "kubectl.kubernetes.io/last-applied-configuration", REVISION_ANNOTATION,
    "deployment.kubernetes.io/revision-history", "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas", "deprecated.deployment.rollback.to",
)  # fmt: skip
"""Annotations that say how the deployment is, not what its template is about: they stay in a rollback."""


class CannotRollBack(KubeqosError):
    """There is nothing to go back to, or the deployment cannot be changed now."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The revision to go back to, and the patch that does; no patch where the deployment is there already."""

    revision: int
    patch: list[JsonObject]


@click.group("rollout")
def command() -> None:
    """Roll a deployment back to an earlier revision, classes included."""


@command.command("undo")
@asks("namespace")
@click.option("--to-revision", default=0, metavar="N", help="The revision to go back to; the one before by default.")
@click.option("--dry-run", is_flag=True, help="Let the server decide, and change nothing.")
@click.argument("words", nargs=-1, required=True, metavar="deployment NAME | deployment/NAME")
def undo(target: Target, to_revision: int, dry_run: bool, words: tuple[str, ...]) -> None:
    """Go back to the previous revision of a deployment, or to revision N."""
    parts = words[0].split("/") if len(words) == 1 else words
    if len(parts) != 2 or parts[0] not in _NAMES:
        raise InputError(f"not a deployment: {' '.join(words)}", remedy="say deployment/NAME")
    name = parts[1]
    path = target.path("deployments", name, group=_APPS)
    deployment = target.api.get(path)
    back = rollback(deployment, target.api.items(target.path("replicasets", group=_APPS)), to_revision)
    if not back.patch:
        already = f"current template already matches revision {back.revision}"
        click.echo(f"deployment.apps/{name} skipped rollback ({already})")
        return
    query = {"dryRun": "All"} if dry_run else {}
    _, warnings = target.api.write("PATCH", path, back.patch, "application/json-patch+json", **query)
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    tried = " (server dry run)" if dry_run else ""
    click.echo(f"deployment.apps/{name} rolled back to revision {back.revision}{tried}")


def rollback(deployment: JsonObject, replica_sets: list[JsonObject], to_revision: int) -> Rollback:
    """What takes a deployment back, as kubectl chooses it: to a revision, or (0) to the one before the latest."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    if spec.get("paused"):
        why = "cannot rollback a paused deployment"
        raise CannotRollBack(why, remedy=f"kubectl rollout resume deployment/{metadata['name']} first")
    owned = {
        revision: each
        for each in replica_sets
        if any(owner.get("uid") == metadata["uid"] for owner in each["metadata"].get("ownerReferences") or ())
        and (revision := _revision(each))
    }
    if to_revision and to_revision not in owned:
        remedy = f"kubectl rollout history deployment/{metadata['name']} lists those there are"
        raise CannotRollBack(f"unable to find the specified revision {to_revision} in history", remedy=remedy)
    if not to_revision and len(owned) < 2:
        raise CannotRollBack(f"no rollout history found for deployment {metadata['name']!r}")
    revision = to_revision or sorted(owned)[-2]
    earlier = owned[revision]
    template = _without_hash(earlier["spec"]["template"])
    if template == _without_hash(spec["template"]):
        return Rollback(revision, [])
    own, then = metadata.get("annotations") or {}, earlier["metadata"].get("annotations") or {}
    notes = {k: v for k, v in own.items() if k in _KEPT} | {k: v for k, v in then.items() if k not in _KEPT}
    return Rollback(
        revision,
        [
            # In two parts: a template that is replaced whole may come from a client that has lost its classes.
            {"op": "replace", "path": "/spec/template/spec", "value": template["spec"]},
            {"op": "add", "path": "/spec/template/metadata", "value": template["metadata"]},
            {"op": "replace" if "annotations" in metadata else "add", "path": "/metadata/annotations", "value": notes},
        ],
    )


def _revision(replica_set: JsonObject) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION, "")
    return int(text) if text.isdigit() else 0


def _without_hash(template: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != TEMPLATE_HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}
