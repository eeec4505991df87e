"""What a request is, whatever brought it here: the ASGI shell and the in-process client both build these.

`Route` says which object or collection a path names and what is to be done with it (Kubernetes' RequestInfo).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.registry.kinds import BY_PATH, GROUPS, Kind
from kubeqos.web.identity import ANONYMOUS, Identity
from kubeqos.web.messages import JSON, Query, is_true
from kubeqos.web.status import method_not_allowed, no_such_resource


@dataclass(slots=True)
class Request:
    """One request, decoded as far as every handler needs it."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    accept: str = JSON
    content_type: str = ""
    body: bytes = b""
    user_agent: str = ""
    identity: Identity = ANONYMOUS
    protocols: tuple[str, ...] = ()
    """What a WebSocket client offers to speak; empty for a plain request."""
    warnings: list[str] = field(default_factory=list)

    def first(self, name: str) -> str | None:
        found = self.query.get(name)
        return found[0] if found else None


class Route(msgspec.Struct, frozen=True, gc=False):
    """What a path and a method name."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch_path: bool = False
    tail: str = ""
    """What follows `nodes/NAME/proxy`: a path of the node's own."""
    added: Kind | None = None
    """The kind, where a CustomResourceDefinition added it."""

    @property
    def kind(self) -> Kind:
        """The served kind; 404 when there is none, or not at this scope."""
        kind = self.added or BY_PATH.get((self.group, self.version, self.resource))
        if kind is None or (self.namespace and not kind.namespaced and kind.plural != "namespaces"):
            raise no_such_resource()
        if self.name and kind.namespaced and not self.namespace:
            raise no_such_resource()
        if self.subresource and self.subresource not in kind.verb_of_subresource:
            raise no_such_resource()
        return kind

    def checked(self) -> Kind:
        """The served kind, when it allows this verb here; 404 or 405 otherwise."""
        kind = self.kind
        verbs = kind.verb_of_subresource[self.subresource] if self.subresource else kind.verbs
        if self.verb not in verbs:
            raise method_not_allowed()
        if self.verb == "create" and kind.namespaced and not self.namespace:
            raise method_not_allowed()
        return kind


_ON_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_SUBRESOURCE = {**_ON_OBJECT, "POST": "create"}


def resolve(method: str, path: str, query: Query) -> Route | None:
    """The route of a resource path; None for any other path. Raises 404 and 405 as Kubernetes words them."""
    found = _resolve if len(path) <= _CACHED_PATH else _resolve.__wrapped__
    return found(method, path, is_true(query, "watch"))


_CACHED_PATH = 256  # longer ones are not worth remembering


@lru_cache(maxsize=1024)  # clients ask for the same collections again and again
def _resolve(method: str, path: str, watch: bool) -> Route | None:
    parts = path.split("/")
    if len(parts) < 4 or parts[0]:
        return None
    if parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) > 4:
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    if group not in GROUPS:
        return None
    if rest and not rest[-1]:
        rest = rest[:-1]
    if not rest:
        return None
    if version not in GROUPS[group] or "" in rest:
        raise no_such_resource()
    return _resource_route(method, group, version, rest, watch)


def resolve_added(method: str, path: str, query: Query, catalog: Catalog) -> Route | None:
    """The route of a path in a group that only definitions have; None where there is none."""
    parts = path.rstrip("/").split("/")
    if len(parts) < 5 or parts[1] != "apis" or parts[2] in GROUPS or parts[2] not in catalog.groups:
        return None
    group, version, rest = parts[2], parts[3], parts[4:]
    if version not in catalog.groups[group] or "" in rest:
        raise no_such_resource()
    named = rest[1:] if rest[0] == "watch" and len(rest) > 1 else rest
    plural = named[2] if named[0] == "namespaces" and len(named) > 2 else named[0]
    added = catalog.by_path.get((group, version, plural))
    if added is None:
        raise no_such_resource()
    found = _resource_route(method, group, version, rest, is_true(query, "watch"), added)
    return msgspec.structs.replace(found, added=added)


def _resource_route(
    method: str, group: str, version: str, rest: list[str], watch: bool, added: Kind | None = None
) -> Route:
    watch_path = rest[0] == "watch" and len(rest) > 1
    if watch_path:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    tail = ""
    if group == "" and rest[0] == "nodes" and len(rest) > 3 and rest[2] == "proxy":
        tail, rest = "/".join(rest[3:]), rest[:3]
    if len(rest) > 3:
        raise no_such_resource()
    resource, name, subresource = [*rest, "", ""][:3]
    verbs = _ON_SUBRESOURCE if subresource else _ON_OBJECT if name else _ON_COLLECTION
    verb = verbs.get(method)
    if verb in ("list", "get") and (watch_path or (verb == "list" and watch)):
        verb = "watch"
    if verb is None:
        Route("get", group, version, resource, namespace, name, subresource, added=added).kind  # noqa: B018 - 404 first
        raise method_not_allowed()
    return Route(verb, group, version, resource, namespace, name, subresource, watch_path, tail)
