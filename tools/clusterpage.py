"""The reference page of the file of `kubeqos up --config`: its fields from the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from kubeqos.cluster.clusterfile import FIELDS, KIND, NODE_FIELDS, NODE_GATES, SERVER_GATES
from kubeqos.gates import GATES
from kubeqos.model.hardware.named import MACHINES
from kubeqos.placement.score import Weights
from kubeqos.scheduler.config import WEIGHTS

Table = Callable[[list[str], list[list[str]]], str]

BEFORE = f"""\
# The cluster file

`kubeqos up --config cluster.yaml` starts what this file describes. It is read strictly, and wholly before anything is
made: a file that is wrong leaves nothing behind.

```yaml title="cluster.yaml"
apiVersion: kubeqos.io/v1alpha1
kind: {KIND}
featureGates: {{QOSResourcesStrictNames: true}}
scheduler:
  profiles:
  - schedulerName: default-scheduler
    weights: {{mostAllocated: true}}
settings:                      # of all nodes
  evictionHard: {{memory.available: 10%}}
  evictionRanking: qos
nodes:
- name: small
  count: 2
  machine: laptop8
  reservedCPUs: "0"
  labels: {{tier: small}}
- name: large
  machine: kep80
  profile: qrm
  settings: {{maxPods: 50}}      # of this one
```

```console cluster
$ kubeqos up --detach --port 0 --data-dir two --config cluster.yaml
…
$ kubectl --kubeconfig two/kubeconfig get nodes -L tier -o custom-columns=NAME:.metadata.name,PODS:.status.capacity.pods
NAME      PODS
large     50
small-1   110
small-2   110
$ kubeqos down --data-dir two --delete
…
```
"""


def cluster_file(table: Table) -> str:
    """The page; `table` makes a Markdown table."""
    weights = {field.name: field.default for field in dataclasses.fields(Weights)}
    parts = [
        BEFORE,
        "## The file\n\n" + _fields(FIELDS, table),
        "## A node\n\n" + _fields(NODE_FIELDS, table),
        f"Known machines: {', '.join(f'`{name}`' for name in MACHINES)}; `kubeqos map --machine NAME` draws one. "
        "Settings are those of [a node's configuration](node-configuration.md), but for what has a key of its own here "
        "and for where a node keeps its files.",
        "## Gates\n\n" + table(["gate", "in this cluster", "on nodes"], [_gate(name) for name in GATES]),
        "## A profile of the scheduler\n\n`schedulerName` is by which pods choose it. `weights`:\n\n"
        + table(["weight", "default"], [[f"`{key}`", str(weights[name]).lower()] for key, name in WEIGHTS.items()]),
        "What each weight counts says [Scheduling](../scheduling.md).",
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def _fields(fields: object, table: Table) -> str:
    assert isinstance(fields, dict)
    return table(["key", "what"], [[f"`{key}`", about] for key, about in fields.items()])


def _gate(name: str) -> list[str]:
    where = "the same" if name in NODE_GATES else "by profile"
    return [f"`{name}`", "on" if SERVER_GATES.enabled(name) else "off", where]
