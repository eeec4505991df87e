"""Keeps the ControllerRevisions of an owner in the API: the shell around `revisions`."""

from __future__ import annotations

from kubeqos.client import Resource
from kubeqos.client.resources import CONTROLLER_REVISIONS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, change
from kubeqos.controllers.controller import Context
from kubeqos.controllers.podstate import controller_of, is_going
from kubeqos.controllers.workloads.ownership import ownership
from kubeqos.controllers.workloads.revisions import History, collision, history_of


class RevisionKeeper:
    """One for each controller whose templates have a history."""

    def __init__(self, context: Context, resource: Resource) -> None:
        self._context = context
        self._resource = resource
        self._cache = context.cache(CONTROLLER_REVISIONS)

    async def current(self, owner: JsonObject) -> History | None:
        """The history with the revision of the template as it is now; None when there is nothing to go by yet."""
        if is_going(owner):
            return history_of(owner, self._owned(owner))
        orphans = self._cache.unmanaged(owner["metadata"]["namespace"])
        await self._context.perform(ownership(owner, CONTROLLER_REVISIONS, orphans).adopt)
        found = history_of(owner, self._owned(owner))
        for action in found.actions:
            answer = await self._context.do(action)
            if isinstance(action, Create) and answer is None:
                return await self._there_already(owner, action)
        return history_of(owner, self._owned(owner)) if found.actions else found

    def _owned(self, owner: JsonObject) -> list[JsonObject]:
        uid = owner["metadata"]["uid"]
        return [each for each in self._cache.owned_by(uid) if (controller_of(each) or {}).get("uid") == uid]

    async def _there_already(self, owner: JsonObject, action: Create) -> History | None:
        """Our own that the cache has not seen yet, or another template's of the same name."""
        there = await self._context.live(CONTROLLER_REVISIONS, action.body["metadata"]["name"], action.namespace)
        if there is not None and there.get("data") == action.body["data"]:
            self._context.learn(CONTROLLER_REVISIONS, there)
            return history_of(owner, self._owned(owner))
        why = "a revision of another template has the name"
        await self._context.do(change(self._resource, owner, collision(owner), why, subresource="status"))
        return None
