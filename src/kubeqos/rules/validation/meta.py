"""Validation of `metadata`, on create and on update."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.model.text.gotext import quote
from kubeqos.rules.fielderror import forbidden, invalid, required, too_long
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_immutable,
    check_labels,
    check_non_negative,
    complain,
)

MAX_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
_NOT_STANDARD = "name is neither a standard finalizer name nor is it fully qualified"
_REPEATED_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


def check_meta(out: Errors, meta: Raw, rule: names.NameRule, *, namespaced: bool) -> None:
    """The metadata of an object that is created, after its name was generated."""
    name, generate_name = meta.get("name"), meta.get("generateName")
    if generate_name and (wrong := names.generated(rule)(generate_name)):
        complain(out, "metadata.generateName", generate_name, wrong)
    if not name:
        out.append(required("metadata.name", "name or generateName is required"))
    elif wrong := rule(name):
        complain(out, "metadata.name", name, wrong)
    _check_namespace(out, meta.get("namespace"), namespaced)
    check_non_negative(out, "metadata.generation", meta.get("generation"))
    check_common(out, meta, "metadata")
    if finalizers := meta.get("finalizers"):
        _check_finalizers(out, finalizers)


def _check_namespace(out: Errors, namespace: str | None, namespaced: bool) -> None:
    if namespaced:
        if not namespace:
            out.append(required("metadata.namespace"))
        elif wrong := names.dns_label(namespace):
            complain(out, "metadata.namespace", namespace, wrong)
    elif namespace:
        out.append(forbidden("metadata.namespace", "not allowed on this type"))


def check_common(out: Errors, meta: Raw, path: str) -> None:
    """Labels, annotations and owners: the same on create and on update."""
    if labels := meta.get("labels"):
        check_labels(out, f"{path}.labels", labels)
    if annotations := meta.get("annotations"):
        check_annotations(out, f"{path}.annotations", annotations)
    if owners := meta.get("ownerReferences"):
        _check_owners(out, f"{path}.ownerReferences", owners)


def check_annotations(out: Errors, path: str, annotations: Raw) -> None:
    size = 0
    for key, value in annotations.items():
        if wrong := names.annotation_key(key):
            complain(out, path, key, wrong)
        size += len(key) + len(value)
    # Counting characters is enough unless that already comes near the limit, which is in bytes.
    if size * 4 > MAX_ANNOTATION_BYTES:
        exact = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if exact > MAX_ANNOTATION_BYTES:
            out.append(too_long(path, MAX_ANNOTATION_BYTES))


def drop_repeated_owners(meta: dict[str, Any]) -> str | None:
    """Drop references that are given more than once; what to warn about if there were any."""
    owners = meta.get("ownerReferences") or NO_LIST
    kept: list[Raw] = []
    seen: set[str] = set()
    repeated = []
    for owner in owners:
        text = repr(sorted(owner.items()))
        if text in seen:
            repeated.append(owner.get("uid", ""))
        else:
            seen.add(text)
            kept.append(owner)
    if not repeated:
        return None
    meta["ownerReferences"] = kept
    return f"{_REPEATED_OWNERS}{', '.join(repeated)}"


def _check_owners(out: Errors, path: str, owners: list[Raw]) -> None:
    controller = ""
    for index, owner in enumerate(owners):
        where = f"{path}[{index}]"
        out.extend(required(f"{where}.{field}", "must not be empty") for field in _OWNER_FIELDS if not owner.get(field))
        api_version = owner.get("apiVersion", "")
        if api_version.endswith("/") or api_version.count("/") > 1:
            out.append(invalid(f"{where}.apiVersion", api_version, "version must not be empty"))
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            out.append(invalid(where, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                why = "Only one reference can have Controller set to true. "
                why += f'Found "true" in references for {controller} and {current}'
                out.append(invalid(path, owners, why))
            else:
                controller = current


def _check_finalizers(out: Errors, finalizers: list[str]) -> None:
    for finalizer in finalizers:
        complain(out, "metadata.finalizers", finalizer, names.qualified_name(finalizer))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        out.append(invalid("metadata.finalizers", finalizers, why))
    check_kube_finalizers(out, "metadata.finalizers", finalizers)


def check_kube_finalizers(out: Errors, path: str, finalizers: list[str]) -> None:
    """A finalizer without a domain must be one that Kubernetes defines."""
    for index, finalizer in enumerate(finalizers):
        check_kube_finalizer(out, f"{path}[{index}]", finalizer)


def check_kube_finalizer(out: Errors, path: str, finalizer: str) -> None:
    if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
        out.append(invalid(path, finalizer, _NOT_STANDARD))


def check_any_meta_update(out: Errors, new: Raw, old: Raw) -> None:
    """What may not change. What a client left out was filled in from the stored object, or is filled in by us."""
    added = sorted(set(new.get("finalizers") or NO_LIST) - set(old.get("finalizers") or NO_LIST))
    if added and old.get("deletionTimestamp"):
        listed = ", ".join(quote(one) for one in added)
        why = "no new finalizers can be added if the object is being deleted, "
        out.append(forbidden("metadata.finalizers", f"{why}found new finalizers []string{{{listed}}}"))
    generation = new.get("generation")
    if generation is not None and generation < old.get("generation", 0):
        out.append(invalid("metadata.generation", generation, "must not be decremented"))
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        value = new.get(field)
        if value:
            check_immutable(out, f"metadata.{field}", value, old.get(field))
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if (value := new.get(field)) is not None:
            check_immutable(out, f"metadata.{field}", value, old.get(field))
    check_common(out, new, "metadata")


def check_meta_update(out: Errors, new: Raw, old: Raw) -> None:
    """The metadata of most kinds on update: finalizers have names of their owners too."""
    check_any_meta_update(out, new, old)
    if finalizers := new.get("finalizers"):
        check_kube_finalizers(out, "metadata.finalizers", finalizers)


def meta_of(raw: Raw) -> Raw:
    meta: Any = raw.get("metadata")
    return NO_MAP if meta is None else meta
