"""The history of a pod template as ControllerRevisions: DaemonSets and StatefulSets share it. Pure.

A revision keeps the template in the form that `kubectl rollout undo` applies as a patch. The newest of them that has
the owner's template is the one that new pods follow; a template that comes back gets its old revision under a new
number, and what no pod follows any more goes when there are more than `revisionHistoryLimit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kubeqos.client.resources import CONTROLLER_REVISIONS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, change, deletion
from kubeqos.controllers.podstate import owner_reference
from kubeqos.controllers.workloads.deployments import template_hash

REVISION_HASH = "controller-revision-hash"
"""The label by which a pod names the revision that it was made from."""
_HASH_LABELS = {"StatefulSet": "controller.kubernetes.io/hash"}
"""Where a revision itself keeps its hash, if not there too."""
_DEFAULT_LIMIT = 10


@dataclass(slots=True)
class History:
    """The revisions of an owner, oldest first, and what has to be written before its pods are looked at."""

    revisions: list[JsonObject] = field(default_factory=list)
    update: JsonObject | None = None
    """The revision of the template as it is now; None until it is stored."""
    actions: list[Action] = field(default_factory=list)

    @property
    def update_name(self) -> str:
        return str(self.update["metadata"]["name"]) if self.update else ""

    def named(self, name: str) -> JsonObject | None:
        return next((each for each in self.revisions if each["metadata"]["name"] == name), None)


def history_of(owner: JsonObject, revisions: Iterable[JsonObject]) -> History:
    """Find the revision of the owner's template, or say how to make it."""
    found = History(sorted(revisions, key=lambda each: (_number(each), each["metadata"]["name"])))
    data = _data(owner)
    newest = _number(found.revisions[-1]) if found.revisions else 0
    found.update = next((each for each in reversed(found.revisions) if each.get("data") == data), None)
    if found.update is None:
        found.actions.append(Create(CONTROLLER_REVISIONS, _made(owner, data, newest + 1), "the template changed"))
    elif _number(found.update) < newest:
        found.actions.append(
            change(CONTROLLER_REVISIONS, found.update, {"revision": newest + 1}, "the template came back")
        )
    return found


def surplus(owner: JsonObject, history: History, followed: set[str]) -> list[Action]:
    """The oldest revisions beyond the limit, but for the current ones and those that pods follow.

    For a DaemonSet these count as well: it keeps so many old revisions, not so many that nobody follows.
    """
    limit = owner["spec"].get("revisionHistoryLimit")
    limit = _DEFAULT_LIMIT if limit is None else int(limit)
    kept = {*followed, history.update_name} - {""}
    unused = [each for each in history.revisions if not kept & {each["metadata"]["name"], hash_of(each)}]
    because = f"more than {limit} old revisions"
    old = len(history.revisions) - 1 if owner["kind"] == "DaemonSet" else len(unused)
    return [deletion(CONTROLLER_REVISIONS, each, because) for each in unused[: max(0, old - limit)]]


def hash_of(revision: JsonObject) -> str:
    return str((revision["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


def template_of(revision: JsonObject) -> JsonObject:
    """The pod template that a revision keeps."""
    kept: dict[str, Any] = revision["data"]["spec"]["template"]
    return {key: value for key, value in kept.items() if key != "$patch"}


def collision(owner: JsonObject) -> JsonObject:
    """Another template has the name: ask for another one."""
    count = int((owner.get("status") or {}).get("collisionCount") or 0) + 1
    return {"status": {"collisionCount": count}}


def _data(owner: JsonObject) -> JsonObject:
    return {"spec": {"template": {**(owner["spec"].get("template") or {}), "$patch": "replace"}}}


def _number(revision: JsonObject) -> int:
    return int(revision.get("revision") or 0)


def _made(owner: JsonObject, data: JsonObject, number: int) -> JsonObject:
    metadata, template = owner["metadata"], owner["spec"].get("template") or {}
    digest = template_hash(template, int((owner.get("status") or {}).get("collisionCount") or 0))
    labels = {**((template.get("metadata") or {}).get("labels") or {})}
    labels[_HASH_LABELS.get(owner["kind"], REVISION_HASH)] = digest
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [owner_reference(owner)],
        },
        "data": data,
        "revision": number,
    }
