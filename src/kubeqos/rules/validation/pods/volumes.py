"""Volumes of a pod, and how containers mount them."""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_found, not_supported, required, too_long
from kubeqos.rules.validation.claims import check_volume_claim_spec
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Check,
    Errors,
    Raw,
    check_choice,
    check_labels,
    check_local_path,
    check_no_backsteps,
    complain,
)
from kubeqos.rules.validation.meta import check_annotations
from kubeqos.rules.validation.pods.environment import check_downward_file
from kubeqos.rules.validation.pods.oldvolumes import (
    check_aws_disk,
    check_azure_disk,
    check_fibre_channel,
    check_flocker,
    check_gce_disk,
    check_git_repo,
    check_quobyte,
    check_storage_os,
)

Volumes = dict[str, Raw]

_ONLY_ONE = "may not specify more than 1 volume type"
_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")
_TEN_MINUTES = 600


def check_volumes(out: Errors, path: str, volumes: Sequence[Raw], pod_name: str) -> Volumes:
    """Check every volume; the valid ones, by name, are what containers may mount."""
    valid: Volumes = {}
    made_here = {f"{pod_name}-{one.get('name', '')}" for one in volumes if pod_name and "ephemeral" in one}
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name", "")
        errors: Errors = []
        _check_source(errors, where, volume, pod_name)
        if not name:
            errors.append(required(f"{where}.name"))
        else:
            complain(errors, f"{where}.name", name, names.dns_label(name))
        if name in valid:
            errors.append(duplicate(f"{where}.name", name))
        if errors:
            out.extend(errors)
        else:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or NO_MAP).get("claimName")
        if claim and claim in made_here:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            out.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, why))
    return valid


def _check_source(out: Errors, path: str, volume: Raw, pod_name: str) -> None:
    found = False
    for field, check in _SOURCES.items():
        source = volume.get(field)
        if source is None:
            continue
        if found:
            out.append(forbidden(f"{path}.{field}", _ONLY_ONE))
            continue
        found = True
        check(out, f"{path}.{field}", source)
    if not found:
        out.append(required(path, "must specify a volume type"))
    name = volume.get("name", "")
    if volume.get("ephemeral") is not None and pod_name and name:
        claim = f"{pod_name}-{name}"
        out.extend(invalid(f"{path}.name", name, f'PVC name "{claim}": {one}') for one in names.dns_subdomain(claim))


def _check_empty_dir(out: Errors, path: str, source: Raw) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and Quantity.parse(limit).nanos < 0:
        out.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def check_host_path(out: Errors, path: str, source: Raw) -> None:
    target = source.get("path", "")
    if not target:
        out.append(required(f"{path}.path"))
        return
    check_no_backsteps(out, f"{path}.path", target)
    kind = source.get("type", "")
    if kind not in _HOST_PATH_TYPES:
        out.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))


def _check_mode(out: Errors, path: str, mode: int | None) -> None:
    if mode is not None and not 0 <= mode <= 0o777:
        out.append(invalid(path, mode, _MODE))


def _check_items(out: Errors, path: str, source: Raw) -> list[str]:
    targets = []
    for index, item in enumerate(source.get("items") or NO_LIST):
        where, target = f"{path}.items[{index}]", item.get("path", "")
        if not item.get("key"):
            out.append(required(f"{where}.key"))
        if not target:
            out.append(required(f"{where}.path"))
        check_local_path(out, f"{where}.path", target, reserved=True)
        _check_mode(out, f"{where}.mode", item.get("mode"))
        targets.append(target)
    return targets


def _named(field: str) -> Check:
    """A source of key/value files whose object is named by `field`."""

    def check(out: Errors, path: str, source: Raw) -> None:
        if not source.get(field):
            out.append(required(f"{path}.{field}"))
        _check_mode(out, f"{path}.defaultMode", source.get("defaultMode"))
        _check_items(out, path, source)

    return check


def _requires(*fields: str) -> Check:
    """A source that only has fields that must be given."""

    def check(out: Errors, path: str, source: Raw) -> None:
        out.extend(required(f"{path}.{field}") for field in fields if not source.get(field))

    return check


