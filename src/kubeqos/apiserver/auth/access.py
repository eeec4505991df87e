"""Authentication and authorisation of one request, impersonation, and the facts that the node rule asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kubeqos.apiserver.auth import (
    Attributes,
    Authenticator,
    Authorizer,
    ImpersonationRefused,
    NodeRule,
    Policy,
    Unauthenticated,
    impersonate,
)
from kubeqos.apiserver.auth.authorize import refusal
from kubeqos.apiserver.auth.impersonate import IMPERSONATE
from kubeqos.apiserver.auth.references import ephemeral_claims, referenced
from kubeqos.apiserver.auth.tokens import Exists
from kubeqos.apiserver.nodes.podindex import PodIndex
from kubeqos.apiserver.registry.kinds import KINDS, kind_named
from kubeqos.apiserver.requests import Route
from kubeqos.codec import JsonObject, decode_json
from kubeqos.model.kinds import RBAC
from kubeqos.model.selectors import FieldSelector, SelectorError
from kubeqos.store import Store, Stored
from kubeqos.web.identity import MASTERS, Identity
from kubeqos.web.messages import NO_QUERY, Query
from kubeqos.web.status import forbidden, unauthorized

RBAC_PREFIX = f"/registry/{RBAC}/"


@dataclass
class Access:
    """Who may do what."""

    authenticator: Authenticator
    authorizer: Authorizer

    def identify(self, peer: Identity | None, headers: Mapping[bytes, bytes]) -> Identity:
        """The identity behind a request, after impersonation; 401 when there is none."""
        identity = self.authenticator.identify(peer, headers.get(b"authorization"))
        if isinstance(identity, Unauthenticated):
            raise unauthorized()
        asked = [
            (name, value)
            for name, values in headers.items()
            if name.startswith(IMPERSONATE)
            for value in values.split(b"\n")
        ]
        found = impersonate(identity, asked, self.authorizer) if asked else identity
        if isinstance(found, ImpersonationRefused):
            raise found.error
        return found

    def check(self, identity: Identity, wanted: Attributes) -> None:
        """403 unless allowed."""
        decision = self.authorizer.decide(identity, wanted)
        if not decision.allowed:
            raise refusal(identity, wanted, decision.because)

    def check_write(self, identity: Identity, wanted: Attributes, body: JsonObject) -> None:
        """What only the object tells: a node creates itself and nobody else; nobody grants more than they have."""
        if MASTERS in identity.groups:
            return
        decision = self.authorizer.node_rule.admits(identity, wanted, body)
        if decision is not None and not decision.allowed:
            name = (body.get("metadata") or {}).get("name", "")
            raise forbidden(wanted.resource, wanted.group, name, decision.because)
        if wanted.group == RBAC:
            self._check_escalation(identity, wanted, body)

    def _check_escalation(self, identity: Identity, wanted: Attributes, body: JsonObject) -> None:
        """Who may `escalate` a role or `bind` it has been trusted with more than they hold."""
        if "rules" in body:
            rules, trusted = body["rules"] or [], msgspec.structs.replace(wanted, verb="escalate")
        else:
            role = body.get("roleRef") or {}
            named = f"{role.get('kind', '')}s".lower(), "", wanted.namespace, role.get("name", "")
            trusted = Attributes("bind", RBAC, *named)
            found = self.authorizer.policy.rules_of(role.get("kind", ""), wanted.namespace, role.get("name", ""))
            rules = found or []
        beyond = self.authorizer.escalates(identity, wanted.namespace, rules)
        if beyond and not self.authorizer.decide(identity, trusted).allowed:
            name = (body.get("metadata") or {}).get("name", "")
            listed = "; ".join(f"{a.verb} {a.combined or a.path}" for a in beyond)
            why = f'user "{identity.user}" is attempting to grant RBAC permissions not currently held: {listed}'
            raise forbidden(wanted.resource, RBAC, name, why)


_MANY = ("list", "watch", "deletecollection")


def attributes(route: Route, query: Query = NO_QUERY) -> Attributes:
    """What a request wants. Who lists one object by its name wants that one (kubelets watch a pod's Secrets so)."""
    name, on_node = route.name, ""
    if route.verb in _MANY and "fieldSelector" in query:
        chosen, on_node = selected(query["fieldSelector"][0])
        name = name or chosen
    return Attributes(
        route.verb, route.group, route.resource, route.subresource, route.namespace, name, on_node=on_node
    )


def selected(text: str) -> tuple[str, str]:
    """The one object and the one node that a field selector asks for; what cannot be read asks for nothing."""
    try:
        found = FieldSelector.parse(text)
    except SelectorError:
        return "", ""
    name = found.exact("metadata.name") or "" if len(found.terms) == 1 else ""
    return name, found.exact("spec.nodeName") or ""


_RESOURCE_GROUP = "resource.k8s.io"
_BY_RESOURCE = {(kind.group, kind.plural): kind for kind in KINDS}


class StoredFacts:
    """The node rule's questions, answered from the store."""

    def __init__(self, store: Store, pod_index: PodIndex) -> None:
        self._store = store
        self._pod_index = pod_index
        self._pods = kind_named("Pod")

    def node_of(self, group: str, resource: str, namespace: str, name: str) -> str | None:
        stored = self._store.get(_BY_RESOURCE[group, resource].key(namespace, name))
        return str((decode_json(stored.value).get("spec") or {}).get("nodeName") or "") if stored else None

    def uses(self, node: str, resource: str, namespace: str, name: str) -> bool:
        if resource == "persistentvolumes":
            stored = self._store.get(kind_named("PersistentVolume").key("", name))
            claim = (decode_json(stored.value).get("spec") or {}).get("claimRef") or {} if stored else {}
            namespace, name = str(claim.get("namespace", "")), str(claim.get("name", ""))
            return bool(name) and self.uses(node, "persistentvolumeclaims", namespace, name)
        prefix = self._pods.range_prefix(namespace)
        if any(self._refers(stored, node, resource, namespace, name) for stored in self._pod_index.pods(node, prefix)):
            return True
        # A node may have heard of its pod before the index has.
        late = (stored for stored in self._store.range(prefix).items if node.encode() in stored.value)
        return any(self._refers(stored, node, resource, namespace, name) for stored in late)

    def _refers(self, stored: Stored, node: str, resource: str, namespace: str, name: str) -> bool:
        """Whether this is a pod of the node, and names the object."""
        by_claim = resource in ("configmaps", "resourceclaims") and b'"resourceClaims":' in stored.value
        made_for_it = resource == "persistentvolumeclaims" and b'"ephemeral":' in stored.value
        if not by_claim and not made_for_it and name.encode() not in stored.value:
            return False
        pod = decode_json(stored.value)
        if (pod.get("spec") or {}).get("nodeName") != node:
            return False
        return (
            name in referenced(pod, resource)
            or (resource == "configmaps" and name in self._parameters(pod, namespace))
            or (made_for_it and name in ephemeral_claims(pod))
        )

    def _parameters(self, pod: JsonObject, namespace: str) -> set[str]:
        """ConfigMaps that parametrise the pod's claims (KEP-3675): named by claim, template or class."""
        found: set[str] = set()
        for kind in ("ResourceClaim", "ResourceClaimTemplate"):
            named = kind_named(kind, _RESOURCE_GROUP)
            for name in referenced(pod, named.plural):
                stored = self._store.get(named.key(namespace, name))
                spec = (decode_json(stored.value).get("spec") or {}) if stored else {}
                spec = spec.get("spec") or {} if kind == "ResourceClaimTemplate" else spec
                found |= self._parameters_of(spec, namespace)
        return found

    def _parameters_of(self, spec: JsonObject, namespace: str) -> set[str]:
        references = [spec.get("parametersRef") or {}]
        stored = self._store.get(
            kind_named("ResourceClass", _RESOURCE_GROUP).key("", str(spec.get("resourceClassName", "")))
        )
        if stored is not None:
            reference = decode_json(stored.value).get("parametersRef") or {}
            if reference.get("namespace", namespace) == namespace:
                references.append(reference)
        return {str(one["name"]) for one in references if one.get("kind") == "ConfigMap" and one.get("name")}


def load_policy(store: Store) -> Policy:
    return Policy(decode_json(stored.value) for stored in store.range(RBAC_PREFIX).items)


async def follow_policy(store: Store, policy: Policy, after: int) -> None:
    """Keep a policy that was loaded at a revision in step with the stored RBAC objects, as long as the server runs."""
    async for events in store.watch(RBAC_PREFIX, after):
        for event in events:
            raw = decode_json(event.value)
            if event.type == "DELETED":
                policy.remove(raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            else:
                policy.put(raw)
        await asyncio.sleep(0)


def node_rule(store: Store, pod_index: PodIndex) -> NodeRule:
    return NodeRule(StoredFacts(store, pod_index))


def stored_as(store: Store) -> Exists:
    """Whether an object of that uid is stored: tokens end with what they are bound to."""

    def exists(kind: str, namespace: str, name: str, uid: str) -> bool:
        found = kind_named(kind)
        stored = store.get(found.key(namespace if found.namespaced else "", name))
        return stored is not None and uid in ("", decode_json(stored.value)["metadata"]["uid"])

    return exists
