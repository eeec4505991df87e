"""What an identity may see: asked of the API server itself, by the reviews that `kubectl auth can-i` uses.

What may be listed is shown, and what a role names one by one; everything else is left out, and the answer says so. The
dashboard has no rules of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from kubeqos.client import Api
from kubeqos.client.resources import EVENTS, NODES, PODS, RESOURCE_QUOTAS, Resource, resource_named
from kubeqos.dashboard.objects import Scope, Sight
from kubeqos.model.kinds import AUTHORIZATION

ACCESS_REVIEWS = resource_named("SelfSubjectAccessReview", AUTHORIZATION)
RULES_REVIEWS = resource_named("SelfSubjectRulesReview", AUTHORIZATION)
NAMED = (PODS, RESOURCE_QUOTAS)
"""Kinds of which single objects may be seen, where a role names them."""
MOST_NAMESPACES = 200
"""How many are asked about for an identity that may not list over all of them."""


async def look(api: Api, namespaces: Iterable[str]) -> Sight:
    """What the identity behind this connection may list, over all namespaces or in which of these."""
    places = sorted(namespaces)[:MOST_NAMESPACES]
    nodes, pods, quotas, events = await asyncio.gather(
        _scope(api, NODES, ()),
        _scope(api, PODS, places),
        _scope(api, RESOURCE_QUOTAS, places),
        _scope(api, EVENTS, places),
    )
    if not pods.everything:
        closed = [place for place in places if place not in pods or place not in quotas]
        found = await asyncio.gather(*(named(api, place) for place in closed))
        rules = [one for each in found for one in each]
        pods, quotas = (
            replace(scope, names=frozenset(key for kind, key in rules if kind == resource.plural))
            for scope, resource in zip((pods, quotas), NAMED, strict=True)
        )
    return Sight(nodes, pods, quotas, events)


async def named(api: Api, namespace: str) -> list[tuple[str, str]]:
    """Objects of a namespace that the identity may get by their names, as its roles name them: kind and key."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    rules = ((await api.create(RULES_REVIEWS, review)).get("status") or {}).get("resourceRules") or ()
    return [
        (kind, f"{namespace}/{name}")
        for rule in rules
        if "" in (rule.get("apiGroups") or ()) and {"get", "*"} & set(rule.get("verbs") or ())
        for kind in rule.get("resources") or ()
        for name in rule.get("resourceNames") or ()
    ]


async def _scope(api: Api, resource: Resource, namespaces: Iterable[str]) -> Scope:
    if await may_list(api, resource, ""):
        return Scope(everything=True)
    places = list(namespaces)
    allowed = await asyncio.gather(*(may_list(api, resource, place) for place in places))
    return Scope(namespaces=frozenset(place for place, yes in zip(places, allowed, strict=True) if yes))


async def may_list(api: Api, resource: Resource, namespace: str) -> bool:
    """Whether the identity may list and watch a kind."""
    wanted = {"verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    answer = await api.create(ACCESS_REVIEWS, review)
    return (answer.get("status") or {}).get("allowed") is True
