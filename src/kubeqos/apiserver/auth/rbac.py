"""Role-based access control as a pure decision: identity, attributes, policy in; allowed or not, and why, out.

`Policy` holds the compiled Roles, ClusterRoles and bindings. The API server feeds it every change of those objects and
asks it for every request, so rules are compiled once per revision of a role, and what an identity is granted in a
namespace is remembered until some RBAC object changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeqos.codec import JsonObject
from kubeqos.web.identity import Identity

GROUP = "rbac.authorization.k8s.io"
REMEMBERED = 4096  # identities × namespaces


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """What a request wants to do. A request without a resource is for the path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    on_node: str = ""
    """Of a list or watch: the node that its field selector asks for."""

    @property
    def combined(self) -> str:
        """The resource as rules name it: `pods` or `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed or not; `because` is empty when no rule said anything."""

    allowed: bool
    because: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule, compiled."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: JsonObject) -> Rule:
        return cls(
            frozenset(raw.get("verbs") or ()),
            frozenset(raw.get("apiGroups") or ()),
            frozenset(raw.get("resources") or ()),
            frozenset(raw.get("resourceNames") or ()),
            tuple(raw.get("nonResourceURLs") or ()),
        )

    def allows(self, wanted: Attributes) -> bool:
        if not has(self.verbs, wanted.verb):
            return False
        if not wanted.resource:
            return any(
                url == wanted.path or (url[-1:] == "*" and wanted.path.startswith(url[:-1])) for url in self.urls
            )
        return (
            has(self.groups, wanted.group)
            and (has(self.resources, wanted.combined) or self._any_with(wanted.subresource))
            and (not self.names or wanted.name in self.names)
        )

    def _any_with(self, subresource: str) -> bool:
        return bool(subresource) and f"*/{subresource}" in self.resources

    def parts(self) -> Iterator[Attributes]:
        """The rule taken apart into single permissions, wildcards kept as they are."""
        for verb in sorted(self.verbs):
            for path in self.urls:
                yield Attributes(verb, path=path)
            for group in sorted(self.groups):
                for combined in sorted(self.resources):
                    resource, _, subresource = combined.partition("/")
                    for name in sorted(self.names) or [""]:
                        yield Attributes(verb, group, resource, subresource, name=name)


@dataclass(frozen=True, slots=True)
class Binding:
    """A RoleBinding (with a namespace) or ClusterRoleBinding (without)."""

    name: str
    namespace: str
    role_kind: str
    role_name: str
    subjects: tuple[tuple[str, str], ...]  # ("User", name), ("Group", name); accounts as their users

    @classmethod
    def of(cls, raw: JsonObject) -> Binding:
        metadata, role = raw["metadata"], raw.get("roleRef") or {}
        namespace = metadata.get("namespace", "") if raw.get("kind") == "RoleBinding" else ""
        subjects = tuple(subject_of(subject, namespace) for subject in raw.get("subjects") or ())
        return cls(metadata["name"], namespace, role.get("kind", ""), role.get("name", ""), subjects)

    @property
    def role(self) -> tuple[str, str, str]:
        return self.role_kind, self.namespace if self.role_kind == "Role" else "", self.role_name

    def because(self, subject: tuple[str, str]) -> str:
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        return f'RBAC: allowed by {kind} "{name}" of {self.role_kind} "{self.role_name}" to {describe(subject)}'


@dataclass(frozen=True, slots=True)
class Grant:
    """What one binding gives: the role's rules, or the role that is missing."""

    rules: tuple[Rule, ...]
    because: str
    missing: str = ""


