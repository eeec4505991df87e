"""The objects of a cluster at one time, as bytes, and what of them somebody may see. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from kubeqos.codec import JsonObject, decode_json
from kubeqos.dashboard.present.data import Happening
from kubeqos.model.objects import PodView


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Placed(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_placed = msgspec.json.Decoder(_Placed)


def node_of(pod: bytes) -> str:
    """The node that a pod is bound to; empty while it waits."""
    return _placed.decode(pod).spec.node_name


@dataclass(slots=True)
class Objects:
    """The objects at one time: bytes by key. `node_pods` finds the pods of a node without reading all of them."""

    nodes: dict[str, bytes]
    pods: dict[str, bytes]
    quotas: dict[str, bytes]
    happenings: dict[str, Happening]
    at: float | None = None
    """The past time of which they are; None: now."""
    _by_node: dict[str, set[str]] | None = None

    def node(self, name: str) -> JsonObject | None:
        return _read(self.nodes.get(name))

    def pod(self, key: str) -> JsonObject | None:
        return _read(self.pods.get(key))

    def pods_on(self, node: str) -> Iterator[PodView]:
        """The pods that are bound to a node, or to none with an empty name."""
        if self._by_node is None:
            self._by_node = index(self.pods)
        for key in sorted(self._by_node.get(node, ())):
            yield PodView.read(self.pods[key])

    def of(self, wanted: Callable[[Happening], bool]) -> list[Happening]:
        """What happened, oldest first."""
        return sorted((one for one in self.happenings.values() if wanted(one)), key=lambda one: one.time)


def _read(raw: bytes | None) -> JsonObject | None:
    found: JsonObject | None = None if raw is None else decode_json(raw)
    return found


def index(pods: dict[str, bytes]) -> dict[str, set[str]]:
    """Keys of pods by their node; those that wait are under an empty name."""
    found: dict[str, set[str]] = {}
    for key, raw in pods.items():
        found.setdefault(node_of(raw), set()).add(key)
    return found


@dataclass(frozen=True, slots=True)
class Scope:
    """All objects of a kind, or those of some namespaces, or single ones."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """`namespace/name` of objects that a role names one by one."""

    def __contains__(self, namespace: str) -> bool:
        return self.everything or namespace in self.namespaces

    def sees(self, key: str) -> bool:
        """Whether the object `namespace/name` may be seen."""
        return key.partition("/")[0] in self or key in self.names

    def __str__(self) -> str:
        return "all" if self.everything else ", ".join(sorted(self.namespaces | self.names)) or "none"


@dataclass(frozen=True, slots=True)
class Sight:
    """What of a cluster somebody may see."""

    nodes: Scope = Scope()
    pods: Scope = Scope()
    quotas: Scope = Scope()
    events: Scope = Scope()

    @property
    def all_pods_and_nodes(self) -> bool:
        """Whether what depends on every pod, such as what is free on a node, may be told."""
        return self.nodes.everything and self.pods.everything

    def told(self) -> dict[str, str]:
        """By kind, in words."""
        kinds = {"nodes": self.nodes, "pods": self.pods, "quotas": self.quotas, "events": self.events}
        return {kind: str(scope) for kind, scope in kinds.items()}
