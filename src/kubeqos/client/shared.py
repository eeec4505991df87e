"""One informer for each collection, for all parts of a process that speak to one server as the same user.

Scheduler, controllers, nodes and dashboard of `kubeqos up` look at the same pods: one list, one watch, one copy and one
decode of each event serve them all. Whoever makes it runs it; a part that was given none makes its own.
"""

from __future__ import annotations

import asyncio

from kubeqos.client.api import Api
from kubeqos.client.informer import Informer
from kubeqos.client.resources import Resource

PAGE = 5000


class SharedInformers:
    """The informers of a process, each made when somebody first asks for it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._informers: dict[Resource, Informer] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._informers)

    def of(self, resource: Resource) -> Informer:
        """The informer of all objects of a kind; it follows the server while `run` runs."""
        found = self._informers.get(resource)
        if found is None:
            found = self._informers[resource] = Informer(self.api, resource, page=PAGE)
            if self._tasks is not None:
                self._tasks.create_task(found.run())
        return found

    async def run(self) -> None:
        """Follow everything that was asked for, and what will be, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            await asyncio.Event().wait()
