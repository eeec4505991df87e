"""A registry around `Offline`, just large enough to replay recorded requests without a server.

It adds what the rules leave to the API server: patches, the two ways in which objects end (at once, or after a grace
period or a finalizer), and binding.

Kubernetes' quota controller learns of two changes only when it next looks at the namespace for another reason; kubeqos
counts them at once (see the table of differences). To compare all the rest of a scenario, a registry can be as late.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kubeqos.model import schema
from kubeqos.rules.offline import Answer, Offline
from kubeqos.rules.quota.quota import Delta
from kubeqos.rules.requests import Admitted, RequestRefused

Raw = dict[str, Any]
NAMESPACE = "ns"
# Deleting these leaves their dependents behind, which is noted in a finalizer until a controller has seen to it.
ORPHANING = ("replicationcontrollers", "jobs")


class Registry:
    """One namespace that answers recorded requests."""

    def __init__(self, *, late: bool = False) -> None:
        self.cluster = Offline()
        self._late = late
        self._withheld: list[dict[str, Delta]] = []

    def ask(self, verb: str, path: str, body: Raw | None, content_type: str = "") -> tuple[int, Answer]:
        """The HTTP status and the answer to one request."""
        group, resource, name, subresource = parse(path)
        old = self.cluster.get(resource, NAMESPACE, name, group=group)
        code, answer = self._ask(verb, path, body, content_type)
        if self._late and isinstance(answer.outcome, Admitted):
            if resource == "pods" and old is not None:
                self._be_late(subresource, answer.outcome, old)
            elif resource == "resourcequotas":  # the controller recomputes a quota that changed
                self._withheld = [{q: d for q, d in deltas.items() if q != name} for deltas in self._withheld]
        return code, answer

    def _be_late(self, subresource: str, outcome: Admitted, old: Raw) -> None:
        """Undo what Kubernetes would not see yet; an event that it does see makes up for everything before."""
        if _replenishes(old, outcome.object):
            for deltas in self._withheld:
                self.cluster.ledger.apply(NAMESPACE, deltas)
            self._withheld = []
            return
        sign = {"resize": -1, "status": 1}.get(subresource, 0)
        hidden = {
            name: Delta({key: amount for key, amount in delta.amounts.items() if amount.nanos * sign > 0}, {})
            for name, delta in outcome.deltas.items()
        }
        self.cluster.ledger.apply(NAMESPACE, {name: -delta for name, delta in hidden.items()})
        self._withheld.append(hidden)

    def _ask(self, verb: str, path: str, body: Raw | None, content_type: str) -> tuple[int, Answer]:
        group, resource, name, subresource = parse(path)
        if verb == "POST" and subresource == "binding":
            assert body is not None
            return _status(201, self._bind(name, body["target"]["name"]))
        if verb == "POST":
            assert body is not None
            return _status(201, self.create(resource, group, body))
        if verb == "DELETE":
            return _status(200, self._delete(resource, group, name, body or {}))
        assert body is not None
        return _status(200, self._patch(resource, group, name, subresource, body, "strategic" in content_type))

    def create(self, resource: str, group: str, body: Raw) -> Answer:
        new = deepcopy(body)
        key = (group, new["apiVersion"].rpartition("/")[2], new["kind"])
        if key in schema.kinds():
            new = schema.normalise(new, schema.kind(*key))
        new["metadata"]["namespace"] = NAMESPACE
        return self.cluster.create(new, resource, group=group)

    def _bind(self, name: str, node: str) -> Answer:
        pod = deepcopy(self.cluster.objects["pods", NAMESPACE, name])
        bound = pod["spec"].get("nodeName")
        if bound:
            message = (
                f'Operation cannot be fulfilled on pods/binding "{name}": '
                f'pod {name} is already assigned to node "{bound}"'
            )
            return Answer("Pod", name, RequestRefused(409, "Conflict", message))
        pod["spec"]["nodeName"] = node
        return self.cluster.update(pod, "pods", subresource="binding")

    def _delete(self, resource: str, group: str, name: str, options: Raw) -> Answer:
        old = self.cluster.get(resource, NAMESPACE, name, group=group)
        if old is None:
            return self.cluster.delete(resource, NAMESPACE, name, group=group)
        new = deepcopy(old)
        if resource in ORPHANING:
            new["metadata"].setdefault("finalizers", []).append("orphan")
        grace = _grace(resource, old, options)
        if not new["metadata"].get("finalizers") and not grace:
            return self.cluster.delete(resource, NAMESPACE, name, group=group)
        new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        old["metadata"].update(new["metadata"])  # marked by the server: no client could write that
        return self.cluster.update(new, resource, group=group)

    def _patch(self, resource: str, group: str, name: str, subresource: str, patch: Raw, strategic: bool) -> Answer:
        old = self.cluster.get(resource, NAMESPACE, name, group=group)
        if old is None:
            return self.cluster.update({"kind": "", "metadata": {"name": name, "namespace": NAMESPACE}}, resource)
        new = merged(deepcopy(old), patch, strategic)
        answer = self.cluster.update(new, resource, group=group, subresource=subresource)
        if answer.ok and new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self.cluster.delete(resource, NAMESPACE, name, group=group)
        return answer

    def quotas(self) -> Raw:
        """`status` of every quota."""
        return {quota.name: quota.status() for quota in self.cluster.ledger.quotas(NAMESPACE)}


def parse(path: str) -> tuple[str, str, str, str]:
    """(group, resource, name, subresource) of `/apis/GROUP/VERSION/namespaces/{ns}/RESOURCE/NAME/SUBRESOURCE`."""
    before, _, after = path.partition("/namespaces/{ns}/")
    root, group, *_ = before.strip("/").split("/")
    resource, name, subresource = [*after.split("/"), "", ""][:3]
    return (group if root == "apis" else ""), resource, name, subresource


def merged(target: Raw, patch: Raw, strategic: bool) -> Raw:
    """A merge patch; strategic ones also merge containers by name."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merged(target.get(key) or {}, value, strategic)
        elif strategic and key in ("containers", "initContainers"):
            changes = {one["name"]: one for one in value}
            target[key] = [merged(one, changes.get(one["name"], {}), True) for one in target[key]]
        else:
            target[key] = value
    return target


def _replenishes(old: Raw, new: Raw | None) -> bool:
    """Does the quota controller look at the namespace because of this change of a pod?"""
    if new is None:
        return True
    ended = [raw["status"].get("phase") in ("Failed", "Succeeded") for raw in (old, new)]
    bounded = ["activeDeadlineSeconds" in raw["spec"] for raw in (old, new)]
    return (not ended[0] and ended[1]) or bounded[0] != bounded[1]


def _grace(resource: str, old: Raw, options: Raw) -> int:
    """Only pods that a node may still run get time to end."""
    if resource != "pods" or not old["spec"].get("nodeName") or old["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    return int(options.get("gracePeriodSeconds", 30))


def _status(good: int, answer: Answer) -> tuple[int, Answer]:
    return (answer.outcome.code if isinstance(answer.outcome, RequestRefused) else good), answer