class Policy:
    """The RBAC objects, compiled."""

    def __init__(self, objects: Iterable[JsonObject] = ()) -> None:
        self._roles: dict[tuple[str, str, str], tuple[Rule, ...]] = {}
        self._raw_rules: dict[tuple[str, str, str], list[JsonObject]] = {}
        self._revisions: dict[tuple[str, str, str], str] = {}
        self._bindings: dict[str, dict[str, Binding]] = {}  # by namespace, "" for the cluster
        self._granted: dict[tuple[str, tuple[str, ...], str], tuple[Grant, ...]] = {}
        for raw in objects:
            self.put(raw)

    def put(self, raw: JsonObject) -> None:
        """A Role, ClusterRole or binding was written."""
        kind, metadata = raw["kind"], raw["metadata"]
        key = kind, metadata.get("namespace", ""), metadata["name"]
        revision = metadata.get("resourceVersion", "")
        if revision and self._revisions.get(key) == revision:
            return
        self._revisions[key] = revision
        if kind in ("Role", "ClusterRole"):
            self._raw_rules[key] = raw.get("rules") or []
            self._roles[key] = tuple(map(Rule.of, self._raw_rules[key]))
        else:
            binding = Binding.of(raw)
            self._bindings.setdefault(binding.namespace, {})[binding.name] = binding
        self._granted.clear()

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """A Role, ClusterRole or binding was deleted."""
        key = kind, namespace, name
        self._revisions.pop(key, None)
        if kind in ("Role", "ClusterRole"):
            self._roles.pop(key, None)
            self._raw_rules.pop(key, None)
        else:
            self._bindings.get(namespace, {}).pop(name, None)
        self._granted.clear()

    def decide(self, identity: Identity, wanted: Attributes) -> Decision:
        """Whether some binding allows it, and which; when none does, the roles that were bound but do not exist."""
        missing = []
        for namespace in ("", wanted.namespace) if wanted.namespace else ("",):
            for grant in self.granted(identity, namespace):
                if any(rule.allows(wanted) for rule in grant.rules):
                    return Decision(True, grant.because)
                if grant.missing:
                    missing.append(grant.missing)
        if not missing:
            return Decision(False)
        return Decision(False, "RBAC: " + (missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"))

    def granted(self, identity: Identity, namespace: str) -> tuple[Grant, ...]:
        """What the bindings of one namespace ("" for the cluster's) give this identity."""
        key = identity.user, identity.groups, namespace
        found = self._granted.get(key)
        if found is None:
            if len(self._granted) >= REMEMBERED:
                self._granted.clear()
            found = self._granted[key] = tuple(self._grants(identity, namespace))
        return found

    def _grants(self, identity: Identity, namespace: str) -> Iterator[Grant]:
        for binding in self._bindings.get(namespace, {}).values():
            subject = next((subject for subject in binding.subjects if is_subject(identity, subject)), None)
            if subject is None:
                continue
            rules = self._roles.get(binding.role)
            missing = (
                "" if rules is not None else f'{binding.role_kind.lower()}.{GROUP} "{binding.role_name}" not found'
            )
            yield Grant(rules or (), binding.because(subject), missing)

    def rules_for(self, identity: Identity, namespace: str) -> list[JsonObject]:
        """The rules that hold for an identity in a namespace, as written: for SelfSubjectRulesReview."""
        found = []
        for place in dict.fromkeys(["", namespace]):
            for binding in self._bindings.get(place, {}).values():
                if any(is_subject(identity, subject) for subject in binding.subjects):
                    found += self._raw_rules.get(binding.role, [])
        return found

    def exceeds(self, identity: Identity, namespace: str, rules: Iterable[JsonObject]) -> list[Attributes]:
        """Permissions in these rules that the identity does not hold itself: granting them would be escalation."""
        owned = [
            rule for place in dict.fromkeys(["", namespace]) for g in self.granted(identity, place) for rule in g.rules
        ]
        wanted = [part for raw in rules for part in Rule.of(raw).parts()]
        return [part for part in wanted if not any(rule.allows(part) for rule in owned)]

    def rules_of(self, role_kind: str, namespace: str, name: str) -> list[JsonObject] | None:
        """The rules of a role as written; None when there is no such role."""
        return self._raw_rules.get((role_kind, namespace if role_kind == "Role" else "", name))


def has(allowed: frozenset[str], wanted: str) -> bool:
    return wanted in allowed or "*" in allowed


def subject_of(raw: JsonObject, namespace: str) -> tuple[str, str]:
    kind, name = str(raw.get("kind", "")), str(raw.get("name", ""))
    if kind == "ServiceAccount":
        return kind, f"system:serviceaccount:{raw.get('namespace') or namespace}:{name}"
    return kind, name


def is_subject(identity: Identity, subject: tuple[str, str]) -> bool:
    kind, name = subject
    return name in identity.groups if kind == "Group" else name == identity.user and kind in ("User", "ServiceAccount")


def describe(subject: tuple[str, str]) -> str:
    kind, name = subject
    if kind == "ServiceAccount":
        _, _, namespace, account = name.split(":", 3)
        return f'ServiceAccount "{account}/{namespace}"'
    return f'{kind} "{name}"'


def rule(verbs: str, groups: str = "", resources: str = "", urls: str = "") -> dict[str, Any]:
    """A PolicyRule from comma lists; the core group is written as an empty item."""
    if urls:
        return {"nonResourceURLs": urls.split(","), "verbs": verbs.split(",")}
    return {"apiGroups": groups.split(","), "resources": resources.split(","), "verbs": verbs.split(",")}
