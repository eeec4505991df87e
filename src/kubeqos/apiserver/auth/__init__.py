"""Who asks, and whether they may: certificates, tokens, RBAC and the node rule.

Called by the API server before anything else looks at a request. `pki`, `kubeconfig`, `tls` and `tokens` touch files
and sockets; `rbac`, `noderule` and `authorize` are pure decisions that carry their reasons.
"""

from kubeqos.apiserver.auth.authenticate import Authenticator, Unauthenticated
from kubeqos.apiserver.auth.authorize import Authorizer, forbidden_message
from kubeqos.apiserver.auth.defaults import default_objects
from kubeqos.apiserver.auth.identity import ANONYMOUS, Identity
from kubeqos.apiserver.auth.impersonate import Refused, impersonate
from kubeqos.apiserver.auth.kubeconfig import write_kubeconfig
from kubeqos.apiserver.auth.noderule import NodeFacts, NodeRule
from kubeqos.apiserver.auth.pki import Pki
from kubeqos.apiserver.auth.rbac import Attributes, Decision, Policy
from kubeqos.apiserver.auth.tls import PeerCertificateProtocol, PeerCertificateSocket, client_context, server_context
from kubeqos.apiserver.auth.tokens import StaticTokens, TokenSigner

__all__ = [
    "ANONYMOUS",
    "Attributes",
    "Authenticator",
    "Authorizer",
    "Decision",
    "Identity",
    "NodeFacts",
    "NodeRule",
    "PeerCertificateProtocol",
    "PeerCertificateSocket",
    "Pki",
    "Policy",
    "Refused",
    "StaticTokens",
    "TokenSigner",
    "Unauthenticated",
    "client_context",
    "default_objects",
    "forbidden_message",
    "impersonate",
    "server_context",
    "write_kubeconfig",
]
