"""Warnings: what is accepted but probably not what the user meant. The API server sends them as Warning headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import quote
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Raw
from kubeqos.rules.validation.containers import all_containers
from kubeqos.rules.validation.meta import meta_of

_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_DEPRECATED_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def warnings(kind: str, raw: Raw, *, creating: bool = True) -> list[str]:
    """The warnings for an object that was found valid."""
    find = _KINDS.get(kind)
    return list(find(raw, creating)) if find else []


def _pod_warnings(raw: Raw, creating: bool) -> Iterator[str]:
    meta, spec = meta_of(raw), raw.get("spec") or NO_MAP
    name = meta.get("name", "")
    if creating and name and (wrong := names.dns_label(name)):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )
    yield from _spec_warnings("spec", spec, meta)


def _template_warnings(raw: Raw, creating: bool) -> Iterator[str]:
    template = raw.get("template") or (raw.get("spec") or NO_MAP).get("template") or NO_MAP
    path = "template.spec" if "template" in raw else "spec.template.spec"
    yield from _spec_warnings(path, template.get("spec") or NO_MAP, template.get("metadata") or NO_MAP)


def _volume_claim_warnings(raw: Raw, creating: bool) -> Iterator[str]:
    resources = (raw.get("spec") or NO_MAP).get("resources") or NO_MAP
    for side in ("requests", "limits"):
        yield from _fractions(f"spec.resources.{side}", resources.get(side) or NO_MAP, ("storage",))


def _spec_warnings(path: str, spec: Raw, meta: Raw) -> Iterator[str]:
    for key in spec.get("nodeSelector") or NO_MAP:
        if key in _DEPRECATED_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_DEPRECATED_LABELS[key]}"
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or NO_LIST):
        key = spread.get("topologyKey", "")
        if key in _DEPRECATED_LABELS:
            where = f"{path}.topologySpreadConstraints[{index}].topologyKey"
            yield f"{where}: {key} is {_DEPRECATED_LABELS[key]}"
        if spread.get("labelSelector") is None:
            yield f"{path}.topologySpreadConstraints[{index}].labelSelector: {_NULL_SELECTOR}"
    for key in meta.get("annotations") or NO_MAP:
        if key in _DEPRECATED_ANNOTATIONS:
            yield f"{path.removesuffix('spec')}metadata.annotations[{key}]: {_DEPRECATED_ANNOTATIONS[key]}"
    for index, volume in enumerate(spec.get("volumes") or NO_LIST):
        for source in volume:
            if source in _DEPRECATED_VOLUMES:
                yield f"{path}.volumes[{index}].{source}: {_DEPRECATED_VOLUMES[source]}"
    yield from _duplicates(f"{path}.hostAliases", spec.get("hostAliases"), "ip")
    yield from _duplicates(f"{path}.imagePullSecrets", spec.get("imagePullSecrets"), "name")
    for index, secret in enumerate(spec.get("imagePullSecrets") or NO_LIST):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    yield from _fractions(f"{path}.overhead", spec.get("overhead") or NO_MAP)
    for where, container in all_containers(spec):
        yield from _container_warnings(f"{path}.{where}", container)
    yield from _port_warnings(path, spec)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        where = f"{path}.terminationGracePeriodSeconds"
        yield f"{where}: must be >= 0; negative values are invalid and will be treated as 1"
    yield from _affinity_warnings(path, spec.get("affinity") or NO_MAP)


def _duplicates(path: str, items: list[Raw] | None, field: str) -> Iterator[str]:
    seen = set[str]()
    for index, item in enumerate(items or NO_LIST):
        value = item.get(field, "")
        if value in seen:
            yield f"{path}[{index}].{field}: duplicate {field} {quote(value)}"
        seen.add(value)


def _fractions(path: str, amounts: Raw, counted: tuple[str, ...] = ("memory", "ephemeral-storage")) -> Iterator[str]:
    for name in counted:
        amount = amounts.get(name)
        if amount is not None and not Quantity.parse(amount).is_integer:
            shown = quote(str(Quantity.parse(amount)))
            yield f"{path}[{name}]: fractional byte value {shown} is invalid, must be an integer"


def _container_warnings(path: str, container: Raw) -> Iterator[str]:
    resources = container.get("resources")
    if resources:
        for side in ("limits", "requests"):
            yield from _fractions(f"{path}.resources.{side}", resources.get(side) or NO_MAP)
    seen = set[str]()
    for index, variable in enumerate(container.get("env") or NO_LIST):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        hides = variable.get("valueFrom") is not None or value == reference or reference not in value
        if name in seen and hides:
            where = f"{path}.env[{index}]"
            yield f"{where}: hides previous definition of {quote(name)}, which may be dropped when using apply"
        seen.add(name)


def _port_warnings(path: str, spec: Raw) -> Iterator[str]:
    """Ports that are defined twice, which is not always a conflict."""
    known: dict[tuple[int, str], list[tuple[str, Raw]]] = {}
    for where, container in all_containers(spec):
        for index, port in enumerate(container.get("ports") or NO_LIST):
            here = f"{path}.{where}.ports[{index}]"
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            for there, other in others:
                if overlap := _overlap(port, other):
                    yield f"{here}: {overlap} port definition with {there}"
            others.append((here, port))


def _overlap(port: Raw, other: Raw) -> str | None:
    host, address = port.get("hostPort", 0), port.get("hostIP", "")
    other_host, other_address = other.get("hostPort", 0), other.get("hostIP", "")
    if (host, address) == (other_host, other_address):
        return "duplicate"
    if not host or not other_host:
        return "overlapping"
    if host == other_host and (not address) != (not other_address):
        return "dangerously ambiguous"
    return None


def _affinity_warnings(path: str, affinity: Raw) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or NO_MAP
        for index, term in enumerate(terms.get(_REQUIRED) or NO_LIST):
            if term.get("labelSelector") is None:
                yield f"{path}.affinity.{kind}.{_REQUIRED}[{index}].labelSelector: {_NULL_SELECTOR}"
        for index, weighted in enumerate(terms.get(_PREFERRED) or NO_LIST):
            if (weighted.get("podAffinityTerm") or NO_MAP).get("labelSelector") is None:
                where = f"{path}.affinity.{kind}.{_PREFERRED}[{index}]"
                yield f"{where}.podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


_KINDS: dict[str, Callable[[Raw, bool], Iterator[str]]] = {
    "Pod": _pod_warnings,
    "PersistentVolumeClaim": _volume_claim_warnings,
    "PodTemplate": _template_warnings,
    "ReplicationController": _template_warnings,
    "ReplicaSet": _template_warnings,
    "Deployment": _template_warnings,
}
