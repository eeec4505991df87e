"""The two homes of the dashboard: inside the API server's process, and beside any cluster as a client of its API."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from kubeqos.apiserver.server import ApiServer
from kubeqos.client import Informer, SharedInformers, TransportApi
from kubeqos.dashboard.answers import Answers
from kubeqos.dashboard.feed import FOLLOWED, Feed, following
from kubeqos.dashboard.named import ByName
from kubeqos.dashboard.server import PREFIX, Dashboard
from kubeqos.dashboard.sight import NAMED, may_list
from kubeqos.errors import ConfigurationError
from kubeqos.logs import logger
from kubeqos.web.asgi import Scope
from kubeqos.web.identity import Identity
from kubeqos.web.serving import serve
from kubeqos.web.sockets import listen
from kubeqos.web.tls import SCOPE_KEY

log = logger("kubeqos.dashboard")


@asynccontextmanager
async def mounted(server: ApiServer, informers: SharedInformers | None = None) -> AsyncIterator[Dashboard]:
    """Under `/dashboard` of an API server while the block runs. Every session sees what its own identity may.

    `informers` are those of the process, which it lives as long as; without, it follows the server by itself.
    """

    def identify(scope: Scope, headers: Mapping[bytes, bytes]) -> Identity:
        return server.access.identify(scope.get(SCOPE_KEY), headers)

    feed = Feed(server.local(), informers=informers)
    address = server.application.address
    dashboard = Dashboard(Answers(feed, server.local), address, f"https://{address}", identify)
    name = PREFIX.removeprefix("/")
    async with _following(feed, None):
        server.application.mounted[name] = dashboard
        try:
            yield dashboard
        finally:
            del server.application.mounted[name]


@asynccontextmanager
async def beside(api: TransportApi, cluster: str, namespace: str, host: str, port: int) -> AsyncIterator[Dashboard]:
    """On a port of its own while the block runs, as one user of a cluster; to this machine only, as it has no TLS."""
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise ConfigurationError(
            "without TLS the dashboard is for this machine only",
            where=f"--bind-address {host}",
            remedy="leave it on 127.0.0.1 and come through a tunnel: ssh -L, or kubectl port-forward",
        )
    feed = Feed(api, namespace)
    listener = listen(host, port)
    bound = listener.getsockname()[1]
    dashboard = Dashboard(Answers(feed, lambda _: api), cluster, f"http://{host}:{bound}")
    async with _following(feed, await _readable(api, namespace)), serve(dashboard, listener, None):
        yield dashboard


async def _readable(api: TransportApi, namespace: str) -> list[Informer]:
    """What the user may read of each kind: all, what is in the namespace of the context, or what roles name there."""
    found = []
    for resource in FOLLOWED:
        if await may_list(api, resource, ""):
            found.append(following(api, resource))
        elif resource.namespaced and await may_list(api, resource, namespace):
            found.append(following(api, resource, namespace))
        elif resource in NAMED:
            found.append(following(ByName(api), resource, namespace))
    return found


@asynccontextmanager
async def _following(feed: Feed, readable: Iterable[Informer] | None) -> AsyncIterator[None]:
    """The feed runs while the block does; that it ended by itself is told in the log."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("the dashboard has stopped following the cluster", exc_info=task.exception())

    following = asyncio.create_task(feed.run(readable))
    following.add_done_callback(ended)
    try:
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
