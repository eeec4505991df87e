"""Which pods are spread by default, and by which selector: those of Services and of replica controllers. Pure.

As kube-scheduler deduces it: the selectors of all Services that select the pod, and that of the ReplicaSet, StatefulSet
or ReplicationController that controls it. A pod with spread constraints of its own is left alone. Called by `core`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from kubeqos.model.objects import LabelExpression, LabelSelectorView
from kubeqos.placement.shape import Shape
from kubeqos.placement.spreading import default_constraints

_KEPT = 4096


class DefaultSpreading:
    """Selectors of Services and controllers, and the shapes of pods that are spread by them."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        self._owners: dict[tuple[str, str], LabelSelectorView] = {}
        self._changes = 0
        self._shapes: OrderedDict[Shape, tuple[int, bytes, Shape]] = OrderedDict()

    def service(self, key: str, selector: Mapping[str, str] | None) -> None:
        """A Service (namespace/name) selects these pods; None when it is gone or selects none."""
        namespace = key.partition("/")[0]
        known = self._services.setdefault(namespace, {})
        if known.get(key) != selector:
            self._changes += 1
            if selector is None:
                del known[key]
            else:
                known[key] = selector

    def controller(self, kind: str, key: str, selector: LabelSelectorView | None) -> None:
        """A controller of replicas (namespace/name) selects these; None when it is gone."""
        if self._owners.get((kind, key)) != selector:
            self._changes += 1
            if selector is None:
                del self._owners[kind, key]
            else:
                self._owners[kind, key] = selector

    def selector(self, shape: Shape) -> LabelSelectorView | None:
        """What pods like this one are recognised by; None for a pod of nobody."""
        labels: dict[str, str] = {}
        for selector in self._services.get(shape.namespace, {}).values():
            if all(shape.labels.get(key) == value for key, value in selector.items()):
                labels |= selector
        owner = self._owners.get((shape.owner[0], f"{shape.namespace}/{shape.owner[1]}")) if shape.owner else None
        expressions = [LabelExpression(key=key, operator="In", values=[value]) for key, value in labels.items()]
        if owner is None:
            return LabelSelectorView(match_expressions=expressions) if expressions else None
        return msgspec.structs.replace(owner, match_expressions=[*owner.match_expressions, *expressions])

    def shape_of(self, shape: Shape) -> Shape:
        """The shape by which the pod is placed: the same object as long as it is spread by the same selector."""
        if shape.spread:
            return shape
        known = self._shapes.get(shape)
        if known is not None and known[0] == self._changes:
            self._shapes.move_to_end(shape)
            return known[2]
        selector = self.selector(shape)
        text = msgspec.json.encode(selector)
        if known is None or known[1] != text:
            made = shape
            if selector is not None:
                constraints = default_constraints(selector)
                made = dataclasses.replace(shape, soft_spread=constraints, spread_by_default=True)
        else:
            made = known[2]
        self._shapes[shape] = self._changes, text, made
        if len(self._shapes) > _KEPT:
            self._shapes.popitem(last=False)
        return made
