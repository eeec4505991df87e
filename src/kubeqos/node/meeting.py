"""Where resource plugins and compute drivers meet the managers of a node, until a block ends.

Called by `node.run`, around a node agent, and by `stock.cores`, beside a kubelet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from kubeqos.cci.drivers import PLUGIN_TYPE as CCI_TYPE
from kubeqos.cci.stateservice import SOCKET_NAME, serve_state
from kubeqos.node.config.plugins import PluginManagers
from kubeqos.plugins.registration import Handler, Watcher
from kubeqos.qrm.messages import PLUGIN_TYPE as QRM_TYPE
from kubeqos.qrm.registry import LegacyRegistry, ResourcePluginHandler, serve_legacy
from kubeqos.supervision import Supervisor


@asynccontextmanager
async def meeting_plugins(plugins: PluginManagers, supervisor: Supervisor) -> AsyncIterator[None]:
    """Let plugins and drivers register, and take what they say."""
    handlers: dict[str, Handler] = {}
    async with AsyncExitStack() as stack:
        if plugins.qrm is not None:
            handlers[QRM_TYPE] = ResourcePluginHandler(plugins.qrm)
            stack.push_async_callback(plugins.qrm.close)
            if plugins.legacy_folder is not None:
                legacy = LegacyRegistry(plugins.qrm, plugins.legacy_folder, supervisor)
                await stack.enter_async_context(serve_legacy(legacy))
        if plugins.cci is not None:
            handlers[CCI_TYPE] = plugins.cci.drivers
            await stack.enter_async_context(plugins.cci.running(supervisor))
            await stack.enter_async_context(serve_state(plugins.cci.store, plugins.folder.parent / SOCKET_NAME))
        watcher = Watcher([plugins.folder], handlers, supervisor=supervisor)
        task = asyncio.create_task(supervisor.keep("plugin watcher", watcher.run))
        try:
            yield
        finally:
            if plugins.cci is not None:
                plugins.cci.leave()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
