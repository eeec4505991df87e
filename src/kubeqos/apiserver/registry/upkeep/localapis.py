"""The group versions that this server serves itself, as APIServices: what `kubectl get apiservices` lists as Local.

Kept by the server, as in Kubernetes: those of built-in kinds are made at the start, those of definitions come and
go with them. An APIService that leads to another server is stored and nothing more: nobody here asks other servers.
`server` starts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field

from kubeqos.apiserver.present.options import DeleteOptions
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.deletes import delete
from kubeqos.apiserver.registry.kinds import GROUPS, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.registry.writes import Write, create, update
from kubeqos.codec import JsonObject
from kubeqos.logs import logger
from kubeqos.model.kinds import APIREGISTRATION
from kubeqos.web.status import ApiError

log = logger("kubeqos.apiserver")
SECONDS = 1.0
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_KIND = kind_named("APIService", APIREGISTRATION)
_ON_START, _ALWAYS = "onstart", "true"
_DEFINED = 1000, 100
"""Priorities of a group and a version that a definition added."""
# Kubernetes' own numbers: clients that know a short name in several groups take the group with the greatest.
_GROUPS = {
    "": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
    "autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
    "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500,
    "node.k8s.io": 16300, "discovery.k8s.io": 16200, "resource.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
    "storagemigration.k8s.io": 15800,
}  # fmt: skip
_VERSIONS = {
    ("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21, ("resource.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1alpha1"): 30,  # which this server prefers
}  # fmt: skip
_ORDINARY = 15


def wanted(groups: Mapping[str, tuple[str, ...]]) -> Iterator[JsonObject]:
    """One APIService for each version of each group, but for that of APIServices itself."""
    for group, versions in groups.items():
        for version in versions if group != APIREGISTRATION else ():
            built_in = version in GROUPS.get(group, ())
            by_group = _GROUPS.get(group, _DEFINED[0])
            by_version = _VERSIONS.get((group, version), _ORDINARY) if built_in else _DEFINED[1]
            yield {
                "metadata": {"name": f"{version}.{group}", "labels": {MANAGED: _ON_START if built_in else _ALWAYS}},
                "spec": {
                    **({"group": group} if group else {}),
                    "version": version,
                    "groupPriorityMinimum": by_group,
                    "versionPriority": by_version,
                },
            }


@dataclass
class LocalApis:
    """Follows which group versions there are."""

    core: Core
    _seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            if self.core.catalog.groups != self._seen:
                await self.keep()

    async def keep(self) -> None:
        """Make what is missing, put right what is ours, and take away what a definition took with it."""
        self._seen = self.core.catalog.groups
        objects = {obj["metadata"]["name"]: obj for obj in wanted(self._seen)}
        await asyncio.gather(*(self._keep(name, obj) for name, obj in objects.items()))
        for stored in self.core.store.range(_KIND.prefix).items:
            held = decode(stored)["metadata"]
            if held["name"] not in objects and (held.get("labels") or {}).get(MANAGED) == _ALWAYS:
                await self._tried(held["name"], delete(self.core, _KIND, "", held["name"], DeleteOptions()))

    async def _keep(self, name: str, obj: JsonObject) -> None:
        stored = self.core.store.get(_KIND.key("", name), pending=True)
        if stored is None:
            await self._tried(name, create(self.core, Write(_KIND, "", name), obj))
            return
        held = decode(stored)
        if MANAGED in (held["metadata"].get("labels") or {}) and held["spec"] != obj["spec"]:
            write = Write(_KIND, "", name)
            await self._tried(name, update(self.core, write, lambda old: {**old, "spec": obj["spec"]}))

    async def _tried(self, name: str, writing: Awaitable[object]) -> None:
        try:
            await writing
        except ApiError as error:  # a webhook may have an opinion on it
            log.warning("APIService %s cannot be kept: %s", name, error)
