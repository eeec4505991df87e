"""Shapes by what pods ask for: compiled once for all pods that placement treats alike. Pure; called by `core`.

A pod is recognised by the values that placement reads of it, not by its text: the API server writes `nodeName` last
when it binds a pod, and Kubernetes gives every pod a volume with a random name. Neither makes it another pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from kubeqos.model.objects import PodView
from kubeqos.placement.shape import Shape, compile_shape, with_drivers
from kubeqos.scheduler.reading import Envelope

_KEPT = 4096


class ShapeMemo:
    """The shapes of the pods seen lately."""

    def __init__(self, *, classes: bool = True) -> None:
        self._classes = classes
        self._shapes: OrderedDict[Hashable, Shape] = OrderedDict()
        self._completed: OrderedDict[tuple[Shape, frozenset[str]], Shape] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shapes)

    def shape_of(self, raw: bytes, envelope: Envelope, drivers: frozenset[str]) -> Shape:
        """The pod's shape: the same object for all pods with equal spec, labels, marks and claim drivers."""
        meta = envelope.metadata
        labels = frozenset(meta.labels.items()) if meta.labels else None
        key = (meta.namespace, labels, meta.marks(), envelope.spec.key(), drivers)
        shape = self._shapes.get(key)
        if shape is not None:
            self._shapes.move_to_end(key)
            return shape
        shape = self._shapes[key] = self.compile(PodView.read(raw), drivers)
        if len(self._shapes) > _KEPT:
            self._shapes.popitem(last=False)
        return shape

    def with_drivers(self, shape: Shape, drivers: frozenset[str]) -> Shape:
        """The shape for a pod whose claims came after it: again the same object for all such pods."""
        if shape.claim_drivers == tuple(sorted(drivers)):
            return shape
        found = self._completed.get((shape, drivers))
        if found is None:
            found = self._completed[shape, drivers] = with_drivers(shape, drivers)
            if len(self._completed) > _KEPT:
                self._completed.popitem(last=False)
        return found

    def compile(self, view: PodView, drivers: frozenset[str]) -> Shape:
        """A shape of its own, wherever the pod is: the node that it has is not one that it asks for."""
        if view.spec.node_name:
            view = msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, node_name=""))
        return compile_shape(view, classes=self._classes, claim_drivers=drivers)
