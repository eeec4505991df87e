"""Most pods are copies: replicas of one template differ in name only. What admission made of the first is kept.

A pod's completed spec, status and annotations, and what it costs, follow from what the client wrote (except its name)
and from the namespace's surroundings. The key holds the first as bytes and the second as a generation number that
grows with every change of a LimitRange, priority class or node offer. Quotas are decided anew for every pod, and a
name that could matter to any rule takes the long way.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.names import dns_subdomain
from kubeqos.rules.quota import Charge

KEPT = 256
_IDENTITY = frozenset(("name", "namespace", "uid", "creationTimestamp", "resourceVersion"))
MAX_PLAIN_NAME = 63  # a longer name is a legal one, but earns a warning


@dataclass(slots=True)
class Template:
    """The parts of an admitted pod that its copies share. Nobody changes them: after admission they are only read."""

    spec: JsonObject
    status: JsonObject
    metadata: JsonObject
    charge: Charge
    owners: dict[str, list[JsonObject]] = field(default_factory=dict)

    def copy_to(self, pod: JsonObject) -> None:
        """Complete a new pod from the one that was admitted before."""
        identity = {name: value for name, value in pod["metadata"].items() if name in _IDENTITY}
        pod["metadata"] = {**self.metadata, **identity}
        pod["spec"] = self.spec
        pod["status"] = self.status


class Templates:
    """The most recent templates, by what was written where."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, bytes], Template] = OrderedDict()

    @staticmethod
    def key(pod: JsonObject, namespace: str, generation: int) -> tuple[str, int, bytes] | None:
        """None for a pod that must take the long way."""
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        name = metadata.get("name", "")
        if len(name) > MAX_PLAIN_NAME or dns_subdomain(name) or spec.get("schedulingGates"):
            return None
        written = {k: v for k, v in metadata.items() if k not in _IDENTITY}
        return namespace, generation, encode_json([written, spec])

    def get(self, key: tuple[str, int, bytes] | None) -> Template | None:
        found = self._kept.get(key) if key is not None else None
        if found is not None:
            self._kept.move_to_end(key)  # type: ignore[arg-type]  # it was found
        return found

    def keep(self, key: tuple[str, int, bytes], pod: JsonObject, charge: Charge) -> Template:
        metadata = {name: value for name, value in pod["metadata"].items() if name not in _IDENTITY}
        template = self._kept[key] = Template(pod["spec"], pod["status"], metadata, charge)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return template
