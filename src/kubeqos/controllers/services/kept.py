"""The EndpointSlices that a controller keeps, by the service that each is for."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import Change
from kubeqos.client.resources import ENDPOINT_SLICES
from kubeqos.codec import JsonObject
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, split
from kubeqos.controllers.services.slices import kept_for, labels_of


class KeptSlices:
    """Those that name this manager in a label. Their services are looked at when somebody else changes them."""

    def __init__(self, controller: Controller, manager: str) -> None:
        self._manager = manager
        self._by_label: dict[str, set[str]] = {}  # service → slices that say they are kept for it
        self._cache = controller.follow(ENDPOINT_SLICES, self._changed)

    def of(self, key: str, owner: JsonObject | None) -> list[JsonObject]:
        """Those that the owner has, with what we have just written, and those that only say that they are its own."""
        owned = self._cache.owned_by(owner["metadata"]["uid"]) if owner is not None else []
        known = {one["metadata"]["name"] for one in owned}
        others = (self._cache.get(one) for one in sorted(self._by_label.get(key, ())) if split(one)[1] not in known)
        every = owned + [one for one in others if one is not None]
        return [one for one in every if kept_for(labels_of(one), self._manager) == split(key)[1]]

    def _changed(self, seen: Change) -> Iterable[str]:
        """The services that a slice is kept for, as it was and as it is."""
        before, after = (self._service(seen.key, raw) for raw in (seen.old, seen.new))
        if before:
            here = self._by_label.get(before, set())
            here.discard(seen.key)
            if not here:
                self._by_label.pop(before, None)
        if after:
            self._by_label.setdefault(after, set()).add(seen.key)
        if before == after and _version(seen.old) == _version(seen.new):
            return ()  # an annotation: it stays until there is something to write
        return {one for one in (before, after) if one}

    def _service(self, key: str, raw: bytes | None) -> str:
        name = kept_for(meta_of(raw).labels or {}, self._manager) if raw is not None else ""
        return f"{split(key)[0]}/{name}" if name else ""


def _version(raw: bytes | None) -> tuple[str, int, bool]:
    """What changes when anything of a slice does that its keeper has to do with."""
    metadata = meta_of(raw)
    return metadata.uid, metadata.generation, metadata.deletion_timestamp is None
