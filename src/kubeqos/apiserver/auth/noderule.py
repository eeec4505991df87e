"""What a node agent may do: read what it needs, write only what is its own.

The identity `system:node:NAME` in the group `system:nodes` writes the Node object and status of that name, the status
of pods bound to it, its lease, and events. One agent that is taken over cannot touch another node (Kubernetes' node
authorizer and NodeRestriction admission, as one rule). Whether a pod is bound to a node is a fact about stored
objects, so the caller brings it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeqos.apiserver.auth.rbac import Attributes, Decision
from kubeqos.apiserver.auth.references import referenced
from kubeqos.codec import JsonObject
from kubeqos.web.identity import Identity

LEASES = "kube-node-lease"
READ = frozenset({"get", "list", "watch"})
WRITE = frozenset({"create", "update", "patch"})
CHANGE = frozenset({"update", "patch"})


class NodeFacts(Protocol):
    """What the rule must know of stored objects."""

    def node_of(self, group: str, resource: str, namespace: str, name: str) -> str | None:
        """The node that an object's spec names, "" where it names none; None when there is no such object."""

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Whether a pod bound to the node refers to this ConfigMap, Secret, volume claim, claim or claim template.

        To a volume it refers by the claim that has it.
        """


Check = Callable[[NodeFacts, str, Attributes], bool]


def anything(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    return True


def own_node(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    # A create names its object in the body: `admits` looks at that.
    return wanted.name == node or (wanted.verb == "create" and not wanted.name)


def named(facts: NodeFacts, wanted: Attributes) -> str | None:
    return facts.node_of(wanted.group, wanted.resource, wanted.namespace, wanted.name)


def own(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    """An object whose spec names the node."""
    return bool(wanted.name) and named(facts, wanted) == node


def own_or_none(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    """The same, or nothing: who looks for a mirror pod learns that there is none."""
    return bool(wanted.name) and named(facts, wanted) in (node, None)


def selected(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    """A list or watch of what names the node, and of nothing else."""
    return wanted.on_node == node


def own_lease(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    return wanted.namespace == LEASES and own_node(facts, node, wanted)


def used(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    return bool(wanted.name) and facts.uses(node, wanted.resource, wanted.namespace, wanted.name)


def used_there(facts: NodeFacts, node: str, wanted: Attributes) -> bool:
    """The same, of what is in a namespace: who names none asks for those of all."""
    return bool(wanted.namespace) and used(facts, node, wanted)


GET, CREATE, DELETE = frozenset({"get"}), frozenset({"create"}), frozenset({"delete"})
FOLLOW = frozenset({"list", "watch"})

# (API group, resource or resource/subresource) → verbs and the condition under which they are allowed
RULES: dict[tuple[str, str], list[tuple[frozenset[str], Check]]] = {
    ("", "nodes"): [(READ | WRITE, own_node)],  # a list or watch of one by its name
    ("", "nodes/status"): [(CHANGE, own_node)],
    # A created pod must be the mirror of a static one: `admits` looks at that.
    ("", "pods"): [(CREATE, anything), (GET, own_or_none), (FOLLOW, selected), (DELETE, own)],
    ("", "pods/status"): [(CHANGE, own)],
    ("", "pods/eviction"): [(CREATE, own)],
    ("", "events"): [(WRITE, anything)],
    ("events.k8s.io", "events"): [(WRITE, anything)],
    ("decisions.kubeqos.io", "decisionbatches"): [(CREATE, anything)],  # each entry is looked at
    ("coordination.k8s.io", "leases"): [(WRITE | {"get", "delete"}, own_lease)],
    ("", "services"): [(READ, anything)],
    ("", "configmaps"): [(READ, used_there)],  # a list or watch of one by its name
    ("", "secrets"): [(READ, used_there)],
    ("", "persistentvolumeclaims"): [(GET, used_there)],
    ("", "persistentvolumeclaims/status"): [(CHANGE, used_there)],
    ("", "persistentvolumes"): [(GET, used)],
    ("resource.k8s.io", "resourceclaims"): [(GET, used_there)],
    ("resource.k8s.io", "resourceclaimtemplates"): [(GET, used_there)],
    ("resource.k8s.io", "resourceclasses"): [(READ, anything)],
    ("resource.k8s.io", "resourceslices"): [
        (CREATE, anything),  # on which node is told by the body
        (GET | CHANGE | DELETE, own),
        (FOLLOW | {"deletecollection"}, selected),
    ],
    ("", "endpoints"): [(GET, anything)],
    ("", "serviceaccounts"): [(GET, used_there)],
    ("", "serviceaccounts/token"): [(CREATE, used_there)],  # `unbound` looks at what the token is to end with
    ("authentication.k8s.io", "tokenreviews"): [(CREATE, anything)],
    ("authorization.k8s.io", "subjectaccessreviews"): [(CREATE, anything)],
    ("authorization.k8s.io", "localsubjectaccessreviews"): [(CREATE, anything)],
    ("certificates.k8s.io", "certificatesigningrequests"): [(READ | CREATE, anything)],
    ("certificates.k8s.io", "clustertrustbundles"): [(READ, anything)],
    ("certificates.k8s.io", "podcertificaterequests"): [(CREATE, anything), (GET, own), (FOLLOW, selected)],
    ("node.k8s.io", "runtimeclasses"): [(READ, anything)],
    ("kubeqos.io", "qosclasses"): [(READ, anything)],
    ("kubeqos.io", "qosresources"): [(READ, anything)],
    ("storage.k8s.io", "csidrivers"): [(READ, anything)],
    ("storage.k8s.io", "csinodes"): [(WRITE | {"get", "delete"}, own_node)],
    ("storage.k8s.io", "volumeattachments"): [(GET, own)],
}


MIRROR = "kubernetes.io/config.mirror"
_OWN = ("nodes", "leases", "csinodes")
"""What carries its node's name."""
_ON_NODE = ("resourceslices", "podcertificaterequests")
"""What names its node in its spec."""


