"""Tokens of service accounts for the projected volumes of pods: asked of the API server, renewed before they end.

The executor asks for them when it fills a pod's volumes; the agent keeps `run`, which writes new ones over those that
have lived for most of their time. A token ends with its pod (`boundObjectRef`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import SERVICE_ACCOUNTS
from kubeqos.clock import NS, Clock
from kubeqos.logs import logger
from kubeqos.model.timestamps import seconds_of
from kubeqos.node.cri.context import Context
from kubeqos.node.runtime import volumes
from kubeqos.plugins.managers import AdmittedPod

LOOK_SECONDS = 60.0
OLD = 0.8
"""The part of its life after which a token is renewed, as a kubelet does it."""
LONGEST_SECONDS = 24 * 3600.0
log = logger("kubeqos.node")


@dataclass(frozen=True, slots=True)
class Issued:
    """A token and when the next one is asked for."""

    token: bytes
    renew_at: float


class Tokens:
    """The tokens of the pods of one node."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._issued: dict[tuple[str, str], Issued] = {}

    async def token(self, pod: AdmittedPod, wish: str) -> bytes:
        """The token that a pod's volume asks for (`volumes.token_wish`); a fresh one when the last has grown old."""
        known = self._issued.get((pod.uid, wish))
        if known is None or self._now() >= known.renew_at:
            known = self._issued[pod.uid, wish] = await self._request(pod, wish)
        return known.token

    async def run(self, pods: Callable[[], Iterable[AdmittedPod]], context: Context) -> None:
        """Renew what has grown old, as long as its pod is here."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            here = {pod.uid: pod for pod in pods()}
            self._issued = {key: one for key, one in self._issued.items() if key[0] in here}
            for (uid, wish), issued in list(self._issued.items()):
                if self._now() >= issued.renew_at:
                    await self._renew(here[uid], wish, context)

    async def _renew(self, pod: AdmittedPod, wish: str, context: Context) -> None:
        try:
            volumes.write_token(pod, context, wish, await self.token(pod, wish))
        except (ApiError, Unreachable, OSError) as error:  # the old one holds on; the next look tries again
            name = f"{pod.view.metadata.namespace}/{pod.view.metadata.name}"
            log.warning("a service account's token is not renewed", pod=name, error=str(error))

    async def _request(self, pod: AdmittedPod, wish: str) -> Issued:
        audience, _, seconds = wish.rpartition("/")
        metadata, account = pod.view.metadata, pod.view.spec.service_account_name or "default"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata.name, "uid": metadata.uid}
        spec = {"expirationSeconds": int(seconds), "boundObjectRef": bound, "audiences": [audience] if audience else []}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._api.create(SERVICE_ACCOUNTS, body, metadata.namespace, name=account, subresource="token")
        status, now = answer["status"], self._now()
        life = max((seconds_of(status["expirationTimestamp"]) or now) - now, 0.0)
        return Issued(status["token"].encode(), now + min(life * OLD, LONGEST_SECONDS))

    def _now(self) -> float:
        return self._clock.now_ns() / NS