def check_nfs(out: Errors, path: str, source: Raw) -> None:
    _requires("server", "path")(out, path, source)
    target = source.get("path", "")
    if not target.startswith("/"):
        out.append(invalid(f"{path}.path", target, "must be an absolute path"))


def _check_downward(out: Errors, path: str, source: Raw) -> None:
    _check_mode(out, f"{path}.defaultMode", source.get("defaultMode"))
    for file in source.get("items") or NO_LIST:
        check_downward_file(out, path, file)
        _check_mode(out, f"{path}.mode", file.get("mode"))


def _check_projected(out: Errors, path: str, volume: Raw) -> None:
    _check_mode(out, f"{path}.defaultMode", volume.get("defaultMode"))
    taken: set[str] = set()
    for index, source in enumerate(volume.get("sources") or NO_LIST):
        where = f"{path}.sources[{index}]"
        for target, blame in _check_projection(out, path, where, source):
            if target in taken:
                out.append(invalid(path, blame, "conflicting duplicate paths"))
            taken.add(target)
        if len(source) > 1:
            out.append(forbidden(where, "may not specify more than 1 volume type per source"))


def _check_projection(out: Errors, path: str, where: str, source: Raw) -> list[tuple[str, str]]:
    """Check one projected source; the paths it fills and what to blame for a conflict."""
    targets: list[tuple[str, str]] = []
    for field in ("secret", "configMap"):
        inner = source.get(field)
        if inner is not None:
            name = inner.get("name", "")
            if not name:
                out.append(required(f"{where}.{field}.name"))
            targets += [(target, name) for target in _check_items(out, f"{where}.{field}", inner) if target]
    for file in (source.get("downwardAPI") or NO_MAP).get("items") or NO_LIST:
        check_downward_file(out, f"{where}.downwardAPI", file)
        if file.get("path"):
            targets.append((file["path"], file["path"]))
    token = source.get("serviceAccountToken")
    if token is not None:
        seconds, target = token.get("expirationSeconds", 3600), token.get("path", "")
        if seconds < _TEN_MINUTES or seconds > 1 << 32:
            limit = "less than 10 minutes" if seconds < _TEN_MINUTES else "larger than 2^32 seconds"
            why = f"may not specify a duration {limit}"
            out.append(invalid(f"{where}.serviceAccountToken.expirationSeconds", seconds, why))
        if not target:
            out.append(required(f"{path}.path"))
        else:
            check_local_path(out, f"{path}.path", target, reserved=True)
    return targets


def _check_ephemeral(out: Errors, path: str, source: Raw) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        out.append(required(f"{path}.volumeClaimTemplate"))
        return
    where, meta = f"{path}.volumeClaimTemplate", template.get("metadata") or NO_MAP
    check_labels(out, f"{where}.metadata.labels", meta.get("labels"))
    check_annotations(out, f"{where}.metadata.annotations", meta.get("annotations") or NO_MAP)
    check_volume_claim_spec(out, f"{where}.spec", template.get("spec") or NO_MAP)


def _check_csi(out: Errors, path: str, source: Raw) -> None:
    driver = source.get("driver", "")
    if not driver:
        out.append(required(f"{path}.driver"))
    if len(driver) > names.LABEL_MAX:
        out.append(too_long(f"{path}.driver", names.LABEL_MAX))
    complain(out, f"{path}.driver", driver, names.dns_subdomain(driver.lower()))


def _check_image(out: Errors, path: str, source: Raw) -> None:
    if not source.get("reference"):
        out.append(required(f"{path}.reference"))
    check_choice(out, f"{path}.pullPolicy", source.get("pullPolicy", ""), PULL_POLICIES)


