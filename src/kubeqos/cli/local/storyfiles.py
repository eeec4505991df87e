"""Manifests of the demo's stories."""

from __future__ import annotations

EVERY_CLASS = """
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  containers:
  - name: app
    image: app:1
    resources: {requests: {cpu: 500m, memory: 256Mi}, limits: {cpu: 500m, memory: 256Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: burstable}
spec:
  containers:
  - name: app
    image: app:1
    resources: {requests: {memory: 128Mi}, limits: {memory: 512Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: best-effort}
spec:
  containers: [{name: app, image: "app:1"}]
"""

QUOTAS = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota-best-effort}
spec: {hard: {pods: "1"}, scopes: [BestEffort]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota-longrunning}
spec: {hard: {pods: "4", limits.cpu: "4", limits.memory: 4Gi}, scopes: [NotTerminating, NotBestEffort]}
"""

NOISY = """
apiVersion: v1
kind: Pod
metadata: {name: qos-resource-example}
spec:
  containers:
  - name: main-app
    image: my-app
    resources:
      qosResources: [{name: rdt, class: exclusive}, {name: blockio, class: high-prio}]
  - name: sidecar
    image: my-sidecar
    resources:
      qosResources: [{name: rdt, class: limited}, {name: blockio, class: throttled}]
"""

_GOLD = """
apiVersion: v1
kind: Pod
metadata: {{name: gold-{0}, labels: {{app: gold}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: hybrid}}
  containers: [{{name: app, image: "app:1", resources: {{qosResources: [{{name: rdt, class: gold}}]}}}}]
"""
CLASS_PODS = "---".join(_GOLD.format(number) for number in (1, 2, 3))

CLASS_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: classes}
spec:
  qosResources:
    container: [{name: rdt, classes: [{name: silver}, {name: bronze, capacity: 2}]}]
"""

_ROLE = """
apiVersion: v1
kind: Pod
metadata:
  name: {0}
  annotations: {{kubernetes.io/pod-role: {1}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: qrm}}
  containers: [{{name: app, image: "app:1", resources: {{requests: {{cpu: "2"}}}}}}]
"""
ROLES = _ROLE.format("online", "online-micro_service") + "---" + _ROLE.format("offline", "ETL")


def standard(node: str) -> str:
    """A pod that asks for nothing, on one node."""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: standard}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers: [{{name: app, image: "app:1"}}]
"""


CLAIM = """
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClass
metadata: {name: cpuresources}
driverName: reference.cci.kubeqos.io
---
apiVersion: v1
kind: ConfigMap
metadata: {name: example-compute-claim-parameters}
data:
  config.json: |
    {
      "cores": ["5", "20"],
      "device attributes": ["NO-DEVICE-AFFINITY", "NO-DEVICE-AFFINITY"],
      "mem attributes": ["NUMA-MEM-AFFINITY-BIND-REQUIRED", "NO-MEM-AFFINITY"],
      "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-PREFERRED"], ["SHARED"]]
    }
---
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: example-compute-claim-parameters-template}
spec:
  spec:
    resourceClassName: cpuresources
    parametersRef: {kind: ConfigMap, name: example-compute-claim-parameters}
---
apiVersion: v1
kind: Pod
metadata: {name: hpc}
spec:
  resourceClaims:
  - name: cores
    source: {resourceClaimTemplateName: example-compute-claim-parameters-template}
  containers:
  - name: app
    image: app:1
    resources:
      requests: {cpu: "25", memory: 1Gi}
      limits: {cpu: "25", memory: 1Gi}
      claims: [{name: cores}]
"""
