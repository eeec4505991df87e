"""How a pod asks for classes where the API server does not know the fields: annotations for every resource and class.

    qos.kubeqos.io/pod: network=fast
    qos.kubeqos.io/container.main: rdt=gold,blockio=high-prio

What stands at the pod is the default of its containers, as in the fields. KEP-3008's own keys for rdt and blockio are
read too (`rules.qos.classes`); where both speak of the same resource, ours win: they are the more explicit form. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.annotations.podmarks import only_marks
from kubeqos.model.annotations.wellknown import CONTAINER_POLICY_ANNOTATION, POLICY_ANNOTATION
from kubeqos.model.names import qualified_name
from kubeqos.rules.qos.classes import ANNOTATED, POD_QOS, from_annotations, is_class_annotation

DOMAIN = "qos.kubeqos.io/"
POD_KEY = f"{DOMAIN}pod"
CONTAINER_KEY = f"{DOMAIN}container."
# An annotation's name, behind the slash, has at most 63 characters.
LONGEST_CONTAINER_NAME = 63 - len("container.")
_KEYS = (DOMAIN.encode(), *(f"{resource}.".encode() for resource in ANNOTATED))
_POLICIES = POLICY_ANNOTATION, CONTAINER_POLICY_ANNOTATION
_SEPARATOR = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Asked:
    """Classes by resource: those of the pod, and those of each container that asks for some."""

    pod: Mapping[str, str]
    containers: Mapping[str, Mapping[str, str]]

    def __bool__(self) -> bool:
        return bool(self.pod or any(self.containers.values()))


def read(annotations: Mapping[str, str], containers: Collection[str]) -> Asked:
    """What the annotations of a pod with these containers ask for; what cannot be meant is an error, never ignored."""
    kep = from_annotations(annotations, containers)
    if kep.unknown_containers:
        _no_container(kep.unknown_containers[0], containers)
    pod = dict(kep.pod)
    by_container = {name: dict(classes) for name, classes in kep.containers.items()}
    for key, value in annotations.items():
        if key == POD_KEY:
            pod |= parse(value, key)
        elif key.startswith(CONTAINER_KEY):
            name = key.removeprefix(CONTAINER_KEY)
            if name not in containers:
                _no_container(key, containers)
            by_container.setdefault(name, {}).update(parse(value, key))
        elif key.startswith(DOMAIN):
            raise InputError(f"{key} is no annotation of kubeqos", remedy=f"use {POD_KEY} or {CONTAINER_KEY}NAME")
    return Asked(pod, by_container)


def read_on_node(annotations: Mapping[str, str]) -> Asked:
    """The same where the pod's containers are not known: those that are named are taken to be there."""
    return read(annotations, {key.partition("/container.")[2] for key in annotations if is_request(key)})


def is_request(key: str) -> bool:
    """Whether an annotation of this name asks for classes, in our form or in the KEP's."""
    return key == POD_KEY or key.startswith(CONTAINER_KEY) or is_class_annotation(key)


def may_ask(text: bytes) -> bool:
    """Whether a pod may have such an annotation, by its text: a quick no for most."""
    return any(part in text for part in _KEYS)


def asks(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has such an annotation."""
    return any(map(is_request, (pod.get("metadata") or {}).get("annotations") or ()))


def asks_for_cores(marks: Mapping[str, str]) -> bool:
    """Whether annotations (or labels) ask for something of resource plugins or compute drivers."""
    return bool(only_marks(marks)) or any(key.startswith(_POLICIES) for key in marks)


def parse(text: str, key: str) -> dict[str, str]:
    """One annotation's value: `resource=class`, several separated by commas."""
    found: dict[str, str] = {}
    for part in filter(None, _SEPARATOR.split(text.strip())):
        resource, equals, cls = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"{part!r} is not of the form resource=class", where=key, remedy="for example rdt=gold")
        for what, name in (("resource", resource), ("class", cls)):
            if complaints := qualified_name(name) if name else ["is empty"]:
                raise InputError(f"{name!r} is not the name of a {what}: {complaints[0]}", where=key)
        if resource == POD_QOS:
            raise InputError("pod-qos follows from the pod's resources and cannot be requested", where=key)
        if resource in found:
            raise InputError(f"{resource} is asked for twice", where=key, remedy="keep one of them")
        found[resource] = cls
    return found


def written(asked: Asked) -> dict[str, str]:
    """The annotations that ask for this; `read` gives it back."""
    annotations = {POD_KEY: _listed(asked.pod)} if asked.pod else {}
    for name, classes in asked.containers.items():
        if classes and len(name) > LONGEST_CONTAINER_NAME:
            raise InputError(
                f"the container name {name} is too long for an annotation",
                remedy=f"at most {LONGEST_CONTAINER_NAME} characters where classes are asked for by annotation",
            )
        if classes:
            annotations[CONTAINER_KEY + name] = _listed(classes)
    return annotations


def _listed(classes: Mapping[str, str]) -> str:
    return ",".join(f"{resource}={cls}" for resource, cls in classes.items())


def _no_container(key: str, containers: Collection[str]) -> None:
    known = ", ".join(sorted(containers)) or "none"
    raise InputError(
        "the annotation names a container that the pod does not have", where=key, remedy=f"it has: {known}"
    )
