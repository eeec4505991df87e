"""Who is let in: identities × verbs × kinds × places, as questions that a real kube-apiserver and ours can be asked.

`data/access.jsonl.gz` holds what a real one answered (`tests/stock/test_same_access.py` records and compares it); the
quick test asks ours. Everything is called `own`: a node, the pod bound to it in the namespace `team`, and what that pod
refers to. So one question tells what a node may do with its own things, and what another node may do with them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kubeqos.apiserver.registry.kinds import KINDS, Kind
from kubeqos.codec import encode_json
from kubeqos.web.identity import ANONYMOUS, MASTERS, NODES, Identity
from tests.conformance.recorded import DATA, cases

Raw = dict[str, Any]
Cell = tuple[str, str, str, str]
"""Who, where ("" is the cluster), API group, resource with its subresource: beside the verbs that are allowed."""

NAME, TEAM, ELSEWHERE, LEASES = "own", "team", "elsewhere", "kube-node-lease"

IDENTITIES: dict[str, Identity] = {
    "anonymous": ANONYMOUS,
    "nobody": Identity.authenticated("nobody"),
    "masters": Identity.authenticated("root", [MASTERS]),
    "cluster-admin": Identity.authenticated("cluster-admin"),
    "admin": Identity.authenticated("admin-of-team"),
    "edit": Identity.authenticated("editor-of-team"),
    "view": Identity.authenticated("viewer-of-team"),
    "account": Identity.service_account(TEAM, "plain"),
    "account that edits": Identity.service_account(TEAM, "editor"),
    "own node": Identity.authenticated(f"system:node:{NAME}", [NODES]),
    "other node": Identity.authenticated("system:node:other", [NODES]),
    "node without its group": Identity.authenticated(f"system:node:{NAME}"),
    "scheduler": Identity.authenticated("system:kube-scheduler"),
    "controller manager": Identity.authenticated("system:kube-controller-manager"),
    "proxy": Identity.authenticated("system:kube-proxy"),
}

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
UNNAMED = ("create", "list", "watch", "deletecollection")
SPECIAL = {  # verbs that are no requests of their own
    ("", "users"): ("impersonate",),
    ("", "groups"): ("impersonate",),
    ("", "serviceaccounts"): ("impersonate",),
    ("authentication.k8s.io", "uids"): ("impersonate",),
    ("authentication.k8s.io", "userextras/scopes"): ("impersonate",),
    ("certificates.k8s.io", "signers"): ("approve", "attest", "sign"),
    ("rbac.authorization.k8s.io", "clusterroles"): ("bind", "escalate"),
    ("rbac.authorization.k8s.io", "roles"): ("bind", "escalate"),
}
PATHS = (
    *("/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/livez", "/livez/ping", "/logs", "/metrics"),
    *("/openapi/v2", "/openapi/v3", "/readyz", "/version", "/version/", "/debug/pprof"),
    *("/.well-known/openid-configuration", "/openid/v1/jwks"),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One thing that somebody wants."""

    who: str
    where: str
    group: str
    resource: str
    verb: str

    @property
    def cell(self) -> Cell:
        return self.who, self.where, self.group, self.resource

    @property
    def review(self) -> Raw:
        """The question as the spec of a SubjectAccessReview."""
        identity = IDENTITIES[self.who]
        asker = {"user": identity.user, "groups": list(identity.groups)}
        if self.resource.startswith("/"):
            return {**asker, "nonResourceAttributes": {"verb": self.verb, "path": self.resource}}
        resource, _, subresource = self.resource.partition("/")
        wanted = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource}
        name = "" if self.verb in UNNAMED and not subresource else NAME
        return {**asker, "resourceAttributes": {**wanted, "namespace": self.where, "name": name}}


def resources() -> dict[tuple[str, str], bool]:
    """Every resource and subresource of the table of kinds, and whether it is in a namespace."""
    found: dict[tuple[str, str], bool] = {}
    for kind in KINDS:
        for below in ("", *(f"/{sub.name}" for sub in kind.subresources)):
            found[kind.group, kind.plural + below] = kind.namespaced
    return found


def questions() -> Iterator[Question]:
    """The whole table."""
    for who in IDENTITIES:
        for (group, resource), namespaced in resources().items():
            places = [TEAM, ELSEWHERE, ""] if namespaced else [""]
            places += [LEASES] if resource == "leases" else []
            for where in places:
                for verb in VERBS:
                    yield Question(who, where, group, resource, verb)
        for (group, resource), verbs in SPECIAL.items():
            for verb in verbs:
                for where in (TEAM, ""):
                    yield Question(who, where, group, resource, verb)
        for path in PATHS:
            yield Question(who, "", "", path, "get")


Allowed = dict[Cell, set[str]]


def read(name: str) -> Allowed:
    """What was recorded: one line for each identity and place, verbs by resource."""
    return {
        (line["who"], line["where"], group, resource): set(verbs.split(","))
        for line in cases(name)
        for group, resource, verbs in line["allowed"]
    }


