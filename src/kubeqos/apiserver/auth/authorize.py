"""The whole question "may they?": masters, the node rule, RBAC, and how a refusal is worded."""

from __future__ import annotations

from kubeqos.apiserver.auth.noderule import NodeRule
from kubeqos.apiserver.auth.rbac import Attributes, Decision, Policy
from kubeqos.codec import JsonObject
from kubeqos.web.identity import MASTERS, Identity
from kubeqos.web.status import ApiError

ALLOWED_MASTERS = Decision(True, f'"{MASTERS}" may do everything')


class Authorizer:
    """Asked once per request."""

    def __init__(self, policy: Policy, node_rule: NodeRule) -> None:
        self.policy = policy
        self.node_rule = node_rule

    def decide(self, identity: Identity, wanted: Attributes) -> Decision:
        """The first of masters, node rule and RBAC that allows it; else a refusal with the reasons there are."""
        if MASTERS in identity.groups:
            return ALLOWED_MASTERS
        by_node = self.node_rule.decide(identity, wanted)
        if by_node is not None and by_node.allowed:
            return by_node
        by_rbac = self.policy.decide(identity, wanted)
        if by_rbac.allowed or by_node is None:
            return by_rbac
        return Decision(False, ", ".join(filter(None, (by_node.because, by_rbac.because))))

    def escalates(self, identity: Identity, namespace: str, rules: list[JsonObject]) -> list[Attributes]:
        """What writing a role with these rules, or binding one, would grant beyond the writer's own permissions."""
        return [] if MASTERS in identity.groups else self.policy.exceeds(identity, namespace, rules)


def refusal(identity: Identity, wanted: Attributes, because: str) -> ApiError:
    """The 403."""
    details: JsonObject = {}
    if wanted.name and wanted.resource:
        details["name"] = wanted.name
    if wanted.group:
        details["group"] = wanted.group
    if wanted.resource:
        details["kind"] = wanted.resource
    return ApiError(403, "Forbidden", forbidden_message(identity, wanted, because), details=details)


def forbidden_message(identity: Identity, wanted: Attributes, because: str = "") -> str:
    """The message of a 403 as Kubernetes words it."""
    suffix = f": {because}" if because else ""
    if not wanted.resource:
        return f'forbidden: User "{identity.user}" cannot {wanted.verb} path "{wanted.path}"{suffix}'
    what = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    if wanted.name:
        what += f' "{wanted.name}"'
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    return (
        f'{what} is forbidden: User "{identity.user}" cannot {wanted.verb} resource "{wanted.combined}"'
        f' in API group "{wanted.group}" {where}{suffix}'
    )
