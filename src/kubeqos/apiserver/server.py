"""Puts the API server together: data directory, store, certificates, application, sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.app import Application
from kubeqos.apiserver.auth import Authenticator, Authorizer, StaticTokens, TokenSigner, write_kubeconfig
from kubeqos.apiserver.auth.access import Access, follow_policy, load_policy, node_rule, stored_as
from kubeqos.apiserver.auth.reviews import Reviews
from kubeqos.apiserver.decisions.answers import Decisions
from kubeqos.apiserver.decisions.keeper import DecisionKeeper
from kubeqos.apiserver.handlers import Handlers, hooks_of
from kubeqos.apiserver.local import LOCAL, LocalTransport
from kubeqos.apiserver.nodes.podindex import PodIndex
from kubeqos.apiserver.nodes.proxy import NodeProxy
from kubeqos.apiserver.observe import Audit, Health, Metrics
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.subresources import Subresources
from kubeqos.apiserver.registry.upkeep.bootstrap import bootstrap
from kubeqos.apiserver.registry.upkeep.eventexpiry import expire_events
from kubeqos.apiserver.registry.upkeep.expiry import Expiry
from kubeqos.apiserver.registry.upkeep.localapis import LocalApis
from kubeqos.apiserver.registry.upkeep.ownservice import OwnService, advertised
from kubeqos.apiserver.watch.watcher import Watching
from kubeqos.apiserver.webhooks.hooked import HookedWrites
from kubeqos.client import TransportApi
from kubeqos.codec import JsonObject
from kubeqos.errors import StateError
from kubeqos.gates import FeatureGates
from kubeqos.rules.requests import Check
from kubeqos.rules.services.addresses import DEFAULT_RANGE
from kubeqos.store import Store
from kubeqos.web.garbage import freeze_loaded
from kubeqos.web.identity import Identity
from kubeqos.web.pki import Pki
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.tls import server_context

AUDIT_FLUSH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How an API server is to run."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    token_file: Path | None = None
    audit: bool = True
    gates: FeatureGates = FeatureGates.default()  # noqa: RUF009 - frozen value
    checks: tuple[Check, ...] = ()
    kubelet_authority: Path | None = None
    """Who signs the serving certificates of kubelets; the cluster's own authority when none is given."""
    service_range: IPv4Network = DEFAULT_RANGE
    definitions: tuple[JsonObject, ...] = ()
    """CustomResourceDefinitions that are there from the beginning."""