def written(name: str, found: Allowed) -> None:
    """Record it; the same answers make the same file."""
    lines: dict[tuple[str, str], list[list[str]]] = {}
    for (who, where, group, resource), verbs in sorted(found.items()):
        lines.setdefault((who, where), []).append([group, resource, ",".join(sorted(verbs))])
    text = b"".join(
        encode_json({"who": who, "where": where, "allowed": allowed}) + b"\n" for (who, where), allowed in lines.items()
    )
    (DATA / f"{name}.jsonl.gz").write_bytes(gzip.compress(text, mtime=0))


def collected(answers: Iterable[tuple[Question, bool]]) -> Allowed:
    found: Allowed = {}
    for question, allowed in answers:
        if allowed:
            found.setdefault(question.cell, set()).add(question.verb)
    return found


# The same over HTTP, with real credentials. Nothing is changed by it: what writes is a dry run of nothing.

METHODS = {"get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "create": "POST", "list": "GET"}
METHODS |= {"watch": "GET", "deletecollection": "DELETE"}
DRY = "?dryRun=All"
QUERIES = {
    "get": "",
    "list": "?limit=1",
    "watch": "?watch=1&resourceVersion=none",
    "deletecollection": f"{DRY}&labelSelector=no=such",
}
CALLERS = ("anonymous", "nobody", "admin", "edit", "view", "account", "account that edits", "own node", "other node")


@dataclass(frozen=True)
class Call:
    """A question as a request."""

    question: Question
    version: str

    @property
    def method(self) -> str:
        return METHODS[self.question.verb]

    @property
    def path(self) -> str:
        asked = self.question
        root = f"/apis/{asked.group}/{self.version}" if asked.group else f"/api/{self.version}"
        resource, _, subresource = asked.resource.partition("/")
        place = f"/namespaces/{asked.where}" if asked.where else ""
        named = f"/{NAME}" if subresource or asked.verb not in UNNAMED else ""
        below = f"/{subresource}" if subresource else ""
        return root + place + f"/{resource}" + named + below + QUERIES.get(asked.verb, DRY)

    @property
    def body(self) -> bytes | None:
        return None if self.method in ("GET", "DELETE") else b"{}"

    @property
    def content_type(self) -> str:
        return "application/merge-patch+json" if self.method == "PATCH" else "application/json"


def calls(who: str, kinds: Iterable[Kind] = KINDS) -> Iterator[Call]:
    """Every verb that a kind has, where its objects are and, for one that is in a namespace, in all at once."""
    for kind in kinds:
        for below, verbs in (("", kind.verbs), *((f"/{sub.name}", sub.verbs) for sub in kind.subresources)):
            for verb in verbs:
                places = [TEAM, ELSEWHERE] if kind.namespaced else [""]
                if kind.namespaced and not below and verb in ("list", "watch"):
                    places.append("")
                for where in places:
                    question = Question(who, where, kind.group, kind.plural + below, verb)
                    yield Call(question, kind.version)


def is_let_in(code: int) -> bool:
    """Refused for who asks, or answered, if only with what is wrong with the question."""
    return code not in (401, 403)


# What there must be before anything is asked.

RBAC = "rbac.authorization.k8s.io"


def _object(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Raw:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **place}, **more}


def _bound(role: str, subject: Raw, namespace: str = "") -> Raw:
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    name = f"{role}-{subject['name']}".replace(":", "-")
    return _object(f"{RBAC}/v1", kind, name, namespace, roleRef=reference, subjects=[subject])


def _user(who: str) -> Raw:
    return {"kind": "User", "apiGroup": RBAC, "name": IDENTITIES[who].user}


def _pod() -> Raw:
    volumes = [
        {"name": "secret", "secret": {"secretName": NAME}},
        {"name": "map", "configMap": {"name": NAME}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": NAME}},
    ]
    spec = {"nodeName": NAME, "serviceAccountName": NAME, "volumes": volumes}
    return _object("v1", "Pod", NAME, TEAM, spec={**spec, "containers": [{"name": "c", "image": "i"}]})


def world() -> list[tuple[str, Raw]]:
    """Objects by the path to which they are posted."""
    core = "/api/v1"
    team = f"{core}/namespaces/{TEAM}"
    bindings = f"/apis/{RBAC}/v1/namespaces/{TEAM}/rolebindings"
    editor = {"kind": "ServiceAccount", "name": "editor", "namespace": TEAM}
    return [
        *((f"{core}/namespaces", _object("v1", "Namespace", name)) for name in (TEAM, ELSEWHERE)),
        *((f"{core}/nodes", _object("v1", "Node", name)) for name in (NAME, "other")),
        *((f"{team}/serviceaccounts", _object("v1", "ServiceAccount", one, TEAM)) for one in (NAME, "plain", "editor")),
        (f"{team}/secrets", _object("v1", "Secret", NAME, TEAM)),
        (f"{team}/configmaps", _object("v1", "ConfigMap", NAME, TEAM)),
        (f"{team}/pods", _pod()),
        *((bindings, _bound(role, _user(role), TEAM)) for role in ("admin", "edit", "view")),
        (bindings, _bound("edit", editor, TEAM)),
        (f"/apis/{RBAC}/v1/clusterrolebindings", _bound("cluster-admin", _user("cluster-admin"))),
    ]  # fmt: skip