def not_a_mirror(node: str, pod: JsonObject) -> str:
    """Why a node may not create this pod, in the words of NodeRestriction; nothing when it mirrors one of its own."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if MIRROR not in (metadata.get("annotations") or {}):
        return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
    if spec.get("nodeName") != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    for owner in metadata.get("ownerReferences") or ():
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f'node "{node}" can only create pods with an owner reference set to itself'
    if spec.get("serviceAccountName"):
        return f'node "{node}" can not create pods that reference a service account'
    for resource in ("secrets", "configmaps", "persistentvolumeclaims"):
        if referenced(pod, resource):
            return f'node "{node}" can not create pods that reference {resource}'
    return ""


def unbound(node: str, bound: JsonObject | None) -> str:
    """Why a node may not have a token for an account: it must end with a pod of its own, which is handed in."""
    if bound is None:
        return "node requested token not bound to a pod"
    if (bound.get("spec") or {}).get("nodeName") != node:
        return "node requested token bound to a pod scheduled on a different node"
    return ""


class NodeRule:
    """The rule, with the facts it needs."""

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts

    def decide(self, identity: Identity, wanted: Attributes) -> Decision | None:
        """None when the identity is not a node's; a refusal leaves it to RBAC to allow more."""
        node = identity.node
        if node is None:
            return None
        conditions = [check for verbs, check in RULES.get((wanted.group, wanted.combined), ()) if wanted.verb in verbs]
        if not conditions:
            return Decision(False, "")
        if any(check(self._facts, node, wanted) for check in conditions):
            return Decision(True, f"node rule: {wanted.verb} {wanted.combined} by node {node!r}")
        return Decision(False, f"no relationship found between node '{node}' and this object")

    def admits(self, identity: Identity, wanted: Attributes, body: JsonObject) -> Decision | None:
        """The same for what only the body tells: the name of a created object. None when there is nothing to say."""
        node = identity.node
        if node is None or wanted.verb != "create" or wanted.subresource:
            return None
        if wanted.resource == "pods" and not wanted.group:
            wrong = not_a_mirror(node, body)
            return Decision(False, wrong) if wrong else Decision(True, f"node rule: mirror pod of node {node!r}")
        if wanted.resource in _ON_NODE:
            return self._names_itself(node, wanted, body)
        if wanted.resource not in _OWN:
            return None
        name = (body.get("metadata") or {}).get("name", "")
        if name == node:
            return Decision(True, f"node rule: create {wanted.resource} by node {node!r}")
        return Decision(False, f'node "{node}" is not allowed to create {wanted.resource[:-1]} "{name}"')

    def _names_itself(self, node: str, wanted: Attributes, body: JsonObject) -> Decision:
        """What a node creates about itself says so, and a certificate is asked for a pod that it has."""
        spec = body.get("spec") or {}
        if spec.get("nodeName") != node:
            what = (body.get("kind") or wanted.resource).removesuffix("s")
            return Decision(False, f'node "{node}" can only create a {what} whose spec.nodeName is its own')
        if wanted.resource == "podcertificaterequests":
            pod = str(spec.get("podName", ""))
            if self._facts.node_of("", "pods", wanted.namespace, pod) != node:
                return Decision(False, f'node "{node}" has no pod "{pod}" in this namespace')
        return Decision(True, f"node rule: create {wanted.resource} by node {node!r}")
