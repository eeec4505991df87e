"""Where kubeqos answers differently from the recorded Kubernetes on purpose, with the reason for each.

A conformance test looks its case up here before it fails; a case that is listed must really differ, so that
the table never outlives its reason.
"""

from __future__ import annotations

# (recorded file, key of the case as its test names it) → why the answer differs
DIFFERENCES: dict[tuple[str, str], str] = {
    ("cpuset", "ids above 65535"): "a set is a bitmask: ids stop at 65535 (Linux knows at most 8192 CPUs)",
    ("patch", "code 500"): "a patch that makes no sense is the client's mistake: 400 with the same message",
    ("validation", "quota/hardname memory.limit"): "the refusal adds the name that Kubernetes knows: use limits.memory",
    ("validation", "quota/hardname cpu.limit"): "the refusal adds the name that Kubernetes knows: use limits.cpu",
    ("podqos", "sums of amounts written like 1e1"): (
        "an amount is kept as its canonical text, so a sum with 1e1, which prints as 10, forgets the exponent form"
    ),
    ("quantity", "escapes"): "escapes inside a quantity are decoded like those of any JSON string",
}
