"""Names that components of kubeqos use to speak to each other through API objects."""

from __future__ import annotations

from typing import Final

TOPOLOGY_ANNOTATION: Final = "kubeqos.io/topology"
"""On a Node: what is free on which NUMA node and how plugins divide resources, published by the node agent for the
scheduler, as JSON (`model.annotations.topologysummary`)."""

DRIVERS_ANNOTATION: Final = "kubeqos.io/compute-drivers"
"""On a Node: the names of the registered CCI drivers, separated by commas."""

PROFILE_LABEL: Final = "kubeqos.io/profile"
"""On a Node: which resource managers it runs (`default`, `qrm`, `cci`)."""

NODE_GROUP_LABEL: Final = "kubeqos.io/node-group"
"""On a Node of `kubeqos up`: the group that grows and shrinks, of which it is one."""

REAL_MACHINE_TAINT: Final = "kubeqos.io/real-machine"
"""Taint of a real node that `kubeqos up` runs beside simulated ones: a pod that is meant for it tolerates this key."""

SERVING_CERTIFICATE_ANNOTATION: Final = "kubeqos.io/serving-authority"
"""On a Node: the certificate authority (PEM) of its agent's endpoint, by which the API server knows the agent."""

PLACEMENT_ANNOTATION: Final = "kubeqos.io/placement"
"""On a Pod: why the scheduler chose its node."""

RUNTIME_HANDLER_ANNOTATION: Final = "kubeqos.io/runtime-handler"
"""On a Pod: the handler of its RuntimeClass when it was created, written by the API server and by nobody else."""

MACHINE_ANNOTATION: Final = "kubeqos.io/machine"
"""On a Node: its machine as JSON (`model.hardware.machinefile`), published by the node agent for `kubeqos map`."""

ASSIGNMENTS_ANNOTATION: Final = "kubeqos.io/assignments"
"""On a Node: who runs where, as JSON `{"pools": {name: cpuset}, "containers": {"ns/pod/container": {"cpus": cpuset,
"exclusive": bool, "mems": NUMA nodes, "partition": "root" or why none}},
"protected": {"ns/pod": {"asked": bytes, "effective": bytes}}}`
(`model.annotations.published`)."""

ALIGN_ANNOTATION: Final = "cci.kubeqos.io/align-to"
"""On a Pod: names or kinds of devices, separated by commas, whose NUMA nodes its claims' device attributes mean."""

HOLDINGS_ANNOTATION: Final = "cci.kubeqos.io/holdings"
"""On a container in the runtime: what its claims gave it, so that it can be told when everything else is lost."""

PLUGIN_HOLDINGS_ANNOTATION: Final = "qrm.kubeqos.io/holdings"
"""On a container in the runtime: what resource plugins gave it when it was created, for the same reason."""

HELD_ANNOTATION: Final = "qrm.kubeqos.io/held"
"""In a request to a resource plugin: what the running container that it is about has of the resource. A plugin that has
lost its state gives the same again, if it can."""

POLICY_ANNOTATION: Final = "cci.resources.alpha.kubernetes.io/pod"
"""On a Pod: the compute policy of its containers, such as `cci-exclusive` (KEP-3675, the form without claims)."""

CONTAINER_POLICY_ANNOTATION: Final = "cci.resources.alpha.kubernetes.io/container."
"""On a Pod, followed by a container's name: the compute policy of that container."""

WEBSOCKETS_FEATURE = "ExtendWebSocketsToKubelet"
"""What a Node declares in its status that takes streams by WebSocket; every other takes them by SPDY."""
RESIZE_FEATURES = ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")
"""What a Node declares that resizes pods as a whole and their init containers; a kube-apiserver asks before it lets one
be resized."""
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
"""Which revision of a Deployment a ReplicaSet is; on the Deployment, which one it is at."""
TEMPLATE_HASH_LABEL = "pod-template-hash"
"""By which a Deployment's ReplicaSets tell their pods apart; the Deployment's own template lacks it."""
