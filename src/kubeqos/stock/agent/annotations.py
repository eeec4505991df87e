"""What annotations say of classes: what a pod asks for, and what we gave a container. Pure.

A pod asks by annotation (`asking`), and the runtime hands every annotation on; nothing else is needed to decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.cri.classes.decisions import Denied, Offers, Wish
from kubeqos.cri.providers.holders import Assignment, Holder
from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.errors import KubeqosError
from kubeqos.stock.asking import CONTAINER_KEY, POD_KEY, read_on_node

MARK = "qos.kubeqos.io.classes"
"""The annotation of a container that was given its classes when it was made."""


def wishes(offers: Offers, subject: Subject, pod_annotations: Mapping[str, str]) -> list[Wish] | Denied:
    """What a pod's annotations ask for this subject.

    What a pod asks for as a whole is a class of the pod where the resource is given to pods, and the default of its
    containers elsewhere; a resource that nobody here knows is the sandbox's, so that the pod is refused at once.
    """
    try:
        asked = read_on_node(pod_annotations)
    except KubeqosError as error:
        return Denied(0, "; ".join(error.lines()))
    whole = {name: cls for name, cls in asked.pod.items() if name not in offers or offers[name].level is Level.POD}
    if subject.level is Level.POD:
        return [Wish(name, cls, f"annotation {POD_KEY}") for name, cls in whole.items()]
    defaults = {name: cls for name, cls in asked.pod.items() if name not in whole}
    own = asked.containers.get(subject.container_name, {})
    return [
        *(Wish(name, cls, f"annotation {POD_KEY}") for name, cls in defaults.items() if name not in own),
        *(Wish(name, cls, f"annotation {CONTAINER_KEY}{subject.container_name}") for name, cls in own.items()),
    ]


def mark(classes: Mapping[str, Assignment]) -> str:
    """What is noted on a container, so that it is known again."""
    return encode_json({name: [each.class_name, each.explicit] for name, each in classes.items()}).decode()


def noted(annotations: Mapping[str, str], subject: Subject) -> Holder | None:
    """The holder that a container was made as; None where that was not by us."""
    try:
        given = decode_json(annotations[MARK]).items()
        return Holder(subject, {str(name): Assignment(str(cls), bool(explicit)) for name, (cls, explicit) in given})
    except (JsonError, KeyError, AttributeError, TypeError, ValueError):
        return None
