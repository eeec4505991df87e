"""Validation of PersistentVolumeClaim and of the alpha claims of KEP-3675: ResourceClass, ResourceClaim, template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import forbidden, invalid, not_supported, required, too_long
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_immutable,
    check_label_selector,
    check_supported,
    complain,
)
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_ALLOCATION_MODES = ("Immediate", "WaitForFirstConsumer")
_CLAIM = "PersistentVolumeClaim"
_EVER_KNOWN = (("", _CLAIM), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_SPEC_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def check_volume_claim(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    check_volume_claim_spec(out, "spec", raw.get("spec") or NO_MAP)


def check_volume_claim_spec(out: Errors, path: str, spec: Raw) -> None:
    """What is claimed, by a PersistentVolumeClaim or by the template in a pod's ephemeral volume."""
    modes = spec.get("accessModes") or NO_LIST
    if not modes:
        out.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    check_label_selector(out, f"{path}.selector", spec.get("selector"))
    check_access_modes(out, f"{path}.accessModes", modes)
    _check_storage(out, path, spec)
    _check_sources(out, path, spec)
    for field in ("storageClassName", "volumeAttributesClassName"):
        name = spec.get(field)
        if name:
            complain(out, f"{path}.{field}", name, names.dns_subdomain(name))
    mode = spec.get("volumeMode")
    if mode is not None:
        check_supported(out, f"{path}.volumeMode", mode, _VOLUME_MODES)


def check_access_modes(out: Errors, path: str, modes: Sequence[str]) -> None:
    """Modes of a claim or a volume: all known, and the one that excludes others alone."""
    for mode in modes:
        check_supported(out, path, mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and set(modes) & set(_ACCESS_MODES[:3]):
        out.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def _check_sources(out: Errors, path: str, spec: Raw) -> None:
    """What the volume begins with: said in one field of the two, or the same in both."""
    old, new = spec.get("dataSource"), spec.get("dataSourceRef")
    for field, source in (("dataSource", old), ("dataSourceRef", new)):
        if source is None:
            continue
        where, kind, group = f"{path}.{field}", source.get("kind", ""), source.get("apiGroup") or ""
        out.extend(required(f"{where}.{name}") for name in ("name", "kind") if not source.get(name))
        if not group and kind != _CLAIM:
            out.append(invalid(where, kind, f"must be '{_CLAIM}' when referencing the default apiGroup"))
        elif group:
            complain(out, f"{where}.apiGroup", group, names.dns_subdomain(group))
    if old is not None and new is not None and _same_source(old) != _same_source(new):
        out.append(invalid(path, f"{path}.dataSource", "must match dataSourceRef"))


def _same_source(source: Raw) -> tuple[str, str, str]:
    return source.get("apiGroup") or "", source.get("kind", ""), source.get("name", "")


def _check_storage(out: Errors, path: str, spec: Raw) -> None:
    amount = ((spec.get("resources") or NO_MAP).get("requests") or NO_MAP).get("storage")
    if amount is None:
        out.append(required(f"{path}.resources[storage]"))
    elif (size := Quantity.parse(amount)).nanos <= 0:
        out.append(invalid(f"{path}.resources[storage]", size, names.NOT_POSITIVE))


def check_volume_claim_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    check_volume_claim(out, raw)
    new, before = (with_sources(one.get("spec") or NO_MAP) for one in (raw, old))
    modes = new.get("volumeMode"), before.get("volumeMode")
    bound = (old.get("status") or NO_MAP).get("phase") == "Bound"
    if not before.get("volumeName"):
        new.pop("volumeName", None)
        before.pop("volumeName", None)
    if before.get("storageClassName") is None:
        new.pop("storageClassName", None)
    sizes = [((one.get("resources") or NO_MAP).get("requests") or NO_MAP).get("storage", "0") for one in (new, before)]
    wanted, had = map(Quantity.parse, sizes)
    if bound:
        for one in (new, before):
            one.pop("resources", None)
            one.pop("volumeAttributesClassName", None)
    if new != before:
        out.append(forbidden("spec", _SPEC_FIXED))
    floor = Quantity.parse(((old.get("status") or NO_MAP).get("capacity") or NO_MAP).get("storage", "0"))
    if wanted < had and not wanted > floor:
        why = "field can not be less than status.capacity"
        out.append(forbidden("spec.resources.requests.storage", why))
    check_immutable(out, "volumeMode", *modes)


def _was_ever_known(source: Raw) -> bool:
    group, kind, _ = _same_source(source)
    return (group, kind) in _EVER_KNOWN


def with_sources(spec: Raw) -> dict[str, Any]:
    """A claim's spec whose source stands in both fields that tell it, the older and the newer one."""
    made, old, new = dict(spec), spec.get("dataSource"), spec.get("dataSourceRef")
    if old is not None and new is None:
        made["dataSourceRef"] = dict(old)
    elif old is None and new is not None and not new.get("namespace"):
        made["dataSource"] = {field: value for field, value in new.items() if field != "namespace"}
    return made


def known_sources(spec: Raw, before: Raw | None) -> dict[str, Any]:
    """A claim's spec without a source in the older field that no claim could have had there, the rest in both fields.

    Who knows the newer field may name anything; the older one was always forgotten but for claims and snapshots.
    """
    source = spec.get("dataSource")
    had = before is not None and (before.get("dataSource") is not None or before.get("dataSourceRef") is not None)
    if source is not None and not had and spec.get("dataSourceRef") is None and not _was_ever_known(source):
        spec = {field: value for field, value in spec.items() if field != "dataSource"}
    return with_sources(spec)


def check_resource_class(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=False)
    driver = raw.get("driverName", "")
    if not driver:
        out.append(required("driverName"))
    else:
        if len(driver) > names.LABEL_MAX:
            out.append(too_long("driverName", names.LABEL_MAX))
        complain(out, "driverName", driver, names.dns_subdomain(driver.lower()))
    _check_parameters(out, "parametersRef", raw.get("parametersRef"))


def _check_parameters(out: Errors, path: str, reference: Raw | None) -> None:
    if reference is None:
        return
    out.extend(required(f"{path}.{field}") for field in ("kind", "name") if not reference.get(field))
    namespace = reference.get("namespace")
    if namespace:
        complain(out, f"{path}.namespace", namespace, names.dns_label(namespace))


def check_resource_claim(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_claim_spec(out, "spec", raw.get("spec") or NO_MAP)


def check_claim_template(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_claim_spec(out, "spec.spec", (raw.get("spec") or NO_MAP).get("spec") or NO_MAP)


def _check_claim_spec(out: Errors, path: str, spec: Raw) -> None:
    name = spec.get("resourceClassName", "")
    complain(out, f"{path}.resourceClassName", name, names.dns_subdomain(name))
    _check_parameters(out, f"{path}.parametersRef", spec.get("parametersRef"))
    mode = spec.get("allocationMode", "")
    if mode not in _ALLOCATION_MODES:
        out.append(not_supported(f"{path}.allocationMode", mode, _ALLOCATION_MODES))


def check_spec_change(out: Errors, raw: Raw, old: Raw) -> None:
    """Claims and their templates are fixed: who allocated read them once."""
    check_immutable(out, "spec", raw.get("spec"), old.get("spec"))
