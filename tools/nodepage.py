"""The reference page of a node's configuration: its settings from the code, and what the table cannot say."""

# ruff: noqa: E501 - a row of a table is one line
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from kubeqos.node.config.configuration import SETTINGS, NodeConfiguration, Setting

Table = Callable[[list[str], list[list[str]]], str]
_SHOWN = {
    "featureGates": "as each gate",
    "cpuManagerPolicyOptions": "none",
    "topologyManagerPolicyOptions": "none",
    "port": "10250, any free one on a simulated machine",
}
_IN_STATE_DIR = ("pluginRegistrationDir", "qosResourcePluginDir", "podResourcesSocket")

BEFORE = """\
# A node's configuration

`kubeqos node --config node.yaml` reads this file. Every setting is a flag too; a flag overrides the file, the file
overrides the profile, the profile overrides the default. Names are Kubernetes' where Kubernetes has the setting, and
flags take Kubernetes' forms (`--eviction-hard 'memory.available<5%'`, `--kube-reserved cpu=500m,memory=1Gi`).

```yaml
apiVersion: kubeqos.io/v1alpha1
kind: NodeConfiguration
nodeName: worker-1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: 0-1
topologyManagerPolicy: single-numa-node
evictionHard: {memory.available: 5%}
evictionRanking: qos
featureGates: {QOSResources: true}
```

An unknown key, a value of the wrong kind or two settings that contradict each other stop the agent before it starts:

```
Error: node configuration: QoSResourceManager is on, but topologyManagerPolicy is "none"
  at  node.yaml:14  topologyManagerPolicy: none
  set topologyManagerPolicy to best-effort, restricted or single-numa-node, or turn QoSResourceManager off
```

## What does not go together

| settings | why |
|---|---|
| gate `QoSResourceManager`, `topologyManagerPolicy: none` | KEP-3461 builds on the topology manager |
| gate `CCIResourceManager`, any CPU, memory or topology manager | KEP-3675 in its Alpha works alone |
| gates `QoSResourceManager` and `CCIResourceManager` | one needs what the other forbids |
| `full-pcpus-only`, `distribute-cpus-across-numa` or `prefer-align-cpus-by-uncorecache` with `distribute-cpus-across-cores` | opposite wishes |
| `prefer-align-cpus-by-uncorecache`, `distribute-cpus-across-numa` | opposite wishes |
| `align-by-socket`, `topologyManagerPolicy: single-numa-node` | a socket may have several NUMA nodes |
| `cpuManagerPolicy: static` without reserved CPUs | the system needs a place to run |
| `memoryManagerPolicy: Static`, `reservedMemory` that differs from kubeReserved + systemReserved + the hard memory threshold | Kubernetes' rule |
| `classesFile` or `qosClassEviction` without the gate `QOSResources` | nothing would read them |
| `simulatedMachine` and `containerRuntimeEndpoint` | a simulated machine has its own runtime |
| `classesFile` and `containerRuntimeEndpoint` | a real runtime gets its classes from the relay (`kubeqos relay --config`) |

## Settings
"""

AFTER = """\
## What the agent serves

| where | what |
|---|---|
| `https://address:port` | `/healthz`, `/metrics`, `/metrics/resource`, `/pods`, `/stats/summary`, `/containerLogs/…`, `/exec/…`, `/attach/…`, `/portForward/…`; all but `/healthz` need a client certificate of the cluster's authority, and `system:masters` or a role that allows `nodes/proxy` (or `nodes/metrics`, `nodes/stats`, `nodes/pods`), which the agent asks the API server about (SubjectAccessReview) |
| `podResourcesSocket` | the Pod Resources API, v1, with the topology-aware fields of QRM; 100 calls per second, bursts of 10 |

The agent signs its own certificate and publishes the authority on its Node (`kubeqos.io/serving-authority`); the API
server accepts no other for this node.

Streams (`exec`, `attach`, `port-forward`) are taken by WebSocket, which the Node declares as `ExtendWebSocketsToKubelet`,
and by SPDY, which API servers before 1.36 speak. They are carried to the runtime's streaming server, which has to be
reachable from the node only. A simulated container runs the command of an `exec` as a whole and has no other streams.
"""


def node_configuration(table: Table) -> str:
    """The page; `table` makes a Markdown table."""
    rows = [[f"`{one.key}`", _flags(one), _default(one), one.about] for one in SETTINGS.values()]
    return f"{BEFORE}\n{table(['key', 'flag', 'default', 'what'], rows)}\n\n{AFTER}".rstrip()


def _flags(one: Setting) -> str:
    return f"`--{one.flag}`" + (f", `--{one.also}`" if one.also else "")


def _default(one: Setting) -> str:
    if one.key in _SHOWN:
        return _SHOWN[one.key]
    value: Any = getattr(NodeConfiguration(), one.name)
    if one.key in _IN_STATE_DIR:
        return f"stateDir/{value}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    if isinstance(value, enum.Enum | bool):
        return str(value.value) if isinstance(value, enum.Enum) else str(value).lower()
    if isinstance(value, float) and not one.key.endswith("Factor"):
        return f"{value:g}s" if value >= 1 else f"{value * 1000:g}ms"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
