"""Random documents that fit their type: whatever a client can send that decoding accepts."""

from __future__ import annotations

import random
from typing import Any

from kubeqos.model.schema import Shape, TypeSchema

TEXTS = (
    "", "a", "Always", "x/y", "1", "Bad Value", "é", "In", "Exists", "NoSchedule", "ClientIP", "None", "10.0.0.1",
    "25%", "..", "/abs", "metadata.name", "requests.cpu", "PersistentVolumeClaim", "Container", "BestEffort",
    "Localhost", "RollingUpdate", "Terminating", "system-x",
)  # fmt: skip
KEYS = (
    "cpu", "memory", "hugepages-2Mi", "hugepages-x", "example.com/x", "pods", "", "a b", "app", "storage",
    "kubernetes.io/config.mirror", "controller.kubernetes.io/pod-deletion-cost", "pod-security.kubernetes.io/enforce",
)  # fmt: skip
SCALARS: dict[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "bytes": ("", "eA==", "e30="),
    "bool": (True, False),
    "int32": (0, 1, -1, 80, 70000, 2**31 - 1, -(2**31)),
    "int64": (0, 1, -1, 80, 70000, 2**63 - 1),
    "float": (1.5,),
    "quantity": ("1", "0", "-1", "1.5", "2Mi", 3, "1e30", 1.5),
    "intstr": (0, 80, "http", "25%", "", "150%", -1),
    "time": ("2026-01-01T00:00:00Z",),
    "microtime": ("2026-01-01T00:00:00.000000Z",),
    "any": ({}, {"a": 1}),
}


def document(shape: TypeSchema, chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """An object of a type, sparser the deeper it is."""
    likely = 0.9 if depth < 2 else 0.2 if depth < 6 else 0.05
    fields = (one for one in shape.fields.values() if chance.random() < (0.8 if one.required else likely))
    return {one.name: value(one.shape, chance, depth + 1) for one in fields}


def value(shape: Shape, chance: random.Random, depth: int) -> Any:
    if shape.kind in SCALARS:
        return chance.choice(SCALARS[shape.kind])
    if chance.random() < 0.03:
        return None
    if shape.kind == "object":
        inner = shape.object_type
        assert inner
        return document(inner, chance, depth)
    assert shape.of
    if shape.kind == "list":
        return [value(shape.of, chance, depth) for _ in range(chance.choice((0, 1, 1, 2)))]
    return {chance.choice(KEYS): value(shape.of, chance, depth) for _ in range(chance.choice((0, 1, 2)))}
