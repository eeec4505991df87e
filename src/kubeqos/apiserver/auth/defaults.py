"""The ClusterRoles and bindings that every cluster starts with, under Kubernetes' names.

The API server writes the ones that are missing when it starts. `admin`, `edit` and `view` grow from one another here;
Kubernetes assembles them by aggregation, to the same effect.
"""

from __future__ import annotations

from typing import Any

from kubeqos.apiserver.auth.rbac import GROUP, rule
from kubeqos.codec import JsonObject
from kubeqos.web.identity import AUTHENTICATED, MASTERS

READ = "get,list,watch"
WRITE = "create,delete,deletecollection,patch,update"
CONTROLLERS = "replicationcontrollers,replicationcontrollers/scale"
WORKLOADS = f"configmaps,persistentvolumeclaims,pods,{CONTROLLERS},serviceaccounts,services"
STATUSES = "persistentvolumeclaims/status,pods/log,pods/status,replicationcontrollers/status,services/status"
SCOPING = "bindings,events,limitranges,namespaces,namespaces/status,resourcequotas,resourcequotas/status"
APPS = "deployments,deployments/scale,replicasets,replicasets/scale"
CLAIMS = "resourceclaims,resourceclaimtemplates"

VIEW = [
    rule(READ, "", f"{WORKLOADS},{STATUSES},{SCOPING}"),
    rule(READ, "apps", f"{APPS},deployments/status,replicasets/status"),
    rule(READ, "resource.k8s.io", f"{CLAIMS},resourceclaims/status"),
]
EDIT = [
    *VIEW,
    rule(f"{READ},{WRITE}", "", "secrets,pods/attach,pods/exec,pods/portforward,pods/proxy,services/proxy"),
    rule(WRITE, "", WORKLOADS),
    rule("patch,update", "", "pods/resize"),
    rule("create", "", "pods/eviction"),
    rule("create,patch,update", "", "events"),
    rule("create", "", "serviceaccounts/token"),
    rule("impersonate", "", "serviceaccounts"),
    rule(WRITE, "apps", APPS),
    rule(WRITE, "resource.k8s.io", CLAIMS),
]
ADMIN = [
    *EDIT,
    rule(f"{READ},{WRITE}", GROUP, "roles,rolebindings"),
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
]
DISCOVERY = rule("get", urls="/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/")
PUBLIC_INFO = rule("get", urls="/healthz,/livez,/readyz,/version,/version/")
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
}
BINDINGS: dict[str, tuple[str, list[str]]] = {  # name → role, groups
    "cluster-admin": ("cluster-admin", [MASTERS]),
    "system:basic-user": ("system:basic-user", [AUTHENTICATED]),
    "system:discovery": ("system:discovery", [AUTHENTICATED]),
    "system:public-info-viewer": ("system:public-info-viewer", [AUTHENTICATED, "system:unauthenticated"]),
}


def default_objects() -> list[JsonObject]:
    """The objects as they are created, without what the API server adds."""
    roles = [{**header("ClusterRole", name), "rules": rules} for name, rules in ROLES.items()]
    bindings = [
        {
            **header("ClusterRoleBinding", name),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
        }
        for name, (role, groups) in BINDINGS.items()
    ]
    return roles + bindings


def header(kind: str, name: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