def _pem(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot read the authority of kubelets: {getattr(error, 'strerror', None) or 'it is not PEM'}"
        raise StateError(
            what, where=str(path), remedy="name a PEM file with --kubelet-certificate-authority"
        ) from error


class ApiServer:
    """A running API server; `async with ApiServer.start(settings)`."""

    def __init__(
        self, settings: Settings, store: Store, pki: Pki, address: str = "", listens: tuple[str, int] | None = None
    ) -> None:
        """`address` is where clients connect; where it `listens` it keeps the Service that leads to itself."""
        self.settings = settings
        self.store = store
        self.pki = pki
        self.chain = Chain(store, settings.gates, settings.checks, settings.service_range)
        self.decisions = DecisionKeeper(store, self.chain, settings.data_dir / "decisions.db", time.time)
        self.core = Core(store, self.chain, catalog=self.chain.catalog, on_evicted=self.decisions.evicted)
        signer = TokenSigner(pki.token_key(), self.core.clock, stored_as(store))
        sources: list[StaticTokens | TokenSigner] = [signer]
        if settings.token_file:
            sources.insert(0, StaticTokens.read(settings.token_file))
        self.pod_index = PodIndex(store)
        self.hooked = HookedWrites(self.core, self.chain)
        self.policy, self._policy_at = load_policy(store), store.revision
        self.access = Access(Authenticator(sources), Authorizer(self.policy, node_rule(store, self.pod_index)))
        self.watching = Watching(self.core)
        self.nodes = NodeProxy(self.core, pki, authority=_pem(settings.kubelet_authority))
        self.subresources = Subresources(self.core, self.nodes, tokens=signer)
        self.metrics = Metrics()
        self.health = Health()
        self.health.checks["etcd"] = lambda: str(store.failure) if store.failure else None
        self.audit = Audit(settings.data_dir / "audit.log") if settings.audit else None
        self.application = Application(
            Handlers(self.core, self.access, self.watching, self.subresources, hooks_of(self.core, self.chain)),
            Reviews(self.access, signer),
            self.access,
            self.metrics,
            self.health,
            Decisions(self.decisions, self.access),
            self.audit,
            address,
        )
        self.own = listens and OwnService(self.core, advertised(listens[0]), listens[1], settings.service_range)
        self.local_apis = LocalApis(self.core)
        self._register_metrics()

    def _register_metrics(self) -> None:
        self.metrics.gauge("apiserver_storage_objects", "Objects in the store.", lambda: float(len(self.store)))
        self.metrics.gauge("apiserver_longrunning_requests", "Open watches.", lambda: float(self.watching.active))
        self.metrics.counter(
            "apiserver_watch_events", "Watch events delivered.", lambda: float(self.watching.delivered)
        )
        self.metrics.counter(
            "kubeqos_decisions_lost", "Decisions that no record was made of.", lambda: float(self.decisions.lost)
        )
        self.metrics.features(self.settings.gates)
        self.metrics.quota_classes(lambda: self.chain.ledger.all())
        self.metrics.gauge("etcd_current_revision", "The store's revision.", lambda: float(self.store.revision))

        counted = self.store.statistics
        self.metrics.counter(
            "apiserver_storage_batches", "Trips to the disk, each with many writes.", lambda: float(counted.batches)
        )
        self.metrics.counter(
            "apiserver_storage_failed_batches",
            "Those that failed, and all their writes with them.",
            lambda: float(counted.failed_batches),
        )
        self.metrics.counter(
            "apiserver_storage_sync_seconds", "Time spent on trips to the disk.", lambda: counted.sync_seconds
        )

    def local(self, identity: Identity = LOCAL) -> TransportApi:
        """The API for a component in this process: the same handlers, without sockets."""
        return TransportApi(LocalTransport(self.application, identity))

    @property
    def kubeconfig(self) -> Path:
        return self.settings.data_dir / "kubeconfig"

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, settings: Settings) -> AsyncIterator[ApiServer]:
        """Open the data directory, listen, and serve until the block ends."""
        try:
            settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            what = f"cannot use the data directory: {error.strerror}"
            raise StateError(what, where=str(settings.data_dir), remedy="pass another with --data-dir") from error
        listener = listen(settings.host, settings.port)
        listens, port = listener.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listens, listens)  # "every address" is none to connect to
        pki = Pki(settings.data_dir / "pki")
        store = Store.open(settings.data_dir / "kubeqos.db")
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server = cls(settings, store, pki, address, (listens, port))
        async with server.running():
            write_kubeconfig(server.kubeconfig, server=f"https://{address}", authority=pki.ca_pem, client=pki.admin())
            freeze_loaded()
            tls = server_context(*pki.server_files([host, "localhost"]), pki.ca_file)
            async with serve(server.application, listener, tls):
                yield server

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything but the sockets: first objects, what works in the background, and an orderly end."""
        await bootstrap(self.core, self.pki.ca_pem.decode(), self.settings.definitions)
        await self.local_apis.keep()
        if self.own is not None:
            await self.own.keep()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(follow_policy(self.store, self.policy, self._policy_at)),
                tasks.create_task(self.pod_index.follow()),
                tasks.create_task(Expiry(self.store, self.chain, self.core.clock).run()),
                tasks.create_task(self._flush_audit()),
                tasks.create_task(expire_events(self.store, self.core.clock)),
                tasks.create_task(self.decisions.run()),
                tasks.create_task(self.local_apis.run()),
            ]
            if self.own is not None:
                background.append(tasks.create_task(self.own.run()))
            try:
                yield
            finally:
                for task in background:
                    task.cancel()
                await self.nodes.close()
                await self.hooked.caller.close()
                await self.decisions.close()
                await self.store.close()
                if self.audit is not None:
                    self.audit.close()

    async def _flush_audit(self) -> None:
        while self.audit is not None:
            await asyncio.sleep(AUDIT_FLUSH_SECONDS)
            self.audit.flush()
