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
RUNTIME = "kubeqos-runtime"
SETTINGS = {
    "kubeqos-classes": "classes.yaml",
    "kubeqos-node-configuration": "node.yaml",
    RUNTIME: "runtime.yaml",
}
"""What agents are told: ConfigMaps, and the file in each."""
EMPTY = {"kubeqos-classes": "resources: {}\n", "kubeqos-node-configuration": "", RUNTIME: ""}
_DEPLOYED = ("namespace", "rbac", "controller", "scheduler", "agent")
_FOLDERS = ("crds", *(f"deploy/{name}.yaml" for name in _DEPLOYED))


def objects(image: str, settings: Mapping[str, str]) -> list[Raw]:
    """Every object, in the order in which it can be applied; settings that are not given stay as they are."""
    home = files("kubeqos.stock")
    found = [manifest.raw for name in _FOLDERS for manifest in read([str(home / name)])]
    named = [(raw, _settings(raw)) for raw in found]
    return [_set(raw, image, settings.get(name, "")) for raw, name in named if not name or name in settings]


def first_settings() -> list[Raw]:
    """The ConfigMaps that agents need to start, empty."""
    return [raw for raw in objects("", EMPTY) if _settings(raw)]


def resource_for(raw: Raw) -> Resource:
    """Where an object of ours lives."""
    found = resource_of(raw["apiVersion"], raw["kind"])
    assert found is not None, raw["kind"]
    return found


def removals() -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Every object, last first: what works before what it may do, definitions before the namespace."""
    made = objects("", EMPTY)
    definitions = [raw for raw in made if raw["kind"] == "CustomResourceDefinition"]
    namespaces = [raw for raw in made if raw["kind"] == "Namespace"]
    rest: Sequence[Raw] = [raw for raw in made if raw not in definitions and raw not in namespaces]
    for raw in (*reversed(rest), *definitions, *namespaces):
        yield resource_for(raw), raw["metadata"]


def _settings(raw: Raw) -> str:
    """The name of a ConfigMap that tells agents something."""
    name = str(raw["metadata"]["name"])
    return name if raw["kind"] == "ConfigMap" and name in SETTINGS else ""


def _set(raw: Raw, image: str, text: str) -> Raw:
    if name := _settings(raw):
        return {**raw, "data": {SETTINGS[name]: text}}
    if raw["kind"] in ("Deployment", "DaemonSet"):
        for container in raw["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
    return raw
