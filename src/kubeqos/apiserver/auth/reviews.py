"""Questions about access that are answered and never stored: who am I, what may I do, what may they do."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.apiserver.auth import Attributes, Unauthenticated
from kubeqos.apiserver.auth.access import Access, selected
from kubeqos.apiserver.auth.tokens import AUDIENCE, TokenSigner
from kubeqos.apiserver.present.bodies import object_body
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import ordered
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import JsonObject, encode_json
from kubeqos.web.identity import Identity
from kubeqos.web.messages import Response
from kubeqos.web.status import bad_request, cause, invalid

_ACCESS = ("SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview")

_EVERYTHING: tuple[JsonObject, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


@dataclass
class Reviews:
    """Handler of the review kinds."""

    access: Access
    tokens: TokenSigner | None = None

    async def create(self, request: Request, route: Route, kind: Kind) -> Response:
        review = object_body(request, kind)
        spec = review.get("spec") or {}
        if kind.kind in _ACCESS and (found := _named(review["metadata"], kind)):
            why = f"Invalid value: {encode_json(found).decode()}: must be empty"
            raise invalid(kind.kind, kind.group, "", [cause("metadata", "FieldValueInvalid", why)])
        match kind.kind:
            case "SelfSubjectReview":
                status: JsonObject = {"userInfo": user_info(request.identity)}
            case "SelfSubjectRulesReview":
                if not spec.get("namespace"):
                    raise bad_request("no namespace on request")
                status = self._rules(request.identity, spec["namespace"])
            case "TokenReview":
                status = self._token(spec)
            case _:
                status = self._decide(request.identity, route, kind, spec)
        review["status"] = status
        return Response(201, encode_json(ordered(kind, review, None)))

    def _decide(self, caller: Identity, route: Route, kind: Kind, spec: JsonObject) -> JsonObject:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource is not None and path is not None:
            shown = encode_json({"Path": path.get("path", ""), "Verb": path.get("verb", "")}).decode()
            why = f"Invalid value: {shown}: cannot be specified in combination with resourceAttributes"
            raise invalid(kind.kind, kind.group, "", [cause("spec.nonResourceAttributes", "FieldValueInvalid", why)])
        if resource is None and path is None:
            why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(kind.kind, kind.group, "", [cause("spec.resourceAttributes", "FieldValueInvalid", why)])
        identity = caller
        if kind.kind != "SelfSubjectAccessReview":
            if not spec.get("user") and not spec.get("groups"):
                why = 'Invalid value: "": at least one of user or group must be specified'
                raise invalid(kind.kind, kind.group, "", [cause("spec.user", "FieldValueInvalid", why)])
            identity = Identity(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
        if kind.kind == "LocalSubjectAccessReview" and (resource or {}).get("namespace") != route.namespace:
            raise bad_request(f"spec.resourceAttributes.namespace must match namespace: {route.namespace}")
        decision = self.access.authorizer.decide(identity, asked_attributes(spec))
        status: JsonObject = {"allowed": decision.allowed}
        if decision.because:
            status["reason"] = decision.because
        return status

    def _rules(self, identity: Identity, namespace: str) -> JsonObject:
        rules = self.access.authorizer.policy.rules_for(identity, namespace)
        if "system:masters" in identity.groups:
            # They may do everything even when nobody binds cluster-admin to them.
            everything = [rule for rule in _EVERYTHING if rule not in rules]
            rules = [*everything, *rules]
        return {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }

    def _token(self, spec: JsonObject) -> JsonObject:
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        wanted = spec.get("audiences") or []
        signed = self.tokens.review(str(spec["token"]), wanted or [AUDIENCE]) if self.tokens is not None else None
        if signed is not None:
            return {"authenticated": True, "user": user_info(signed[0]), "audiences": signed[1]}
        if wanted and AUDIENCE not in wanted:  # no other credential is for anybody but this server
            return {"user": {}, "error": "[invalid bearer token, token audiences do not match]"}
        header = f"Bearer {spec['token']}".encode("latin-1", "replace")
        identity = self.access.authenticator.identify(None, header)
        if isinstance(identity, Unauthenticated):
            return {"user": {}, "error": identity.because}
        return {"authenticated": True, "user": user_info(identity), "audiences": [AUDIENCE]}


def _named(metadata: JsonObject, kind: Kind) -> JsonObject:
    """What of a review's metadata says more than where it was sent."""
    where = ("namespace",) if kind.namespaced else ()
    return {name: value for name, value in metadata.items() if value and name not in ("managedFields", *where)}


def asked_attributes(spec: JsonObject) -> Attributes:
    """What a review asks about."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        found = spec.get("nonResourceAttributes") or {}
        return Attributes(found.get("verb", ""), path=found.get("path", ""))
    return Attributes(
        resource.get("verb", ""),
        resource.get("group", ""),
        resource.get("resource", ""),
        resource.get("subresource", ""),
        resource.get("namespace", ""),
        resource.get("name", ""),
        on_node=_node_selected(resource.get("fieldSelector") or {}),
    )


def _node_selected(selector: JsonObject) -> str:
    """The node that a list would be restricted to."""
    if selector.get("rawSelector"):
        return selected(str(selector["rawSelector"]))[1]
    for term in selector.get("requirements") or ():
        if (term.get("key"), term.get("operator")) == ("spec.nodeName", "In") and len(term.get("values") or ()) == 1:
            return str(term["values"][0])
    return ""


def user_info(identity: Identity) -> JsonObject:
    found: JsonObject = {"username": identity.user}
    if identity.uid:
        found["uid"] = identity.uid
    found["groups"] = list(identity.groups)
    return found
