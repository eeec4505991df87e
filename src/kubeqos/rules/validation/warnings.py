"""Warnings: what is accepted but probably not what the user meant. The API server sends them as Warning headers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.model.text.gotext import quote
from kubeqos.rules import webhooks
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Raw
from kubeqos.rules.validation.definitions import definition_warnings
from kubeqos.rules.validation.meta import meta_of
from kubeqos.rules.validation.pods.containers import all_containers

MAX_WARNINGS = 100
"""Nobody reads more, and what repeats itself in a large object can be warned of millions of times."""
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
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
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
_UNENFORCED = (
    "admission policies are CEL, which is not evaluated here: this is stored and has no effect, nothing is refused or"
    " changed by it"
)
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_WHOLE = ("memory", "ephemeral-storage")
"""Resources that are counted in whole bytes."""
_PORT_FIELDS = (("name", ""), ("hostPort", 0), ("containerPort", 0), ("protocol", ""), ("hostIP", ""))
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def warnings(kind: str, raw: Raw, *, old: Raw | None = None) -> list[str]:
    """The warnings for an object that was found valid; `old` is what it was, if it is changed."""
    find = _KINDS.get(kind)
    return list(islice(find(raw, old), MAX_WARNINGS)) if find else []


def _pod_warnings(raw: Raw, old: Raw | None) -> Iterator[str]:
    """Who changes a pod is seldom a person: nobody is warned then."""
    if old is None:
        yield from _name_warnings(raw, "the Pod's hostname")
        yield from _spec_warnings("spec", raw.get("spec") or NO_MAP, meta_of(raw))


def _workload_warnings(raw: Raw, old: Raw | None) -> Iterator[str]:
    if old is None:
        yield from _name_warnings(raw, "Pod names and hostnames")
    spec = raw.get("spec") or NO_MAP
    if old is None or spec != (old.get("spec") or NO_MAP):
        yield from _template_warnings("spec.template", spec.get("template") or NO_MAP)


def _pod_template_warnings(raw: Raw, old: Raw | None) -> Iterator[str]:
    template = raw.get("template") or NO_MAP
    if old is None or template != (old.get("template") or NO_MAP):
        yield from _template_warnings("template", template)


def _template_warnings(path: str, template: Raw) -> Iterator[str]:
    spec, meta = template.get("spec") or NO_MAP, template.get("metadata") or NO_MAP
    yield from _spec_warnings(f"{path}.spec", spec, meta)
    covered = _has_context(spec, "appArmorProfile")
    for _, container in all_containers(spec):
        key = f"{_APP_ARMOR}{container.get('name', '')}"
        if (
            key in (meta.get("annotations") or NO_MAP)
            and not covered
            and not _has_context(container, "appArmorProfile")
        ):
            why = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{path}.metadata.annotations[{key}]: {why}"


def _name_warnings(raw: Raw, use: str) -> Iterator[str]:
    name = meta_of(raw).get("name", "")
    if name and (wrong := names.dns_label(name)):
        yield (
            f"metadata.name: this is used in {use}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )


def _has_context(holder: Raw, field: str) -> bool:
    return (holder.get("securityContext") or NO_MAP).get(field) is not None


def _volume_claim_warnings(raw: Raw, old: Raw | None) -> Iterator[str]:
    yield from _storage_warnings("spec", raw.get("spec") or NO_MAP)


def _storage_warnings(path: str, spec: Raw) -> Iterator[str]:
    resources = spec.get("resources") or NO_MAP
    for side in ("requests", "limits"):
        yield from _fraction(f"{path}.resources.{side}", resources.get(side) or NO_MAP, "storage")


def _spec_warnings(path: str, spec: Raw, meta: Raw) -> Iterator[str]:
    containers = all_containers(spec)
    for key in spec.get("nodeSelector") or NO_MAP:
        if key in _DEPRECATED_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_DEPRECATED_LABELS[key]}"
    yield from _node_affinity_warnings(f"{path}.affinity.nodeAffinity", spec.get("affinity") or NO_MAP)
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
                # Kubernetes writes this one as its documentation does, not as the field is called.
                shown = "storageOS" if source == "storageos" else source
                yield f"{path}.volumes[{index}].{shown}: {_DEPRECATED_VOLUMES[source]}"
        template = (volume.get("ephemeral") or NO_MAP).get("volumeClaimTemplate") or NO_MAP
        where = f"{path}.volumes[{index}].ephemeral.volumeClaimTemplate.spec"
        yield from _storage_warnings(where, template.get("spec") or NO_MAP)
    yield from _duplicates(f"{path}.hostAliases", spec.get("hostAliases"), "ip")
    yield from _duplicates(f"{path}.imagePullSecrets", spec.get("imagePullSecrets"), "name")
    for index, secret in enumerate(spec.get("imagePullSecrets") or NO_LIST):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    for resource in _WHOLE:
        yield from _fraction(f"{path}.overhead", spec.get("overhead") or NO_MAP, resource)
    yield from _seccomp_warnings(path.removesuffix("spec"), spec, meta.get("annotations") or NO_MAP, containers)
    for where, container in containers:
        yield from _container_warnings(f"{path}.{where}", container)
    yield from _port_warnings(path, containers)
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


def _fraction(path: str, amounts: Raw, resource: str) -> Iterator[str]:
    amount = amounts.get(resource)
    if amount is not None and not Quantity.parse(amount).is_integer:
        shown = quote(str(Quantity.parse(amount)))
        yield f"{path}[{resource}]: fractional byte value {shown} is invalid, must be an integer"


def _seccomp_warnings(path: str, spec: Raw, annotations: Raw, containers: list[tuple[str, Raw]]) -> Iterator[str]:
    """Annotations that once chose a seccomp profile, where the field does not say the same."""
    keys = [] if _has_context(spec, "seccompProfile") else [_SECCOMP_POD]
    for _, container in containers:
        if not _has_context(container, "seccompProfile"):
            keys.append(f"{_SECCOMP_CONTAINER}{container.get('name', '')}")
    for key in keys:
        if key in annotations:
            yield f'{path}metadata.annotations[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'


def _container_warnings(path: str, container: Raw) -> Iterator[str]:
    resources = container.get("resources")
    if resources:
        for resource in _WHOLE:
            for side in ("limits", "requests"):
                yield from _fraction(f"{path}.resources.{side}", resources.get(side) or NO_MAP, resource)
    seen = set[str]()
    for index, variable in enumerate(container.get("env") or NO_LIST):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        hides = variable.get("valueFrom") is not None or value == reference or reference not in value
        if name in seen and hides:
            where = f"{path}.env[{index}]"
            yield f"{where}: hides previous definition of {quote(name)}, which may be dropped when using apply"
        seen.add(name)


def _port_warnings(path: str, containers: list[tuple[str, Raw]]) -> Iterator[str]:
    """Ports that are defined twice, which is not always a conflict."""
    known: dict[tuple[int, str], _Ports] = {}
    for where, container in containers:
        for index, port in enumerate(container.get("ports") or NO_LIST):
            here = f"{path}.{where}.ports[{index}]"
            if port.get("hostIP") and not port.get("hostPort"):
                shown = " ".join(f"{name[0].upper()}{name[1:]}:{port.get(name, zero)}" for name, zero in _PORT_FIELDS)
                yield f"{here}: hostIP set without hostPort: {{{shown}}}"
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol", "")), _Ports())
            for there, overlap in others.overlapping(port.get("hostPort", 0), port.get("hostIP", "")):
                yield f"{here}: {overlap} port definition with {there}"
            others.add(port.get("hostPort", 0), port.get("hostIP", ""), here)


class _Ports:
    """Definitions of one container port, found by host port and address without looking at all of them."""

    def __init__(self) -> None:
        self._all: list[tuple[int, int, str, str]] = []
        self._by_host: defaultdict[int, list[tuple[int, int, str, str]]] = defaultdict(list)
        self._by_address: defaultdict[tuple[int, str], list[tuple[int, int, str, str]]] = defaultdict(list)

    def add(self, host: int, address: str, where: str) -> None:
        entry = (len(self._all), host, address, where)
        self._all.append(entry)
        self._by_host[host].append(entry)
        self._by_address[host, address].append(entry)

    def overlapping(self, host: int, address: str) -> Iterator[tuple[str, str]]:
        """Where the others are and how they meet, in the order in which they were defined."""
        if host == 0:
            found: Iterable[tuple[int, int, str, str]] = self._all
        elif address:
            same, anywhere = self._by_address.get((host, address), ()), self._by_address.get((host, ""), ())
            found = merge(self._by_host.get(0, ()), same, anywhere)
        else:
            found = merge(self._by_host.get(0, ()), self._by_host.get(host, ()))
        for _, other, other_address, where in found:
            if (other, other_address) == (host, address):
                yield where, "duplicate"
            else:
                yield where, "overlapping" if not host or not other else "dangerously ambiguous"


def _node_affinity_warnings(path: str, affinity: Raw) -> Iterator[str]:
    node = affinity.get("nodeAffinity") or NO_MAP
    for index, term in enumerate((node.get(_REQUIRED) or NO_MAP).get("nodeSelectorTerms") or NO_LIST):
        yield from _term_warnings(f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", term, values=False)
    for index, weighted in enumerate(node.get(_PREFERRED) or NO_LIST):
        term = weighted.get("preference") or NO_MAP
        yield from _term_warnings(f"{path}.{_PREFERRED}[{index}].preference", term, values=True)


def _term_warnings(path: str, term: Raw, *, values: bool) -> Iterator[str]:
    """Values are only warned of where validation lets them pass."""
    for index, expression in enumerate(term.get("matchExpressions") or NO_LIST):
        key, where = expression.get("key", ""), f"{path}.matchExpressions[{index}]"
        if key in _DEPRECATED_LABELS:
            yield f"{where}.key: {key} is {_DEPRECATED_LABELS[key]}"
        for number, value in enumerate(expression.get("values") or NO_LIST) if values else ():
            for wrong in names.label_value(value):
                yield f"{where}.values[{number}]: {value} is invalid, {wrong}"


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


def _api_service_warnings(raw: Raw, _old: Raw | None) -> Iterator[str]:
    if (raw.get("spec") or NO_MAP).get("service") is not None:
        yield "spec.service: other API servers are not asked here; nothing is served by it"


_KINDS: dict[str, Callable[[Raw, Raw | None], Iterator[str]]] = {
    "Pod": _pod_warnings,
    "PersistentVolumeClaim": _volume_claim_warnings,
    "PodTemplate": _pod_template_warnings,
    "ReplicationController": _workload_warnings,
    "ReplicaSet": _workload_warnings,
    "Deployment": _workload_warnings,
    "CustomResourceDefinition": lambda raw, _old: iter(definition_warnings(raw)),
    "MutatingWebhookConfiguration": lambda raw, _old: iter(webhooks.warnings(raw)),
    "ValidatingWebhookConfiguration": lambda raw, _old: iter(webhooks.warnings(raw)),
    "APIService": _api_service_warnings,
    **dict.fromkeys(
        (f"{kind}AdmissionPolicy{part}" for kind in ("Mutating", "Validating") for part in ("", "Binding")),
        lambda _raw, _old: iter((_UNENFORCED,)),
    ),
}
