"""What may change in a pod that exists: by update, through its status, by resize and with ephemeral containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeqos.model import names
from kubeqos.model.text.gotext import quote
from kubeqos.rules.fielderror import duplicate, forbidden, invalid
from kubeqos.rules.qos.podqos import spec_qos_class
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_immutable, complain, go_struct
from kubeqos.rules.validation.equality import described, differences, same
from kubeqos.rules.validation.meta import check_meta_update, meta_of
from kubeqos.rules.validation.pods.containers import claims_of
from kubeqos.rules.validation.pods.scheduling import check_tolerations
from kubeqos.rules.validation.pods.spec import check_pod, counted_spec

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_RESIZABLE = ("cpu", "memory")
_SYSTEM_CONDITIONS = frozenset(("PodScheduled", "Ready", "Initialized"))
_MIRROR = "kubernetes.io/config.mirror"
_STATUS_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def check_pod_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    check_pod(out, raw)
    _check_mirror_annotation(out, raw, old)
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    for key in ("containers", "initContainers"):
        if len(spec.get(key) or NO_LIST) != len(before.get(key) or NO_LIST):
            out.append(forbidden(f"spec.{key}", "pod updates may not add or remove containers"))
            return
    if not _check_deadline(out, spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")):
        return
    _check_only_added(out, spec.get("tolerations") or NO_LIST, before.get("tolerations") or NO_LIST)
    _check_gates(out, spec.get("schedulingGates") or NO_LIST, before.get("schedulingGates") or NO_LIST)
    munged = _with_updatable_fields_of(spec, before)
    if before.get("schedulingGates"):
        _allow_gated_changes(out, munged, before)
    changes = list(differences(dict(before), munged, "spec"))
    if changes:
        why = f"pod updates may not change fields other than {_UPDATABLE}\n{described(iter(changes))}"
        out.append(forbidden("spec", why))


def _check_mirror_annotation(out: Errors, raw: Raw, old: Raw) -> None:
    new, before = meta_of(raw).get("annotations") or NO_MAP, meta_of(old).get("annotations") or NO_MAP
    if new.get(_MIRROR) != before.get(_MIRROR):
        verb = "remove or update" if _MIRROR in before else "add"
        out.append(forbidden(f"metadata.annotations[{_MIRROR}]", f"may not {verb} mirror pod annotation"))


def _check_deadline(out: Errors, new: int | None, old: int | None) -> bool:
    """A deadline may appear and come closer. False ends the validation, as it does in Kubernetes."""
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            out.append(invalid(path, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= new <= names.MAX_INT32:
        out.append(invalid(path, new, names.between(0, names.MAX_INT32)))
        return False
    if old is not None and old < new:
        out.append(invalid(path, new, "must be less than or equal to previous value"))
        return False
    return True


def _check_only_added(out: Errors, new: Sequence[Raw], old: Sequence[Raw]) -> None:
    def but_seconds(toleration: Raw) -> dict[str, Any]:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value}

    present = [but_seconds(one) for one in new]
    if any(but_seconds(one) not in present for one in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        out.append(forbidden("spec.tolerations", why))
        return
    check_tolerations(out, "spec.tolerations", new)


def _check_gates(out: Errors, new: Sequence[Raw], old: Sequence[Raw]) -> None:
    before = {gate.get("name") for gate in old}
    for index, gate in enumerate(new):
        if gate.get("name") not in before:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            out.append(forbidden(f"spec.schedulingGates[{index}].name", why))


def _with_updatable_fields_of(spec: Raw, old: Raw) -> dict[str, Any]:
    """The new spec with everything that may change set back, so that what is left must be equal."""
    munged = dict(spec)
    for key in ("containers", "initContainers"):
        if spec.get(key):
            pairs = zip(spec[key], old.get(key) or NO_LIST, strict=True)
            munged[key] = [{**new, "image": before.get("image", "")} for new, before in pairs]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _take(munged, old, field)
    if old.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        _take(munged, old, "terminationGracePeriodSeconds")
    return munged


def _take(munged: dict[str, Any], old: Raw, field: str) -> None:
    if field in old:
        munged[field] = old[field]
    else:
        munged.pop(field, None)


def _allow_gated_changes(out: Errors, munged: dict[str, Any], old: Raw) -> None:
    """A pod that waits at its gates may still be narrowed to fewer nodes."""
    new_selector, old_selector = munged.get("nodeSelector") or NO_MAP, old.get("nodeSelector") or NO_MAP
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        out.append(invalid("spec.nodeSelector", new_selector, why))
    _take(munged, old, "nodeSelector")
    before = (old.get("affinity") or NO_MAP).get("nodeAffinity")
    affinity = dict(munged.get("affinity") or NO_MAP)
    now = affinity.get("nodeAffinity")
    if same(before, now):
        return
    _check_affinity_narrowed(out, "spec.affinity.nodeAffinity", now or NO_MAP, before or NO_MAP)
    if before is None:
        affinity.pop("nodeAffinity", None)
    else:
        affinity["nodeAffinity"] = before
    munged["affinity"] = affinity


def _check_affinity_narrowed(out: Errors, path: str, new: Raw, old: Raw) -> None:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    where = f"{path}.{field}.nodeSelectorTerms"
    terms = (new.get(field) or NO_MAP).get("nodeSelectorTerms") or NO_LIST
    before = (old.get(field) or NO_MAP).get("nodeSelectorTerms") or NO_LIST
    if not before:
        return
    if len(terms) != len(before):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        out.append(invalid(where, [_term_in_go(term) for term in terms], why))
        return
    for index, (term, base) in enumerate(zip(terms, before, strict=True)):
        for kind in ("matchExpressions", "matchFields"):
            kept, given = base.get(kind) or NO_LIST, term.get(kind) or NO_LIST
            if (not base.get("matchExpressions") and not base.get("matchFields") and given) or not same(
                list(kept), list(given[: len(kept)])
            ):
                why = "only additions are allowed (no mutations or deletions)"
                out.append(invalid(f"{where}[{index}]", _term_in_go(term), why))
                break


def _term_in_go(term: Raw) -> dict[str, Any]:
    """A node selector term as Kubernetes prints its internal form."""
    return {
        f"{kind[0].upper()}{kind[1:]}": [go_struct(one, ("key", "operator", "values")) for one in term[kind]]
        if term.get(kind)
        else None
        for kind in ("matchExpressions", "matchFields")
    }


def check_pod_status_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_mirror_annotation(out, raw, old)
    status, before = raw.get("status") or NO_MAP, old.get("status") or NO_MAP
    for index, condition in enumerate(status.get("conditions") or NO_LIST):
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            complain(out, f"status.conditions[{index}].Type", kind, names.qualified_name(kind))
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName"):
        complain(out, "status.nominatedNodeName", nominated, names.dns_subdomain(nominated))
        if (old.get("spec") or NO_MAP).get("nodeName"):
            why = "may not be set on pods that are already bound to a node"
            out.append(forbidden("status.nominatedNodeName", why))
    observed = status.get("observedGeneration", 0)
    if observed < 0:
        out.append(invalid("status.observedGeneration", observed, "must be a non-negative integer"))
    had, has = before.get("qosClass", ""), status.get("qosClass", "")
    if has:
        check_immutable(out, "status.qosClass", has, had or has)
    for field in _STATUS_LISTS:
        _check_transitions(out, field, status, before, old.get("spec") or NO_MAP)
    _check_claim_statuses(out, status.get("resourceClaimStatuses") or NO_LIST, claims_of(old.get("spec") or NO_MAP))
    _check_addresses(out, "status.podIPs", status.get("podIPs") or NO_LIST)
    hosts = status.get("hostIPs") or NO_LIST
    if hosts and hosts[0].get("ip", "") != status.get("hostIP", ""):
        out.append(invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`"))
    _check_addresses(out, "status.hostIPs", hosts)


def _check_claim_statuses(out: Errors, statuses: Sequence[Raw], known: frozenset[str]) -> None:
    seen = set[str]()
    for index, status in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{index}].name", status.get("name", "")
        if name not in known:
            out.append(invalid(path, name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            out.append(duplicate(path, name))
        seen.add(name)
        claim = status.get("resourceClaimName")
        if claim is not None:
            complain(out, path, claim, names.dns_subdomain(claim))


def _check_addresses(out: Errors, path: str, addresses: Sequence[Raw]) -> None:
    """At most one address of each family, and none twice."""
    texts = [address.get("ip", "") for address in addresses]
    for index, text in enumerate(texts):
        complain(out, f"{path}[{index}]", text, names.ip_address(text))
    if len(texts) < 2:
        return
    families = [found.version for found in map(names.parse_ip, texts) if found]
    if len(texts) > 2 or len(set(families)) != len(texts):
        shown = [{"IP": text} for text in texts]
        out.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    for index, text in enumerate(texts):
        if text in texts[:index]:
            out.append(duplicate(f"{path}[{index}]", {"IP": text}))


def _check_transitions(out: Errors, field: str, status: Raw, old_status: Raw, spec: Raw) -> None:
    """A container that has finished for good stays finished."""
    policy = "Never" if field.startswith("ephemeral") else spec.get("restartPolicy", "Always")
    if policy == "Always":
        return
    sidecars = {
        one.get("name") for one in spec.get("initContainers") or NO_LIST if one.get("restartPolicy") == "Always"
    }
    now = {one.get("name"): one for one in status.get(field) or NO_LIST}
    for index, before in enumerate(old_status.get(field) or NO_LIST):
        ended, name = (before.get("state") or NO_MAP).get("terminated"), before.get("name")
        if ended is None or (policy == "OnFailure" and ended.get("exitCode", 0) != 0):
            continue
        if field == "initContainerStatuses" and name in sidecars:
            continue
        if name in now and (now[name].get("state") or NO_MAP).get("terminated") is None:
            out.append(forbidden(f"status.{field}[{index}].state", "may not be transitioned to non-terminated state"))


def check_pod_resize(out: Errors, raw: Raw, old: Raw) -> None:
    """The resize subresource: only cpu and memory, only changed or added, and the QoS class stays."""
    check_meta_update(out, meta_of(raw), meta_of(old))
    check_pod(out, raw)
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    if never := _not_resizable(old):
        out[:] = [forbidden("", never)]
        return
    had = (old.get("status") or NO_MAP).get("qosClass") or spec_qos_class(counted_spec(before)).qos_class
    if spec_qos_class(counted_spec(spec)).qos_class != had:
        out.append(invalid("spec", str(had), "Pod QOS Class may not change as a result of resizing"))
    if not _node_can_resize(old):
        out.append(forbidden("spec", "Pod running on node without support for resize"))
    munged = dict(spec)
    _check_pod_classes(out, munged, before)
    _check_pod_level_resize(out, munged, before)
    if not _check_same_containers(out, spec, before):
        return
    for key in ("initContainers", "containers"):
        pairs = zip(spec.get(key) or NO_LIST, before.get(key) or NO_LIST, strict=True)
        for index, (new, base) in enumerate(pairs):
            _check_container_resize(out, key, index, new, base)
        munged[key] = before.get(key)
    if not out and not same(dict(before), munged):
        out.append(forbidden("spec", "only cpu and memory resources are mutable"))


def _check_pod_classes(out: Errors, munged: dict[str, Any], before: Raw) -> None:
    """Whether another class can be had while the pod runs is for the node to say (KEP-3008, Beta)."""
    if _class_names(before) - _class_names(munged):
        out.append(forbidden("spec.qosResources", "classes may be changed, not removed"))
    munged.pop("qosResources", None)
    if "qosResources" in before:
        munged["qosResources"] = before["qosResources"]


def _not_resizable(old: Raw) -> str | None:
    if _MIRROR in (meta_of(old).get("annotations") or NO_MAP):
        return "static pods cannot be resized"
    system = ((old.get("spec") or NO_MAP).get("os") or NO_MAP).get("name")
    return "windows pods cannot be resized" if system == "windows" else None


def _node_can_resize(old: Raw) -> bool:
    """A node that can resize reports the resources of the containers that it runs."""
    statuses = (old.get("status") or NO_MAP).get("containerStatuses") or NO_LIST
    running = (one for one in statuses if (one.get("state") or NO_MAP).get("running") is not None)
    first = next(running, None)
    return first is None or first.get("resources") is not None


def _check_same_containers(out: Errors, spec: Raw, before: Raw) -> bool:
    """Containers may not be added, removed, renamed or reordered on the way."""
    known = len(out)
    for key in ("containers", "initContainers"):
        new, old = spec.get(key) or NO_LIST, before.get(key) or NO_LIST
        if len(new) != len(old):
            out.append(forbidden(f"spec.{key}", f"{key} may not be added or removed on resize"))
            continue
        for index, (one, other) in enumerate(zip(new, old, strict=True)):
            if one.get("name") != other.get("name"):
                out.append(forbidden(f"spec.{key}[{index}].name", f"{key} may not be renamed or reordered on resize"))
    return len(out) == known


def _check_container_resize(out: Errors, key: str, index: int, new: Raw, old: Raw) -> None:
    where = f"spec.{key}[{index}]"
    has, had = new.get("resources") or NO_MAP, old.get("resources") or NO_MAP
    for side in ("requests", "limits"):
        if set(had.get(side) or NO_MAP) - set(has.get(side) or NO_MAP):
            out.append(forbidden(f"{where}.resources.{side}", f"resource {side} cannot be removed"))
    if _class_names(had) - _class_names(has):
        out.append(forbidden(f"{where}.resources.qosResources", "classes may be changed, not removed"))
    if not same(dict(old), {**new, "resources": _with_compute_of(has, had)}):
        if key == "initContainers":
            why = "only cpu and memory resources for init or sidecar containers are mutable"
            out.append(forbidden(where, why))
        else:
            out.append(forbidden("spec", "only cpu and memory resources are mutable"))
    if key == "initContainers" and new.get("restartPolicy") != "Always" and not same(dict(old), dict(new)):
        policies = [one.get("restartPolicy") for one in new.get("resizePolicy") or NO_LIST]
        why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        out += [forbidden(where, why) for policy in policies if policy == "RestartContainer"]


def _class_names(resources: Raw) -> set[str]:
    return {one.get("name", "") for one in resources.get("qosResources") or NO_LIST}


def _with_compute_of(has: Raw, had: Raw) -> dict[str, Any]:
    """The new resources with cpu, memory and QoS classes set back.

    Whether a class may change while its container runs is for the node to say: the runtime decides it (KEP-3008,
    `mutable`).
    """
    munged = dict(has)
    for side in ("requests", "limits"):
        kept = {name: amount for name, amount in (has.get(side) or NO_MAP).items() if name not in _RESIZABLE}
        taken = {name: amount for name, amount in (had.get(side) or NO_MAP).items() if name in _RESIZABLE}
        munged[side] = {**kept, **taken}
    munged.pop("qosResources", None)
    if "qosResources" in had:
        munged["qosResources"] = had["qosResources"]
    return munged


def _check_pod_level_resize(out: Errors, munged: dict[str, Any], old: Raw) -> None:
    has, had = munged.get("resources"), old.get("resources")
    if had and has is None:
        out.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
        return
    has, had = has or NO_MAP, had or NO_MAP
    for side in ("requests", "limits"):
        if set(had.get(side) or NO_MAP) - set(has.get(side) or NO_MAP):
            out.append(forbidden(f"spec.resources.{side}", f"pod-level resource {side} cannot be removed"))
    munged["resources"] = _with_compute_of(has, had)
    if not same(dict(had), munged["resources"]):
        out.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))


def check_ephemeral_update(out: Errors, raw: Raw, old: Raw) -> None:
    """Ephemeral containers may be added, and never change or go away."""
    check_meta_update(out, meta_of(raw), meta_of(old))
    check_pod(out, raw)
    if _MIRROR in (meta_of(old).get("annotations") or NO_MAP):
        out[:] = [forbidden("", "static pods do not support ephemeral containers")]
        return
    path = "spec.ephemeralContainers"
    now = {one.get("name"): one for one in (raw.get("spec") or NO_MAP).get("ephemeralContainers") or NO_LIST}
    for before in (old.get("spec") or NO_MAP).get("ephemeralContainers") or NO_LIST:
        name = before.get("name", "")
        if name not in now:
            out.append(forbidden(path, f"existing ephemeral containers {quote(name)} may not be removed\n"))
        elif changes := described(differences(before, now[name])):
            out.append(forbidden(path, f"existing ephemeral containers {quote(name)} may not be changed\n{changes}"))
