"""Where kubeqos answers differently from the recorded Kubernetes on purpose, with the reason for each.

A conformance test looks its case up here before it fails; a case that is listed must really differ, so that
the table never outlives its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# (recorded file, key of the case as its test names it) → why the answer differs
DIFFERENCES: dict[tuple[str, str], str] = {
    ("quota", "resize"): "a pod that shrinks gives back at once what Kubernetes keeps charging until it next recounts",
    ("quota", "status"): "a pod back from a final phase is charged at once, by Kubernetes not until it next recounts",
    ("cpuset", "ids above 65535"): "a set is a bitmask: ids stop at 65535 (Linux knows at most 8192 CPUs)",
    ("patch", "code 500"): "a patch that makes no sense is the client's mistake: 400 with the same message",
    ("validation", "quota/hardname"): "for memory.limit and cpu.limit the refusal adds the name that Kubernetes knows",
    ("patch", "resourcequotas status"): "a quota's status is the ledger's, at once and whatever a client writes",
}

# Resources of real Kubernetes that kubeqos has no use for and does not pretend to serve.
NOT_SERVED = frozenset(("pods/proxy", "services/proxy"))


def different_on_purpose(recording: str, step: dict[str, Any]) -> str | None:
    """Why a recorded HTTP step is answered differently, when the reason is a rule and not a single case."""
    answer = step.get("response") or step
    request = step.get("request") or step.get("watch") or step
    if answer.get("code") == 500:
        return "no input yields a 5xx: what the client got wrong is a 400 with the same message"
    if "Basic " in (request.get("headers") or {}).get("Authorization", ""):
        return "anonymous requests are refused with 401 before anything is looked at"
    return None


@dataclass(frozen=True)
class Access:
    """Where ours lets somebody in (`more`), or does not, and a real server answers the other way."""

    why: str
    more: bool
    who: tuple[str, ...]
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...] = ()

    def covers(self, cell: tuple[str, str, str, str], verb: str, *, more: bool) -> bool:
        who, _, group, resource = cell
        return (
            (more, group) == (self.more, self.group)
            and who in self.who
            and resource in self.resources
            and (not self.verbs or verb in self.verbs)
        )


_NODES = ("own node", "other node")
_EDITORS = ("admin", "edit", "account that edits")
ACCESS = (
    Access(
        "decisions are a kind of ours: nodes and the scheduler report them",
        *(True, (*_NODES, "scheduler"), "decisions.kubeqos.io", ("decisionbatches",)),
    ),
    Access(
        "decisions are a kind of ours: who sees a pod sees what was decided about it",
        *(True, (*_EDITORS, "view"), "decisions.kubeqos.io", ("poddecisions",)),
    ),
    Access(
        "as metrics-server aggregates it to these roles where it is installed",
        *(True, (*_EDITORS, "view"), "metrics.k8s.io", ("pods",)),
    ),
    Access(
        "who may delete and create a pod may resize it: quota and admission look at that as at a create",
        *(True, _EDITORS, "", ("pods/resize",)),
    ),
    Access(
        "KEP-3675: an agent resolves the classes of claims; Kubernetes has no such kind any more",
        *(True, _NODES, "resource.k8s.io", ("resourceclasses",)),
    ),
    Access(
        "a pod that does not exist: an agent that looks for its mirror pod is told that there is none",
        *(True, _NODES, "", ("pods",), ("get",)),
    ),
    Access(
        "what NodeRestriction refuses once it knows the object, the node rule refuses at once",
        *(False, _NODES, "", ("nodes", "nodes/status", "pods", "pods/status", "pods/eviction")),
    ),
)


def access_differs(cell: tuple[str, str, str, str], verb: str, *, more: bool) -> Access | None:
    """The entry that says why ours answers differently here."""
    return next((one for one in ACCESS if one.covers(cell, verb, more=more)), None)
