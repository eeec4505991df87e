"""What lives below an object: status, scale, eviction, resize, tokens, logs and exec; `binding` has its own module.

`status`, `resize` and `ephemeralcontainers` are views of the object and go through the ordinary writes; the others have
bodies of their own kind and are handled here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kubeqos.apiserver.auth import TokenSigner
from kubeqos.apiserver.auth.noderule import unbound
from kubeqos.apiserver.auth.tokens import AUDIENCE, BOUND_KINDS, Bound
from kubeqos.apiserver.nodes.proxy import NodeProxy
from kubeqos.apiserver.present.bodies import object_body, read_object
from kubeqos.apiserver.present.negotiation import form_of
from kubeqos.apiserver.present.options import (
    check_log_options,
    check_options,
    dry_run,
    field_manager,
    field_validation,
    read_delete_options,
)
from kubeqos.apiserver.present.tables import object_response
from kubeqos.apiserver.registry import scale as scales
from kubeqos.apiserver.registry.binding import set_condition
from kubeqos.apiserver.registry.core import CONNECT, Body, Core
from kubeqos.apiserver.registry.deletes import check_allowed, delete
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.registry.patching import patch_object
from kubeqos.apiserver.registry.writes import Transform, Write, Written, replace, update
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.selectors import LabelSelector
from kubeqos.model.timestamps import timestamp
from kubeqos.web.messages import Response, is_true
from kubeqos.web.status import (
    ApiError,
    bad_request,
    cause,
    conflict,
    forbidden,
    invalid,
    method_not_allowed,
    success,
    too_many_requests,
)

Handler = Callable[[Request, Route, Kind], Awaitable[Response]]
_VIEWS = ("status", "resize", "ephemeralcontainers", "finalize", "approval")
_STREAMS = ("stdin", "stdout", "stderr", "tty")
TOKEN_SECONDS = 3600
LEAST_TOKEN_SECONDS = 600
MAX_TOKEN_SECONDS = 365 * 86400


@dataclass
class Subresources:
    """The handlers of everything below an object's path."""

    core: Core
    nodes: NodeProxy
    tokens: TokenSigner | None = None

    async def handle(self, request: Request, route: Route, kind: Kind) -> Response:
        if route.subresource in _VIEWS:
            form = form_of(request, kind)
            written = await self._view(request, route, kind)
            return object_response(kind, written.value, form, request, self.core.clock())
        match route.subresource:
            case "eviction":
                return await self._evict(request, route)
            case "scale":
                return await scales.handle(self.core, request, route, kind)
            case "token":
                return await self._token(request, route, kind)
            case "proxy":
                if request.method != "GET":
                    raise method_not_allowed()
                await self._connected(request, route, kind)
                return await self.nodes.endpoint(route.name).get(route.tail, request.query)
        if route.subresource in CONNECTED:
            await self._connected(request, route, kind)
        return await self._node_side(request, route)

    def _write(self, request: Request, route: Route, kind: Kind, options_kind: str) -> Write:
        check_options(request, options_kind)
        return Write(
            kind.storage,
            route.namespace,
            route.name,
            route.subresource,
            view=None if kind.view is None else kind,
            dry_run=dry_run(request, options_kind),
            manager=field_manager(request),
            warnings=request.warnings,
            asked=request,
        )

    async def _view(self, request: Request, route: Route, kind: Kind) -> Written:
        match route.verb:
            case "get":
                return Written(self.core.stored(kind, route.namespace, route.name).value)
            case "patch":
                return await patch_object(self.core, self._write(request, route, kind, "PatchOptions"), request)
        obj = object_body(request, kind)
        return await replace(self.core, self._write(request, route, kind, "UpdateOptions"), obj)

    async def _reviewed(
        self,
        request: Request,
        route: Route,
        kind: Kind,
        body: Body,
        sent: JsonObject,
        operation: str = "CREATE",
        completed: Transform = lambda sent: sent,
    ) -> JsonObject:
        """What webhooks make of a body that is sent to a subresource; itself while none are configured."""
        if self.core.hooks is None:
            return sent
        write = self._write(request, route, kind, "CreateOptions")
        return await self.core.hooks.below(write, operation, body, sent, completed=completed)

    async def _connected(self, request: Request, route: Route, kind: Kind) -> None:
        """Let webhooks look at the wish to exec, attach, forward a port or speak to a node."""
        if self.core.hooks is None:
            return
        name, options = CONNECTED[route.subresource]
        sent = {"kind": f"{kind.kind}{name}Options", "apiVersion": "v1", **options(request, route)}
        await self._reviewed(request, route, kind, ("", "v1", sent["kind"]), sent, CONNECT)

    # eviction

    async def _evict(self, request: Request, route: Route) -> Response:
        check_options(request, "CreateOptions")
        eviction = read_object(request, "Eviction", "policy", "v1", field_validation(request))
        if eviction["metadata"].get("namespace") not in ("", None, route.namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if eviction["metadata"].get("name") != route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        pods = kind_named("Pod")
        self.core.stored(pods, route.namespace, route.name, pending=True)
        eviction = await self._reviewed(request, route, pods, ("policy", "v1", "Eviction"), eviction)
        options = read_delete_options(request, eviction.get("deleteOptions") or {})
        stored = self.core.stored(pods, route.namespace, route.name, pending=True)
        pod = decode(stored)
        check_allowed(pods, pod, stored, options)
        counted = _needs_budget(pod)
        budget = await self._spend_budget(route.namespace, pod, options.dry_run) if counted else ""
        if not options.dry_run:
            self.core.on_evicted(pod["metadata"].get("uid", ""), request.identity.user, budget)
            write = Write(pods, route.namespace, route.name, "status")
            await update(self.core, write, lambda old: _disrupted(old, self.core.clock()))
            options.version = ""  # it was the pod's; now it has the next one
        await delete(self.core, pods, route.namespace, route.name, options)
        return Response(201, encode_json(success(201)))

    async def _spend_budget(self, namespace: str, pod: JsonObject, dry: bool) -> str:
        """The name of the budget that allows it; empty where none counts the pod."""
        budgets = kind_named("PodDisruptionBudget", "policy")
        labels = pod["metadata"].get("labels")
        matching = []
        for stored in self.core.store.range(budgets.range_prefix(namespace)).items:
            budget = decode(stored)
            selector = (budget.get("spec") or {}).get("selector")
            if selector is not None and LabelSelector.of(selector).matches(labels):
                matching.append(budget)
        if len(matching) > 1:
            raise ApiError(
                400,
                "BadRequest",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        for budget in matching:
            _check_budget(budget)
            if not dry:
                await self._charge_budget(budget, pod["metadata"]["name"])
        return str(matching[0]["metadata"]["name"]) if matching else ""

    async def _charge_budget(self, budget: JsonObject, pod_name: str) -> None:
        kind = kind_named("PodDisruptionBudget", "policy")
        now = timestamp(self.core.clock())

        def charge(current: JsonObject) -> JsonObject:
            _check_budget(current)
            status = current["status"]
            status["disruptionsAllowed"] -= 1
            status.setdefault("disruptedPods", {})[pod_name] = now
            return current

        metadata = budget["metadata"]
        await update(self.core, Write(kind, metadata["namespace"], metadata["name"], "status"), charge)

    # tokens

    async def _token(self, request: Request, route: Route, kind: Kind) -> Response:
        """A short-lived token for a service account (`kubectl create token`)."""
        check_options(request, "CreateOptions")
        body = ("authentication.k8s.io", "v1", "TokenRequest")
        asked = read_object(request, "TokenRequest", "authentication.k8s.io", "v1", field_validation(request))
        account = decode(self.core.stored(kind, route.namespace, route.name))

        def completed(sent: JsonObject) -> JsonObject:
            given = {"name": route.name, "namespace": route.namespace, "uid": self.core.new_uid()}
            given["creationTimestamp"] = timestamp(self.core.clock())
            spec = sent.get("spec") or {}
            spec = {**spec, "audiences": spec.get("audiences") or [AUDIENCE], "expirationSeconds": _token_seconds(spec)}
            return {**sent, "metadata": {**sent["metadata"], **given}, "spec": spec}

        asked["status"] = {"token": "", "expirationTimestamp": None, **(asked.get("status") or {})}
        asked = completed(await self._reviewed(request, route, kind, body, asked, completed=completed))
        if self.tokens is None:
            raise ApiError(404, "NotFound", "this server issues no tokens", details={})
        seconds = asked["spec"]["expirationSeconds"]
        bound, until = self._bound(route.namespace, asked["spec"].get("boundObjectRef"))
        if request.identity.node is not None and (why := unbound(request.identity.node, until)):
            raise forbidden(kind.plural, kind.group, route.name, why)
        token = self.tokens.issue(
            route.namespace,
            route.name,
            uid=account["metadata"]["uid"],
            seconds=seconds,
            audiences=asked["spec"]["audiences"],
            bound=bound,
        )
        del asked["metadata"]["uid"]
        asked["status"] = {"token": token, "expirationTimestamp": timestamp(self.core.clock() + seconds)}
        return Response(201, encode_json(asked))

    def _bound(self, namespace: str, reference: JsonObject | None) -> tuple[Bound | None, JsonObject | None]:
        """What a token is to end with; where that is a pod, the pod as it is stored."""
        if not reference:
            return None, None
        name, wanted = str(reference.get("name", "")), reference.get("kind")
        if wanted not in BOUND_KINDS or reference.get("apiVersion", "v1") != "v1":
            why = f"cannot bind token for serviceaccount to object type {reference.get('apiVersion')}/{wanted}"
            raise bad_request(why)
        kind = kind_named(wanted)
        found = decode(self.core.stored(kind, namespace if kind.namespaced else "", name))
        uid = found["metadata"]["uid"]
        if reference.get("uid") not in (None, "", uid):
            why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            raise conflict(
                kind.plural, kind.group, name, f"{why} The object might have been deleted and then recreated"
            )
        return Bound(wanted, name, uid), found if wanted == "Pod" else None

    # node side

    async def _node_side(self, request: Request, route: Route) -> Response:
        if route.subresource == "log":
            check_log_options(request.query, route.name)
        pod = decode(self.core.stored(kind_named("Pod"), route.namespace, route.name))
        if not (pod.get("spec") or {}).get("nodeName"):
            if route.subresource == "log":
                return Response(204, content_type="")
            raise bad_request(f"pod {route.name} does not have a host assigned")
        return await self.nodes.open(request, pod, route.subresource)


def _exec_options(request: Request, _route: Route) -> JsonObject:
    flags: JsonObject = {name: True for name in _STREAMS if is_true(request.query, name)}
    container, command = request.first("container"), request.query.get("command")
    return flags | ({"container": container} if container else {}) | ({"command": list(command)} if command else {})


def _forward_options(request: Request, _route: Route) -> JsonObject:
    ports = [int(one) for text in request.query.get("ports") or () for one in text.split(",") if one.isdigit()]
    return {"ports": ports} if ports else {}


CONNECTED: dict[str, tuple[str, Callable[[Request, Route], JsonObject]]] = {
    "exec": ("Exec", _exec_options),
    "attach": ("Attach", _exec_options),
    "portforward": ("PortForward", _forward_options),
    "proxy": ("Proxy", lambda _request, route: {"path": f"/{route.tail}"} if route.tail else {}),
}
"""Subresources that connect to a node, with the kind of their options and what of a request they hold."""


def _token_seconds(spec: JsonObject) -> int:
    wanted = int(spec.get("expirationSeconds") or TOKEN_SECONDS)
    field = "spec.expirationSeconds"
    if wanted < LEAST_TOKEN_SECONDS:
        why = f"Invalid value: {wanted}: may not specify a duration less than 10 minutes"
        raise invalid("TokenRequest", "authentication.k8s.io", "", [cause(field, "FieldValueInvalid", why)])
    if wanted > 1 << 32:
        why = f"Invalid value: {wanted}: may not specify a duration larger than 2^32 seconds"
        raise invalid("TokenRequest", "authentication.k8s.io", "", [cause(field, "FieldValueInvalid", why)])
    return min(wanted, MAX_TOKEN_SECONDS)


def _disrupted(pod: JsonObject, now: float) -> JsonObject:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    set_condition(pod.setdefault("status", {}), {**condition, "message": "Eviction API: evicting"}, now)
    return pod


def _needs_budget(pod: JsonObject) -> bool:
    """Pods that do not serve (finished, pending, terminating) may always be evicted."""
    status = pod.get("status") or {}
    return status.get("phase") not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]


def _check_budget(budget: JsonObject) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(message, 10, [{"reason": "DisruptionBudget", "message": why}])
    if status.get("disruptionsAllowed", 0) <= 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        causes = [{"reason": "DisruptionBudget", "message": why}]
        raise ApiError(429, "TooManyRequests", message, details={"causes": causes})
