"""Where kubeqos answers differently from the recorded Kubernetes on purpose, with the reason for each.

A conformance test looks its case up here before it fails; a case that is listed must really differ, so that
the table never outlives its reason.
"""

from __future__ import annotations

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
