"""One replica of the controller: answers webhooks always, and does the rest while it leads.

The certificates are in a Secret. The leader renews them and tells the API server of them; every replica serves what
the Secret holds and takes up new ones without a restart. Started by `kubeqos controller`.
"""

from __future__ import annotations

import asyncio
import datetime
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeqos.client import Api, ApiError, PatchType, Unreachable
from kubeqos.client.leadership import Leadership, Terms
from kubeqos.client.resources import SECRETS
from kubeqos.controllers.manager import ControllerManager
from kubeqos.logs import logger
from kubeqos.stock.cluster import Cluster
from kubeqos.stock.control.certificates import Certificates, renewed
from kubeqos.stock.control.controllers import ClassObjects, ClassQuotas, NodeOffers
from kubeqos.stock.control.registration import MUTATING, NAME, Address, configurations, published
from kubeqos.stock.quotakeeper import QuotaKeeper, quota_writes
from kubeqos.stock.webhook import Webhook
from kubeqos.web.garbage import freeze_loaded
from kubeqos.web.pki import write_private
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.tls import server_context

Raw = dict[str, Any]
MANAGER = "kubeqos-controller"
SECRET = "kubeqos-webhook"
LEASE = "kubeqos-controller"
RETRY_SECONDS = 1.0
log = logger("kubeqos.controller")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the webhooks are, and who we are among the replicas."""

    address: Address
    namespace: str
    identity: str
    host: str = "0.0.0.0"
    port: int = 9443
    strict_names: bool = False
    """Whether official names of resources must be known (gate QOSResourcesStrictNames)."""
    period_seconds: float = 30.0
    """How often certificates and registration are looked at."""
    terms: Terms = field(default_factory=Terms)


class StockController:
    """Everything that one replica does; `run` it in a task. `ready` is set when webhooks are answered."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._api = api
        self._settings = settings
        self._now = now
        self._cluster = Cluster(api, strict_names=settings.strict_names)
        writes = quota_writes()
        keeper = QuotaKeeper(self._cluster, writes=writes)
        # One manager for every time that we lead: its copies go on where they stopped.
        self._manager = ControllerManager(
            api,
            controllers=(
                lambda context: ClassQuotas(context, keeper),
                NodeOffers,
                lambda context: ClassObjects(context, strict_names=settings.strict_names),
            ),
            component=MANAGER,
        )
        self.registry = self._manager.metrics.registry
        self.registry.register(writes)
        self._webhook = Webhook(self._cluster, keeper, self.registry)
        self.leadership = Leadership(api, LEASE, settings.namespace, settings.identity, settings.terms)
        self._listener = listen(settings.host, settings.port, "choose another one with --webhook-port")
        self.ready = asyncio.Event()

    @property
    def port(self) -> int:
        """Where webhooks are answered."""
        return int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cluster.run())
            tasks.create_task(self.leadership.run(self._lead))
            tasks.create_task(self._serve())

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._manager.run())
            tasks.create_task(self._patiently(self._register))

    async def _patiently(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Take a turn every period, and sooner again after a failure."""
        while True:
            try:
                await turn()
            except (ApiError, Unreachable) as error:
                log.warning("trying again", error=error.what)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await asyncio.sleep(self._settings.period_seconds)

    # -- the leader's part: certificates and registration

    async def _register(self) -> None:
        settings = self._settings
        configuration = await self._found(self._api.get(MUTATING, NAME))
        secret = await self._found(self._api.get(SECRETS, SECRET, settings.namespace))
        kept = Certificates.of((secret or {}).get("data") or {})
        wanted = renewed(kept, settings.address.hosts, published(configuration or {}), self._now())
        if wanted != kept:
            await self._write(secret, wanted)
        for kind, body in configurations(settings.address, wanted.bundle, settings.namespace):
            await self._api.patch(kind, NAME, body, type=PatchType.APPLY, manager=MANAGER, force=True)

    async def _write(self, secret: Raw | None, wanted: Certificates) -> None:
        if secret is not None:
            await self._api.update(SECRETS, {**secret, "data": wanted.data()})
            log.info("certificates were renewed", secret=f"{self._settings.namespace}/{SECRET}")
            return
        metadata = {"name": SECRET, "namespace": self._settings.namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": wanted.data()}
        await self._api.create(SECRETS, body)

    @staticmethod
    async def _found(asked: Awaitable[Raw]) -> Raw | None:
        try:
            return await asked
        except ApiError as error:
            if error.not_found:
                return None
            raise

    # -- every replica's part: webhooks, served with what the Secret holds

    async def _serve(self) -> None:
        with tempfile.TemporaryDirectory(prefix="kubeqos-webhook-") as name:
            folder = Path(name)
            served = await self._certificates()
            tls = server_context(*_written(served, folder), None)
            async with serve(self._webhook, self._listener, tls):
                await self._cluster.ready.wait()
                freeze_loaded()  # a full round of the collector is a pause in which several pods wait
                self.ready.set()
                while True:
                    await asyncio.sleep(self._settings.period_seconds)
                    found = await self._certificates()
                    if found != served:
                        # Connections that are open stay; every new one is shown the new certificate.
                        tls.load_cert_chain(*_written(found, folder))
                        served = found
                        log.info("serving with a new certificate")

    async def _certificates(self) -> Certificates:
        """What the Secret holds, as soon as it does."""
        while True:
            try:
                secret = await self._found(self._api.get(SECRETS, SECRET, self._settings.namespace))
                found = Certificates.of((secret or {}).get("data") or {})
                if found is not None:
                    return found
            except (ApiError, Unreachable) as error:
                log.warning("the certificates cannot be read", error=error.what)
            await asyncio.sleep(RETRY_SECONDS)


def _written(certificates: Certificates, folder: Path) -> tuple[Path, Path]:
    """As files, because that is how TLS takes them."""
    paths = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(paths, (certificates.serving.certificate, certificates.serving.key), strict=True):
        write_private(path, content)
    return paths
