"""The admission webhooks of a stock cluster: `/mutate` completes pods, `/validate` judges and counts them.

Mutation gives what `admission` decides, as a JSON patch. Validation comes after everybody has changed what they wanted:
there the pod has its name and uid, so there it is counted. A pod that asks for nothing is answered at once, without a
look at any quota.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import jsonpatch
from prometheus_client import CollectorRegistry, Histogram

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.stock.admission import admitted
from kubeqos.stock.asking import asks, is_request
from kubeqos.stock.cluster import Cluster
from kubeqos.stock.quotakeeper import BUCKETS, QuotaKeeper
from kubeqos.web.asgi import Receive, Scope, Send, respond
from kubeqos.web.messages import Response

Raw = dict[str, Any]
LONGEST_BODY = 8 << 20
log = logger("kubeqos.webhook")


class Webhook:
    """The ASGI application that an API server asks."""

    def __init__(self, cluster: Cluster, quotas: QuotaKeeper, registry: CollectorRegistry | None = None) -> None:
        self._cluster = cluster
        self._quotas = quotas
        self._seconds = Histogram(
            "kubeqos_webhook_request_duration_seconds",
            "Time to answer an API server about a pod.",
            ["path", "allowed"],
            registry=registry,
            buckets=BUCKETS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(scope, receive)
        await respond(response, [(b"content-type", response.content_type.encode())], scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path = scope["path"]
        if path in ("/healthz", "/readyz"):
            ready = path == "/healthz" or self._cluster.ready.is_set()
            return Response(200 if ready else 503, b"ok" if ready else b"not synced", "text/plain")
        if path not in ("/mutate", "/validate"):
            return Response(404, b"not found\n", "text/plain")
        try:
            review = decode_json(await _body(receive))
            request = review["request"]
            started = time.perf_counter()
            answer = await (self._mutate(request) if path == "/mutate" else self._validate(request))
            self._seconds.labels(path, str(answer["allowed"]).lower()).observe(time.perf_counter() - started)
        except (JsonError, KeyError, TypeError) as error:
            return Response(400, f"not an AdmissionReview: {error}\n".encode(), "text/plain")
        told = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        return Response(200, encode_json(told))

    async def _mutate(self, request: Raw) -> Raw:
        if not self._cluster.ready.is_set():
            return _refused(request, "the webhook does not know the cluster yet, try again")
        pod = _named(request)
        if request["operation"] != "CREATE":
            return {"uid": request["uid"], "allowed": True}  # what a pod asks for was settled when it was made
        try:
            stored = admitted(
                pod, request["namespace"], self._cluster.classes, self._cluster.limits_in(request["namespace"])
            )
        except KubeqosError as error:
            return _refused(request, "; ".join(error.lines()))
        patch = jsonpatch.make_patch(pod, stored).patch
        allowed = {"uid": request["uid"], "allowed": True}
        if patch:
            allowed |= {"patchType": "JSONPatch", "patch": base64.b64encode(encode_json(patch)).decode()}
        return allowed

    async def _validate(self, request: Raw) -> Raw:
        pod = _named(request)
        if request["operation"] == "UPDATE":
            changed = _changed(request.get("oldObject") or {}, pod)
            if changed:
                return _refused(request, f"{changed[0]}: the classes of a pod cannot be changed after its creation")
            return {"uid": request["uid"], "allowed": True}
        if not asks(pod):
            return {"uid": request["uid"], "allowed": True}
        try:
            refused = await self._quotas.charge(request["namespace"], pod, dry_run=bool(request.get("dryRun")))
        except KubeqosError as error:
            # What cannot be counted is not let in: this namespace has asked for that.
            log.warning("a pod could not be counted", namespace=request["namespace"], error=error.what)
            return _refused(request, f"class quota cannot be checked: {error.what}")
        return {"uid": request["uid"], "allowed": True} if refused is None else _refused(request, refused)


def _named(request: Raw) -> Raw:
    pod: Raw = request["object"]
    pod.setdefault("metadata", {}).setdefault("namespace", request["namespace"])
    return pod


def _annotations(pod: Raw) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _changed(old: Raw, new: Raw) -> list[str]:
    before, after = _annotations(old), _annotations(new)
    return sorted(key for key in {*before, *after} if is_request(key) and before.get(key) != after.get(key))


def _refused(request: Raw, message: str) -> Raw:
    return {"uid": request["uid"], "allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": message}}


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            raise TypeError(f"longer than {LONGEST_BODY} bytes")
        if not message.get("more_body"):
            return bytes(body)
