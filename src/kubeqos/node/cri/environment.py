"""A container's environment: variables from texts, ConfigMaps, Secrets and the pod itself (the downward API). Pure.

Asked by `node.cri.configs`, and by the executor for what has to be fetched first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kubeqos.model.quantity import Quantity
from kubeqos.node.cri.context import ConfigurationProblem, Context, Raw
from kubeqos.plugins.managers import AdmittedPod


def environment(
    pod: AdmittedPod, raw: Raw, context: Context, pod_ip: str, lookup: Mapping[tuple[str, str], Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """A container's variables in order; later ones may refer to earlier ones."""
    known: dict[str, str] = {}
    for source in raw.get("envFrom") or ():
        for kind, key in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if source.get(kind):
                data = _looked_up(lookup, key, source[kind])
                known |= {source.get("prefix", "") + name: value for name, value in data.items()}
    for entry in raw.get("env") or ():
        value = _value(pod, raw, entry, context, pod_ip, lookup, known)
        if value is not None:
            known[entry["name"]] = value
    yield from known.items()


def references(raw: Raw) -> set[tuple[str, str]]:
    """The ConfigMaps and Secrets that a container's environment needs: (kind, name)."""
    found = set()
    for source in raw.get("envFrom") or ():
        for field_, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if source.get(field_):
                found.add((kind, source[field_].get("name", "")))
    for entry in raw.get("env") or ():
        origin = entry.get("valueFrom") or {}
        for field_, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if origin.get(field_):
                found.add((kind, origin[field_].get("name", "")))
    return found


def _looked_up(lookup: Mapping[tuple[str, str], Mapping[str, str]], kind: str, reference: Raw) -> Mapping[str, str]:
    name = reference.get("name", "")
    data = lookup.get((kind, name))
    if data is None and not reference.get("optional"):
        raise ConfigurationProblem(f'{kind.lower()} "{name}" not found')
    return data or {}


def _value(
    pod: AdmittedPod,
    raw: Raw,
    entry: Raw,
    context: Context,
    pod_ip: str,
    lookup: Mapping[tuple[str, str], Mapping[str, str]],
    known: Mapping[str, str],
) -> str | None:
    origin = entry.get("valueFrom")
    if not origin:
        return expanded(entry.get("value", ""), known)
    if origin.get("fieldRef"):
        return field_value(pod, origin["fieldRef"].get("fieldPath", ""), context, pod_ip)
    if origin.get("resourceFieldRef"):
        return _resource_value(pod, raw, origin["resourceFieldRef"], context)
    for field_, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        reference = origin.get(field_)
        if reference:
            data = _looked_up(lookup, kind, reference)
            key = reference.get("key", "")
            if key not in data and not reference.get("optional"):
                text = f"couldn't find key {key} in {kind} {pod.view.metadata.namespace}/{reference.get('name', '')}"
                raise ConfigurationProblem(text)
            return data.get(key)
    return ""


_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def field_value(pod: AdmittedPod, path: str, context: Context, pod_ip: str) -> str:
    """A field of the pod, as the downward API offers it."""
    metadata, spec = pod.view.metadata, pod.raw.get("spec") or {}
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.labels if subscript[1] == "labels" else metadata.annotations).get(subscript[2], ""))
    values = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": spec.get("nodeName", context.node_name),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": context.host_ip,
        "status.hostIPs": context.host_ip,
    }
    if path not in values:
        raise ConfigurationProblem(f"unsupported fieldPath: {path}")
    return str(values[path])


def _resource_value(pod: AdmittedPod, raw: Raw, reference: Raw, context: Context) -> str:
    """A request or limit of a container; a limit that is not set is what the node could give."""
    name = reference.get("containerName") or raw.get("name")
    containers = [*pod.view.spec.init_containers, *pod.view.spec.containers]
    view = next((one for one in containers if one.name == name), None)
    if view is None:
        raise ConfigurationProblem(f"container {name} not found")
    side, _, resource = reference.get("resource", "").partition(".")
    table = view.resources.limits if side == "limits" else view.resources.requests
    amount = table.get(resource, Quantity.ZERO)
    if side == "limits" and amount.is_zero and resource == "memory":
        amount = Quantity.from_int(context.memory.allocatable_bytes)
    divisor = Quantity.parse(str(reference.get("divisor") or "1"))
    unit = divisor.nanos or Quantity.from_int(1).nanos
    return str(-(-amount.nanos // unit))


_REFERENCE = re.compile(r"\$(\$|\([^()]*\))")


def expanded(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, `$$` a dollar sign; unknown names stay as they are."""

    def replace(match: re.Match[str]) -> str:
        inner = match[1]
        return "$" if inner == "$" else known.get(inner[1:-1], match[0])

    return _REFERENCE.sub(replace, text)
