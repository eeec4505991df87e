"""What Kubernetes says about the fields of volumes, their classes and their drivers."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required
from kubeqos.rules.validation.claims import check_access_modes
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_immutable, check_no_backsteps, complain
from kubeqos.rules.validation.stored.checks import (
    Fields,
    choice,
    driver_name,
    judged,
    least,
    most,
    named,
    needed,
    needs_name,
    quantity,
    set_at_all,
    unique,
)

_LIFECYCLES = ("Persistent", "Ephemeral")
_SOURCES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs",
    "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
    "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
_SECRETS = tuple(f"{step}SecretRef" for step in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"))
_TOLD_LATER = ("controllerExpandSecretRef", "nodeExpandSecretRef")
_LONGEST_NODE_ID = 256
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 1 << 32


def _check_volume(out: Errors, path: str, spec: Raw) -> None:
    sources = [field for field in _SOURCES if spec.get(field) is not None]
    if not sources:
        out.append(required(path, "must specify a volume type"))
    out.extend(forbidden(f"{path}.{field}", "may not specify more than 1 volume type") for field in sources[1:])
    if sources[:1] == ["local"] and spec.get("nodeAffinity") is None:
        out.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    at_root = ((spec.get("hostPath") or NO_MAP).get("path") or "x").strip("/") == ""
    if at_root and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        why = "may not be 'recycle' for a hostPath mount of '/'"
        out.append(forbidden(f"{path}.persistentVolumeReclaimPolicy", why))


def _check_access_modes(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
    check_access_modes(out, path, value or NO_LIST)


def _check_capacity(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
    if list(value or ()) != ["storage"]:
        out.append(not_supported(path, value or None, ("storage",)))
    for name, amount in (value or NO_MAP).items():
        quantity(zero=False, why=names.NOT_POSITIVE)(out, f"{path}[{name}]", amount)


def _check_lifecycles(out: Errors, path: str, value: Any) -> None:
    out.extend(not_supported(path, mode, _LIFECYCLES) for mode in value or () if mode not in _LIFECYCLES)


def _check_local(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
    else:
        check_no_backsteps(out, path, value)


def _check_topologies(out: Errors, path: str, value: Any) -> None:
    """No two terms allow the same; one that allows nothing in particular is one too many."""
    seen: list[dict[str, set[str]]] = [{}]
    for index, term in enumerate(value or ()):
        allowed = {
            one.get("key", ""): set(one.get("values") or ()) for one in term.get("matchLabelExpressions") or NO_LIST
        }
        if allowed in seen:
            out.append(duplicate(f"{path}[{index}].matchLabelExpressions", ""))
        seen.append(allowed)


def _check_attached(out: Errors, path: str, source: Raw) -> None:
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if name is None and inline is None:
        why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        out.append(required(path, why))
    elif name is not None and inline is not None:
        out.append(forbidden(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    elif name is not None:
        if not name:
            out.append(required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName"))
        complain(out, f"{path}.persistentVolumeName", name, names.dns_subdomain(name))


def _check_csi_node_driver(out: Errors, path: str, driver: Raw) -> None:
    seen: set[str] = set()
    for key in driver.get("topologyKeys") or NO_LIST:
        if not key:
            out.append(required(path, key))
        if key in seen:
            out.append(duplicate(path, key))
        seen.add(key)
        complain(out, path, key, names.qualified_name(key))


def _check_secret(out: Errors, path: str, value: Any) -> None:
    """Where a secret is. That of `nodeStage` is not looked at, there neither."""
    if value is not None:
        out.extend(required(f"{path}.{field}") for field in ("name", "namespace") if not value.get(field))


def _check_node_id(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
    elif len(value) > _LONGEST_NODE_ID:
        out.append(invalid(path, value, f"must be {_LONGEST_NODE_ID} characters or less"))


def _check_parameters(out: Errors, path: str, value: Any) -> None:
    if "" in (value or ()):
        out.append(invalid(path, "", "field can not be empty."))


def _check_reclaim(out: Errors, path: str, value: Any) -> None:
    """An empty word is taken for none."""
    choice("Delete", "Retain")(out, path, value or None)


def check_volume_change(out: Errors, raw: Raw, old: Raw) -> None:
    """A volume stays where it is; secrets for making it larger may be told later."""
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    if any(_fixed(spec.get(field), before.get(field)) != before.get(field) for field in _SOURCES):
        out.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    if (mode := before.get("volumeMode")) is not None:
        check_immutable(out, "volumeMode", spec.get("volumeMode"), mode)
    place, known = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if known is not None and _renamed(place, known) != known:
        out.append(invalid("nodeAffinity", place, f"{names.IMMUTABLE}, except for updating from beta label to GA"))


_STABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _renamed(new: Any, old: Any) -> Any:
    """A part of a node affinity with the keys that it had, where they became the stable ones of the same meaning."""
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_renamed(one, known) for one, known in zip(new, old, strict=True)]
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    made = {key: _renamed(value, old.get(key)) for key, value in new.items()}
    if old.get("key") and new.get("key", "") == _STABLE.get(old["key"], ""):  # a key that is not in it has none, too
        made["key"] = old["key"]
    return made


def _fixed(source: Any, before: Any) -> Any:
    """A source without what may be added to it."""
    late = [field for field in _TOLD_LATER if isinstance(before, dict) and field not in before]
    return {key: one for key, one in source.items() if key not in late} if isinstance(source, dict) else source


def check_node_change(out: Errors, raw: Raw, old: Raw) -> None:
    """A driver that is there keeps its name for the node."""
    drivers, before = ((one.get("spec") or NO_MAP).get("drivers") or NO_LIST for one in (raw, old))
    known = {one.get("name"): one for one in before}
    for one in drivers:
        had = known.get(one.get("name"), one)
        if any(one.get(field) != had.get(field) for field in ("nodeID", "topologyKeys")):
            out.append(invalid("spec.drivers", drivers, names.IMMUTABLE))


def check_attributes_change(out: Errors, raw: Raw, old: Raw) -> None:
    for field in ("driverName", "parameters"):
        if raw.get(field) != old.get(field):
            out.append(forbidden(field, f"updates to {field} are forbidden."))


_POSITIVE_PARAMETERS = needed("must contain at least one key/value pair")
_CLASS = named(names.dns_subdomain)
TYPES: dict[str, Fields] = {
    "core/v1.PersistentVolumeSpec": {
        "accessModes": _check_access_modes,
        "capacity": _check_capacity,
        "persistentVolumeReclaimPolicy": choice("Delete", "Recycle", "Retain"),
        "storageClassName": _CLASS,
        "volumeAttributesClassName": _CLASS,
        "volumeMode": choice("Block", "Filesystem"),
        "": _check_volume,
    },
    "core/v1.VolumeNodeAffinity": {"required": set_at_all("must specify required node constraints")},
    "core/v1.LocalVolumeSource": {"path": _check_local},
    "core/v1.CSIPersistentVolumeSource": {"driver": driver_name, **dict.fromkeys(_SECRETS, _check_secret)},
    "storage/v1.StorageClass": {
        "provisioner": needs_name(names.qualified_name, lower=True),
        "parameters": _check_parameters,
        "reclaimPolicy": _check_reclaim,
        "volumeBindingMode": (set_at_all(), choice("Immediate", "WaitForFirstConsumer")),
        "allowedTopologies": _check_topologies,
    },
    "core/v1.TopologySelectorTerm": {"matchLabelExpressions": unique("key")},
    "core/v1.TopologySelectorLabelRequirement": {
        "key": judged(names.qualified_name, unset=False),
        "values": (needed(), unique()),
    },
    "storage/v1.CSIDriverSpec": {
        "fsGroupPolicy": choice("File", "None", "ReadWriteOnceWithFSType"),
        "volumeLifecycleModes": _check_lifecycles,
        "nodeAllocatableUpdatePeriodSeconds": least(10, "must be greater than or equal to 10 seconds"),
        "tokenRequests": unique("audience"),
    },
    "storage/v1.TokenRequest": {
        "audience": (),
        "expirationSeconds": (
            least(_SHORTEST_TOKEN, "may not specify a duration less than 10 minutes"),
            most(_LONGEST_TOKEN, "may not specify a duration larger than 2^32 seconds"),
        ),
    },
    "storage/v1.CSINodeSpec": {"drivers": unique("name")},
    "storage/v1.CSINodeDriver": {"name": driver_name, "nodeID": _check_node_id, "": _check_csi_node_driver},
    "storage/v1.VolumeNodeResources": {"count": least(0)},
    "storage/v1.CSIStorageCapacity": {
        "storageClassName": judged(names.dns_subdomain, unset=False),
        "capacity": quantity(zero=True, why=names.NEGATIVE),
    },
    "storage/v1.VolumeAttachmentSpec": {
        "attacher": driver_name,
        "nodeName": judged(names.dns_subdomain, unset=False),
    },
    "storage/v1.VolumeAttachmentSource": {"": _check_attached},
    "storage/v1.VolumeAttributesClass": {
        "driverName": needs_name(names.qualified_name, lower=True),
        "parameters": (_check_parameters, _POSITIVE_PARAMETERS),
    },
}
