"""`QOSClass` objects (KEP-3008, API objects for resources and classes): names that the administrator adds to the
official ones, and which namespaces may ask for a class. Pure.

Read by admission (strict names, allowed namespaces) and by nodes (strict names at registration). The objects have the
form that `stock/crds/qosclasses.yaml` defines; where nobody has defined them, nothing is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.rules.qos.classes import WELL_KNOWN, Level

QOS_CLASSES = "qosclasses.kubeqos.io"
QOS_CLASSES_PATH = ("kubeqos.io", "v1alpha1", "qosclasses")


@dataclass(frozen=True, slots=True)
class ClassObjects:
    """What all objects say together."""

    levels: Mapping[str, Level] = field(default_factory=lambda: WELL_KNOWN)
    """Official resources and those that objects name; an official one keeps the level that it has."""
    namespaces: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """The only namespaces that may ask for a class; of several objects for one class all must agree."""

    @classmethod
    def of(cls, objects: Iterable[Mapping[str, Any]]) -> ClassObjects:
        levels: dict[str, Level] = {}
        allowed: dict[tuple[str, str], frozenset[str]] = {}
        for obj in objects:
            spec = obj.get("spec") or {}
            resource, name, level = (str(spec.get(key) or "") for key in ("resource", "class", "level"))
            if level in set(Level):
                levels.setdefault(resource, Level(level))
            if isinstance(spec.get("allowedNamespaces"), list):
                here = frozenset(map(str, spec["allowedNamespaces"]))
                allowed[resource, name] = allowed.get((resource, name), here) & here
        return cls({**levels, **WELL_KNOWN}, allowed)

    def refusal(self, namespace: str, spec: Mapping[str, Any]) -> str:
        """Why a pod of a namespace may not ask for what it asks; nothing when it may."""
        asked = list(spec.get("qosResources") or ())
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            asked += (container.get("resources") or {}).get("qosResources") or ()
        for one in asked:
            allowed = self.namespaces.get((one.get("name", ""), one.get("class", "")))
            if allowed is not None and namespace not in allowed:
                whose = f"namespaces {', '.join(sorted(allowed))}" if allowed else "no namespace"
                return f"QoS class {one['name']}={one['class']} is for {whose} (qosclasses.kubeqos.io)"
        return ""
