"""Follows claims, volumes and storage classes, and brings together what belongs together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kubeqos.client import Change
from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from kubeqos.codec import JsonObject
from kubeqos.controllers.controller import Controller
from kubeqos.controllers.volumes.binding import claim_actions, volume_actions
from kubeqos.rules.storage import ClaimView, VolumeView

Key = tuple[str, str]
_CLAIM, _VOLUME = PERSISTENT_VOLUME_CLAIMS.kind, PERSISTENT_VOLUMES.kind


class VolumeBinder(Controller):
    """Binds claims to volumes that are there."""

    name = "persistentvolume-binder"
    # One at a time: two claims that look at the same volume would both be given it, and one of them refused.
    workers: ClassVar[int] = 1

    def watch(self) -> None:
        self.claims = self.follow(PERSISTENT_VOLUME_CLAIMS, self._claim_changed)
        self.volumes = self.follow(PERSISTENT_VOLUMES, self._volume_changed)
        self.classes = self.follow(STORAGE_CLASSES, lambda _: self._waiting())

    def _claim_changed(self, seen: Change) -> Iterable[Key]:
        yield _CLAIM, seen.key
        if seen.new is None and (name := ClaimView.read(seen.old or b"{}").spec.volume_name):
            yield _VOLUME, name

    def _volume_changed(self, seen: Change) -> Iterable[Key]:
        yield _VOLUME, seen.key
        ref = VolumeView.read(seen.new or seen.old or b"{}").spec.claim_ref
        if ref is not None:
            yield _CLAIM, f"{ref.namespace}/{ref.name}"
        elif seen.new is not None:
            yield from self._waiting()

    def _waiting(self) -> Iterable[Key]:
        """Claims that a new volume or class may be for."""
        for raw in self.claims.raws():
            claim = ClaimView.read(raw)
            if not claim.is_bound:
                yield _CLAIM, claim.key

    async def reconcile(self, key: Key) -> float | None:
        kind, name = key
        if kind == _VOLUME:
            if (volume := self.volumes.get(name)) is not None:
                await self.context.perform(volume_actions(volume, self._claim_of(volume)))
        elif (claim := self.claims.get(name)) is not None:
            view = ClaimView.of(claim)
            own = self.volumes.get(view.spec.volume_name) if view.spec.volume_name else None
            volumes = self.volumes.all() if not view.spec.volume_name else [own] if own is not None else []
            await self.context.perform(claim_actions(claim, volumes, self.classes.get(view.class_name)))
        return None

    def _claim_of(self, volume: JsonObject) -> JsonObject | None:
        ref = volume["spec"].get("claimRef") or {}
        return self.claims.get(f"{ref.get('namespace', '')}/{ref.get('name', '')}") if ref else None
