"""Which stored templates a written one may be a copy of, so that classes its client left out can be restored.

Asked by `chain` for writes of the kinds in COPIED; it looks only at whole templates without classes: of Deployments,
the ReplicaSets of their revisions; of Jobs that were made from a CronJob by hand, the CronJob.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeqos.codec import JsonObject
from kubeqos.model.annotations.wellknown import REVISION_ANNOTATION
from kubeqos.rules.qos.classfields import class_fields
from kubeqos.rules.qos.restoredclasses import Origin
from kubeqos.rules.requests import AdmissionRequest, Lookup, Operation

COPIED = ("Deployment", "Job")
"""Kinds whose templates clients copy."""
_BY_HAND = "cronjob.kubernetes.io/instantiate"


def origins(request: AdmissionRequest, stored: Lookup) -> tuple[Origin, ...]:
    """Templates that this one may be a copy of, the latest first; nothing where no class can be missing."""
    new = request.new
    if not request.whole or request.subresource or new is None:
        return ()
    if class_fields(new):
        return ()
    if request.kind == "Deployment" and request.operation is Operation.UPDATE:
        return tuple(origin for _, origin in sorted(_revisions(new, stored), key=lambda one: -one[0]))
    if request.kind == "Job" and request.operation is Operation.CREATE:
        return tuple(_cron_job(new, stored))
    return ()


def _revisions(deployment: JsonObject, stored: Lookup) -> Iterator[tuple[int, Origin]]:
    metadata = deployment["metadata"]
    for each in stored.all("ReplicaSet", "apps", metadata.get("namespace", "")):
        owners = each["metadata"].get("ownerReferences") or ()
        if any(owner.get("uid") == metadata.get("uid") for owner in owners):
            text = (each["metadata"].get("annotations") or {}).get(REVISION_ANNOTATION, "")
            number = int(text) if text.isdigit() else 0
            name = f"revision {number} (replicaset {each['metadata']['name']})"
            yield number, Origin(name, each["spec"].get("template") or {})


def _cron_job(job: JsonObject, stored: Lookup) -> Iterator[Origin]:
    metadata = job["metadata"]
    if (metadata.get("annotations") or {}).get(_BY_HAND) != "manual":
        return
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") != "CronJob":
            continue
        found = stored.get("CronJob", "batch", metadata.get("namespace", ""), owner.get("name", ""))
        if found is not None and found["metadata"].get("uid") == owner.get("uid"):
            template = found["spec"]["jobTemplate"]["spec"].get("template") or {}
            yield Origin(f"cronjob {owner['name']}", template)