_SOURCES: dict[str, Check] = {
    "emptyDir": _check_empty_dir,
    "hostPath": check_host_path,
    "gitRepo": check_git_repo,
    "gcePersistentDisk": check_gce_disk,
    "awsElasticBlockStore": check_aws_disk,
    "secret": _named("secretName"),
    "nfs": check_nfs,
    "iscsi": _requires("targetPortal", "iqn"),
    "glusterfs": _requires("endpoints", "path"),
    "flocker": check_flocker,
    "persistentVolumeClaim": _requires("claimName"),
    "rbd": _requires("monitors", "image"),
    "cinder": _requires("volumeID"),
    "cephfs": _requires("monitors"),
    "quobyte": check_quobyte,
    "downwardAPI": _check_downward,
    "fc": check_fibre_channel,
    "flexVolume": _requires("driver"),
    "configMap": _named("name"),
    "azureFile": _requires("secretName", "shareName"),
    "vsphereVolume": _requires("volumePath"),
    "photonPersistentDisk": _requires("pdID"),
    "portworxVolume": _requires("volumeID"),
    "azureDisk": check_azure_disk,
    "storageos": check_storage_os,
    "projected": _check_projected,
    "scaleIO": _requires("gateway", "system", "volumeName"),
    "csi": _check_csi,
    "ephemeral": _check_ephemeral,
    "image": _check_image,
}


def check_mounts(out: Errors, path: str, container: Raw, volumes: Volumes) -> None:
    """Where a container mounts volumes. Some complaints leave out the index, as Kubernetes does."""
    devices = {one.get("name", ""): one.get("devicePath", "") for one in container.get("volumeDevices") or NO_LIST}
    taken: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or NO_LIST):
        where, name, target = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            out.append(required(f"{where}.name"))
        if name not in volumes:
            out.append(not_found(f"{where}.name", name))
        if not target:
            out.append(required(f"{where}.mountPath"))
        if target in taken:
            out.append(invalid(f"{where}.mountPath", target, "must be unique"))
        taken.add(target)
        if name in devices:
            out.append(invalid(f"{where}.name", name, "must not already exist in volumeDevices"))
        if target in devices.values():
            why = "must not already exist as a path in volumeDevices"
            out.append(invalid(f"{where}.mountPath", target, why))
        _check_sub_path(out, path, where, mount)
        _check_propagation(out, path, mount, container)


def _check_sub_path(out: Errors, path: str, where: str, mount: Raw) -> None:
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub_path:
        check_local_path(out, f"{path}.subPath", sub_path)
    if expression:
        if sub_path:
            why = "subPathExpr and subPath are mutually exclusive"
            out.append(invalid(f"{where}.subPathExpr", expression, why))
        check_local_path(out, f"{path}.subPathExpr", expression)


def _check_propagation(out: Errors, path: str, mount: Raw, container: Raw) -> None:
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        where = f"{path}.mountPropagation"
        if propagation not in _PROPAGATIONS:
            out.append(not_supported(where, propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not (container.get("securityContext") or NO_MAP).get("privileged"):
            why = "Bidirectional mount propagation is available only to privileged containers"
            out.append(forbidden(where, why))
    recursive = mount.get("recursiveReadOnly")
    if recursive is None or recursive == "Disabled":
        return
    where = f"{path}.recursiveReadOnly"
    if recursive not in _RECURSIVE_READ_ONLY:
        out.append(not_supported(where, recursive, _RECURSIVE_READ_ONLY))
        return
    if not mount.get("readOnly"):
        out.append(forbidden(where, "may only be specified when readOnly is true"))
    if propagation not in (None, "None"):
        why = "may only be specified when mountPropagation is None or not specified"
        out.append(forbidden(where, why))


def check_devices(out: Errors, path: str, container: Raw, volumes: Volumes) -> None:
    mounts = {one.get("name", ""): one.get("mountPath", "") for one in container.get("volumeMounts") or NO_LIST}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or NO_LIST):
        where, name, target = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        _check_device_name(out, f"{where}.name", name, volumes, seen_names)
        if not target:
            out.append(required(f"{where}.devicePath"))
        if target in seen_paths:
            out.append(invalid(f"{where}.devicePath", target, "must be unique"))
        if ".." in target.split("/"):
            out.append(invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')"))
        else:
            seen_paths.add(target)
        if name in mounts:
            out.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            why = "must not already exist as a path in volumeMounts"
            out.append(invalid(f"{where}.devicePath", target, why))
        seen_names.add(name)


def _check_device_name(out: Errors, path: str, name: str, volumes: Volumes, seen: set[str]) -> None:
    if not name:
        out.append(required(path))
    elif name in seen:
        out.append(invalid(path, name, "must be unique"))
    volume = volumes.get(name)
    if volume is None:
        out.append(not_found(path, name))
    elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        out.append(invalid(path, name, why))
