"""What is put into a stock cluster, and what is taken out of it, in which order. Pure but for reading our own files.

The files are a kustomize base too (`kustomization.yaml`). Called by `kubeqos install` and `kubeqos uninstall`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from kubeqos.client.resources import Resource, resource_of
from kubeqos.manifests import read

Raw = dict[str, Any]
NAMESPACE = "kubeqos-system"
CLASSES = "kubeqos-classes"
_FOLDERS = ("crds", "deploy/namespace.yaml", "deploy/rbac.yaml", "deploy/controller.yaml", "deploy/agent.yaml")


def objects(image: str, classes: str | None) -> list[Raw]:
    """Every object, in the order in which it can be applied; without `classes` those of the cluster stay."""
    home = files("kubeqos.stock")
    found = [manifest.raw for name in _FOLDERS for manifest in read([str(home / name)])]
    return [_set(raw, image, classes) for raw in found if classes is not None or not _is_classes(raw)]


def first_classes() -> Raw:
    """The ConfigMap that agents need to start, empty."""
    return next(raw for raw in objects("", "resources: {}\n") if _is_classes(raw))


def resource_for(raw: Raw) -> Resource:
    """Where an object of ours lives."""
    found = resource_of(raw["apiVersion"], raw["kind"])
    assert found is not None, raw["kind"]
    return found


def removals() -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Every object, last first: what works before what it may do, definitions before the namespace."""
    made = objects("", "")
    definitions = [raw for raw in made if raw["kind"] == "CustomResourceDefinition"]
    namespaces = [raw for raw in made if raw["kind"] == "Namespace"]
    rest: Sequence[Raw] = [raw for raw in made if raw not in definitions and raw not in namespaces]
    for raw in (*reversed(rest), *definitions, *namespaces):
        yield resource_for(raw), raw["metadata"]


def _is_classes(raw: Raw) -> bool:
    return bool(raw["kind"] == "ConfigMap" and raw["metadata"]["name"] == CLASSES)


def _set(raw: Raw, image: str, classes: str | None) -> Raw:
    if _is_classes(raw):
        return {**raw, "data": {"classes.yaml": classes}}
    if raw["kind"] in ("Deployment", "DaemonSet"):
        for container in raw["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
    return raw
