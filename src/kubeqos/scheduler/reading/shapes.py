"""Shapes by what pods ask for: compiled once for all pods that placement treats alike. Pure; called by `core`.

A pod is recognised by the values that placement reads of it, not by its text: the API server writes `nodeName` last
when it binds a pod, and Kubernetes gives every pod a volume with a random name. Neither makes it another pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

import msgspec

from kubeqos.model.objects import PodView
from kubeqos.placement.shape import Shape, compile_shape, with_claims, with_volumes
from kubeqos.placement.storage.needs import VolumeNeed
from kubeqos.scheduler.reading.claims import ClaimState
from kubeqos.scheduler.reading.objects import Envelope

_KEPT = 4096


class ShapeMemo:
    """The shapes of the pods seen lately."""

    def __init__(self, *, classes: bool = True) -> None:
        self._classes = classes
        self._shapes: OrderedDict[Hashable, Shape] = OrderedDict()
        self._kept_off: OrderedDict[tuple[Shape, Hashable], Shape] = OrderedDict()
        self._mounting: OrderedDict[tuple[Shape, VolumeNeed], Shape] = OrderedDict()
        self._completed: OrderedDict[tuple[Shape, ClaimState], Shape] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shapes)

    def shape_of(self, raw: bytes, envelope: Envelope, claims: ClaimState) -> Shape:
        """The pod's shape: the same object for all pods with equal spec, labels, marks and claims."""
        meta = envelope.metadata
        labels = frozenset(meta.labels.items()) if meta.labels else None
        key = (meta.namespace, labels, meta.marks(), envelope.spec.key(), claims)
        shape = self._shapes.get(key)
        if shape is not None:
            self._shapes.move_to_end(key)
            return shape
        shape = self._shapes[key] = self.compile(PodView.read(raw), claims)
        if len(self._shapes) > _KEPT:
            self._shapes.popitem(last=False)
        return shape

    def with_claims(self, shape: Shape, claims: ClaimState) -> Shape:
        """The shape for a pod whose claims came after it: again the same object for all such pods."""
        if shape.claim_drivers == tuple(sorted(claims.drivers)) and shape.compute == claims.need:
            return shape
        found = self._completed.get((shape, claims))
        if found is None:
            found = self._completed[shape, claims] = with_claims(shape, claims.drivers, claims.need)
            if len(self._completed) > _KEPT:
                self._completed.popitem(last=False)
        return found

    def with_volumes(self, shape: Shape, need: VolumeNeed | None) -> Shape:
        """The shape for a pod whose volume claims need this: the same object for all such pods."""
        if need is None:
            return shape
        found = self._mounting.get((shape, need))
        if found is None:
            found = self._mounting[shape, need] = with_volumes(shape, need)
            if len(self._mounting) > _KEPT:
                self._mounting.popitem(last=False)
        return found

    def with_asks(self, shape: Shape, asks: Hashable) -> Shape:
        """The shape for pods that a node keeps off by more than placement reads of them, such as any annotation."""
        found = self._kept_off.get((shape, asks))
        if found is None:
            found = self._kept_off[shape, asks] = replace(shape, asks=asks)
            if len(self._kept_off) > _KEPT:
                self._kept_off.popitem(last=False)
        return found

    def compile(self, view: PodView, claims: ClaimState) -> Shape:
        """A shape of its own, wherever the pod is: the node that it has is not one that it asks for."""
        if view.spec.node_name:
            view = msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, node_name=""))
        return compile_shape(view, classes=self._classes, claim_drivers=claims.drivers, compute=claims.need)
