"""A pod's marks: the labels and annotations by which resource plugins tell what a pod is (KEP-3461). Pure.

Roles come from the KEP's annotations and from Katalyst's keys (DESIGN ruling 10). The QoS Resource Manager sends marks
to plugins; the scheduler reads them to know on which pool of a node a pod will draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import JsonError, decode_json
from kubeqos.model.objects import ObjectMeta

KATALYST = "katalyst.kubewharf.io/"
ROLE_KEYS = ("kubernetes.io/pod-role", KATALYST + "pod_role")
TYPE_KEYS = ("kubernetes.io/resource-type", KATALYST + "pod_type")
MAIN_CONTAINER_KEY = "kubernetes.io/main-container-name"
QOS_LEVEL_KEY = KATALYST + "qos_level"
SKIP_KEY = KATALYST + "skip_qrm_admit"
SYSTEM_CORES, DEDICATED_CORES, RECLAIMED_CORES = "system_cores", "dedicated_cores", "reclaimed_cores"
RECLAIM_POOL = "reclaim"

_KEYS = (*ROLE_KEYS, *TYPE_KEYS, MAIN_CONTAINER_KEY)
_HINTS = tuple(key.encode() for key in (*_KEYS, KATALYST))


@dataclass(frozen=True, slots=True)
class Marks:
    """What decides the role of a pod: its name, and what Katalyst's annotations say in its place."""

    role: str = ""
    level: str = ""
    pool: str = ""
    numa: str = "any"

    def pool_or(self, default: str) -> str | None:
        """The pool of a pod whose role nobody has named; None when it wants CPUs of its own."""
        if self.level == DEDICATED_CORES:
            return None
        return self.pool or (RECLAIM_POOL if self.level == RECLAIMED_CORES else default)


def marks(role: str, annotations: Mapping[str, str]) -> Marks:
    """The marks of a pod whose role is known already."""
    level = annotations.get(QOS_LEVEL_KEY, "")
    cpu, memory = (enhancement(annotations, what) for what in ("cpu", "memory"))
    numa = "exclusive" if is_on(memory, "numa_exclusive") else "bind" if is_on(memory, "numa_binding") else "any"
    return Marks(role, level, str(cpu.get("cpuset_pool") or ""), numa)


def marks_of_pod(meta: ObjectMeta) -> Marks:
    return marks(role_of(meta), meta.annotations)


def is_left_alone(meta: ObjectMeta) -> bool:
    """Whether resource plugins have nothing to do with the pod, as nodes are configured by default."""
    if meta.annotations.get(SKIP_KEY) == "true":
        return True
    owner = meta.controller()
    return bool(owner and owner.kind == "DaemonSet" and level_of(meta) != SYSTEM_CORES)


def level_of(meta: ObjectMeta) -> str:
    return meta.annotations.get(QOS_LEVEL_KEY, "")


def role_of(meta: ObjectMeta) -> str:
    return _first(meta, ROLE_KEYS)


def type_of(meta: ObjectMeta) -> str:
    return _first(meta, TYPE_KEYS)


def may_be_marked(annotations: bytes) -> bool:
    """Whether the text of a pod's annotations could hold a mark: most pods have none, and need not be read."""
    return any(hint in annotations for hint in _HINTS)


def only_marks(table: Mapping[str, str]) -> dict[str, str]:
    """The labels or annotations that decisions about a pod rest on."""
    return {key: value for key, value in table.items() if key in _KEYS or key.startswith(KATALYST)}


def enhancement(annotations: Mapping[str, str], what: str) -> dict[str, Any]:
    """A Katalyst enhancement; a broken one says nothing here, and the node refuses the pod."""
    try:
        found = decode_json(annotations.get(f"{KATALYST}{what}_enhancement", "{}").encode())
    except JsonError:
        return {}
    return found if isinstance(found, dict) else {}


def is_on(table: Mapping[str, Any], key: str) -> bool:
    return str(table.get(key, "")).lower() == "true"


def _first(meta: ObjectMeta, keys: tuple[str, ...]) -> str:
    for key in keys:
        for table in (meta.annotations, meta.labels):
            if key in table:
                return table[key]
    return ""
