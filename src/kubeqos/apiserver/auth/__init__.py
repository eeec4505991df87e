"""Who asks, and whether they may: tokens, RBAC and the node rule.

Called by the API server before anything else looks at a request. `kubeconfig` and `tokens` touch files; `rbac`,
`noderule` and `authorize` are pure decisions that carry their reasons.
"""

from kubeqos.apiserver.auth.authenticate import Authenticator, Unauthenticated
from kubeqos.apiserver.auth.authorize import Authorizer, forbidden_message
from kubeqos.apiserver.auth.defaults import default_objects
from kubeqos.apiserver.auth.impersonate import ImpersonationRefused, impersonate
from kubeqos.apiserver.auth.kubeconfig import write_kubeconfig
from kubeqos.apiserver.auth.noderule import NodeFacts, NodeRule
from kubeqos.apiserver.auth.rbac import Attributes, Decision, Policy
from kubeqos.apiserver.auth.tokens import StaticTokens, TokenSigner

__all__ = [
    "Attributes",
    "Authenticator",
    "Authorizer",
    "Decision",
    "ImpersonationRefused",
    "NodeFacts",
    "NodeRule",
    "Policy",
    "StaticTokens",
    "TokenSigner",
    "Unauthenticated",
    "default_objects",
    "forbidden_message",
    "impersonate",
    "write_kubeconfig",
]
