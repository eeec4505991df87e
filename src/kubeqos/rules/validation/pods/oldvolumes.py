"""Volumes of storage systems that Kubernetes once had drivers for: their fields are still checked when a pod is made.

Called by `volumes`, which holds the table of all sources.
"""

from __future__ import annotations

import re

from kubeqos.model import names
from kubeqos.rules.fielderror import invalid, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_local_path, complain

_is_host_port = re.compile(r"(?:[^:\[\]]*|\[[^\]]*\]):[^:]*").fullmatch
_REGISTRY = "must be a host:port pair or multiple pairs separated by commas"
_MAX_TENANT = 64
_MAX_PARTITION = _MAX_LUN = 255
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_AZURE_URIS = {
    True: ("/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/"
           "{disk-id}"),
    False: ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
}  # fmt: skip


def check_fibre_channel(out: Errors, path: str, source: Raw) -> None:
    names_, ids, lun = source.get("targetWWNs") or NO_LIST, source.get("wwids") or NO_LIST, source.get("lun")
    if not names_ and not ids:
        out.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if names_ and ids:
        out.append(invalid(f"{path}.targetWWNs", names_, "targetWWNs and wwids can not be specified simultaneously"))
    if not names_:
        return
    if lun is None:
        out.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif not 0 <= lun <= _MAX_LUN:
        out.append(invalid(f"{path}.lun", lun, f"must be between 0 and {_MAX_LUN}, inclusive"))


def check_flocker(out: Errors, path: str, source: Raw) -> None:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uid:
        out.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uid:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        out.append(invalid(path, "resource", why))
    if "/" in name:
        out.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def check_quobyte(out: Errors, path: str, source: Raw) -> None:
    registry = source.get("registry", "")
    if not registry:
        out.append(required(f"{path}.registry", _REGISTRY))
    elif len(source.get("tenant", "")) > _MAX_TENANT:
        why = f"must be a UUID and may not exceed a length of {_MAX_TENANT} characters"
        out.append(required(f"{path}.tenant", why))
    elif not all(map(_is_host_port, registry.split(","))):
        out.append(invalid(f"{path}.registry", registry, _REGISTRY))
    if not source.get("volume"):
        out.append(required(f"{path}.volume"))


def check_azure_disk(out: Errors, path: str, source: Raw) -> None:
    uri, kind = source.get("diskURI", ""), source.get("kind", "Shared")
    out.extend(required(f"{path}.{field}") for field in ("diskName", "diskURI") if not source.get(field))
    caching = source.get("cachingMode")
    if caching is not None and caching not in _CACHING_MODES:
        out.append(not_supported(f"{path}.cachingMode", caching, _CACHING_MODES))
    if kind not in _DISK_KINDS:
        out.append(not_supported(f"{path}.kind", kind, _DISK_KINDS))
    start, shown = _AZURE_URIS[kind == "Managed"]
    if not uri.startswith(start):
        out.append(not_supported(f"{path}.diskURI", uri, (shown,)))


def check_gce_disk(out: Errors, path: str, source: Raw) -> None:
    """Kubernetes calls this field by its older name."""
    _check_disk(out, f"{path.removesuffix('gcePersistentDisk')}persistentDisk", source, "pdName")


def check_aws_disk(out: Errors, path: str, source: Raw) -> None:
    _check_disk(out, path, source, "volumeID")


def _check_disk(out: Errors, path: str, source: Raw, name: str) -> None:
    if not source.get(name):
        out.append(required(f"{path}.{name}"))
    partition = source.get("partition", 0)
    if not 0 <= partition <= _MAX_PARTITION:
        out.append(invalid(f"{path}.partition", partition, f"must be between 1 and {_MAX_PARTITION}, inclusive"))


def check_git_repo(out: Errors, path: str, source: Raw) -> None:
    if not source.get("repository"):
        out.append(required(f"{path}.repository"))
    check_local_path(out, f"{path}.directory", source.get("directory", ""))


def check_storage_os(out: Errors, path: str, source: Raw) -> None:
    name, namespace = source.get("volumeName", ""), source.get("volumeNamespace", "")
    if not name:
        out.append(required(f"{path}.volumeName"))
    else:
        complain(out, f"{path}.volumeName", name, names.dns_label(name))
    if namespace:
        complain(out, f"{path}.volumeNamespace", namespace, names.dns_label(namespace))
    secret = source.get("secretRef")
    if secret is not None and not (secret or NO_MAP).get("name"):
        out.append(required(f"{path}.secretRef.name"))
