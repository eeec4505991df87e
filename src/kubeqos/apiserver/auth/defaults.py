"""The ClusterRoles and bindings that every cluster starts with, under Kubernetes' names.

The API server writes the ones that are missing when it starts. `admin`, `edit` and `view` grow from one another here;
Kubernetes assembles them by aggregation, to the same effect. What kube-scheduler, kube-controller-manager and its
controllers, kube-proxy and kubelets may do is listed in `roles.txt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.apiserver.auth.rbac import GROUP, rule
from kubeqos.codec import JsonObject
from kubeqos.web.identity import AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS

READ = "get,list,watch"
WRITE = "create,delete,deletecollection,patch,update"
CONTROLLERS = "replicationcontrollers,replicationcontrollers/scale"
WORKLOADS = f"configmaps,persistentvolumeclaims,pods,{CONTROLLERS},serviceaccounts,services"
STATUSES = "persistentvolumeclaims/status,pods/log,pods/status,replicationcontrollers/status,services/status"
SCOPING = "bindings,endpoints,events,limitranges,namespaces,namespaces/status,resourcequotas,resourcequotas/status"
APPS = "daemonsets,deployments,deployments/scale,replicasets,replicasets/scale,statefulsets,statefulsets/scale"
APP_STATUSES = "controllerrevisions,daemonsets/status,deployments/status,replicasets/status,statefulsets/status"
OTHERS = {  # group → what its editors write, what its viewers see beside that
    "autoscaling": ("horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    "batch": ("cronjobs,jobs", "cronjobs/status,jobs/status"),
    "discovery.k8s.io": ("", "endpointslices"),
    "events.k8s.io": ("events", ""),
    "networking.k8s.io": ("ingresses,networkpolicies", "ingresses/status"),
    "policy": ("poddisruptionbudgets", "poddisruptionbudgets/status"),
}
CLAIMS = "resourceclaims,resourceclaimtemplates"

VIEW = [
    rule(READ, "", f"{WORKLOADS},{STATUSES},{SCOPING}"),
    rule(READ, "apps", f"{APPS},{APP_STATUSES}"),
    *(rule(READ, group, ",".join(filter(None, names))) for group, names in OTHERS.items()),
    rule(READ, "resource.k8s.io", f"{CLAIMS},resourceclaims/status"),
    rule(READ, "metrics.k8s.io", "pods"),  # as metrics-server aggregates it to this role
    rule(READ, "decisions.kubeqos.io", "poddecisions"),
]
EDIT = [
    *VIEW,
    rule(f"{READ},{WRITE}", "", "secrets,pods/attach,pods/exec,pods/portforward,pods/proxy,services/proxy"),
    rule(WRITE, "", WORKLOADS),
    rule("patch,update", "", "pods/resize"),  # who may replace a pod may resize it; Kubernetes leaves it to nobody
    rule("create", "", "pods/eviction"),
    rule(WRITE, "", "events"),
    rule("create", "", "serviceaccounts/token"),
    rule("impersonate", "", "serviceaccounts"),
    rule(WRITE, "apps", APPS),
    *(rule(WRITE, group, names[0]) for group, names in OTHERS.items() if names[0]),
    rule(WRITE, "resource.k8s.io", CLAIMS),
    rule(f"{READ},{WRITE}", "coordination.k8s.io", "leases"),
]
ADMIN = [
    *EDIT,
    rule(f"{READ},{WRITE}", GROUP, "roles,rolebindings"),
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
]
DISCOVERY = rule("get", urls="/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/")
PUBLIC_INFO = rule("get", urls="/healthz,/livez,/readyz,/version,/version/")
ISSUER = rule(
    "get", urls="/.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/"
)
REVIEWS = [
    rule("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews"),
    rule("create", "authentication.k8s.io", "selfsubjectreviews"),
]

ROLES: dict[str, list[JsonObject]] = {
    "cluster-admin": [rule("*", "*", "*"), rule("*", urls="*")],
    "admin": ADMIN,
    "edit": EDIT,
    "view": VIEW,
    "system:basic-user": REVIEWS,
    "system:discovery": [DISCOVERY],
    "system:public-info-viewer": [PUBLIC_INFO],
    "system:service-account-issuer-discovery": [ISSUER],
    "system:cluster-trust-bundle-discovery": [rule(READ, "certificates.k8s.io", "clustertrustbundles")],
}
BINDINGS: dict[str, tuple[str, list[str]]] = {  # name → role, groups
    "cluster-admin": ("cluster-admin", [MASTERS]),
    "system:basic-user": ("system:basic-user", [AUTHENTICATED]),
    "system:discovery": ("system:discovery", [AUTHENTICATED]),
    "system:public-info-viewer": ("system:public-info-viewer", [AUTHENTICATED, "system:unauthenticated"]),
    "system:service-account-issuer-discovery": ("system:service-account-issuer-discovery", [SERVICE_ACCOUNTS]),
    "system:cluster-trust-bundle-discovery": ("system:cluster-trust-bundle-discovery", [SERVICE_ACCOUNTS]),
}


_USERS = {  # role → the component that has it
    "system:kube-controller-manager": "system:kube-controller-manager",
    "system:kube-scheduler": "system:kube-scheduler",
    "system:volume-scheduler": "system:kube-scheduler",
    "system:node-proxier": "system:kube-proxy",
}
_CONTROLLER = "system:controller:"
_AUTHENTICATION_READER = "extension-apiserver-authentication-reader"
_LOCKS = ("kube-controller-manager", "kube-scheduler")


def component_roles() -> dict[str, list[JsonObject]]:
    """The roles of `roles.txt` by their names."""
    found: dict[str, list[JsonObject]] = {}
    rules: list[JsonObject] = []
    for line in Path(__file__).with_name("roles.txt").read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith(" "):
            rules = found[line] = []
            continue
        verbs, groups, resources, names, urls = (*map(str.strip, line.split("|")), "", "", "", "")[:5]
        if urls:
            rules.append(rule(verbs, urls=urls))
            continue
        one = rule(verbs, _groups(groups), resources)
        rules.append({**one, "resourceNames": names.split(",")} if names else one)
    return found


def _groups(text: str) -> str:
    return ",".join("" if group == "-" else group for group in text.split(","))


def component_objects() -> list[JsonObject]:
    """Roles and bindings of Kubernetes' own components, and the locks by which the leader of each is found."""
    roles = component_roles()
    found: list[JsonObject] = [{**header("ClusterRole", name), "rules": rules} for name, rules in roles.items()]
    for name in roles:
        if name in _USERS:
            found.append(_binding("ClusterRoleBinding", "ClusterRole", name, name, [_user(_USERS[name])]))
        elif name.startswith(_CONTROLLER):
            account = {"kind": "ServiceAccount", "name": name.removeprefix(_CONTROLLER), "namespace": "kube-system"}
            found.append(_binding("ClusterRoleBinding", "ClusterRole", name, name, [account]))
    reader = {**rule("get,list,watch", "", "configmaps"), "resourceNames": ["extension-apiserver-authentication"]}
    users = [_user(f"system:{component}") for component in _LOCKS]
    found += [
        _in_system({**header("Role", _AUTHENTICATION_READER), "rules": [reader]}),
        _in_system(_binding("RoleBinding", "Role", f"system::{_AUTHENTICATION_READER}", _AUTHENTICATION_READER, users)),
    ]
    for component in _LOCKS:
        name = f"system::leader-locking-{component}"
        lock = rule("create,get,list,update,watch", "coordination.k8s.io", "leases,leasecandidates")
        found.append(_in_system({**header("Role", name), "rules": [lock]}))
        found.append(_in_system(_binding("RoleBinding", "Role", name, name, [_user(f"system:{component}")])))
    return found


def _user(name: str) -> JsonObject:
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def _binding(kind: str, role_kind: str, name: str, role: str, subjects: list[JsonObject]) -> JsonObject:
    reference = {"apiGroup": GROUP, "kind": role_kind, "name": role}
    return {**header(kind, name), "roleRef": reference, "subjects": subjects}


def _in_system(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "kube-system"}}


def default_objects() -> list[JsonObject]:
    """The objects as they are created, without what the API server adds."""
    roles = [{**header("ClusterRole", name), "rules": rules} for name, rules in ROLES.items()]
    bindings = [
        _binding(
            "ClusterRoleBinding", "ClusterRole", name, role,
            [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
        )
        for name, (role, groups) in BINDINGS.items()
    ]  # fmt: skip
    return roles + bindings + component_objects()


def header(kind: str, name: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
