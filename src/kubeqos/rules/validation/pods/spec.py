"""Validation of pods and pod templates when they are created."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.model.objects import PodSpec
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required, too_long
from kubeqos.rules.qos.classes import Level, request_errors
from kubeqos.rules.qos.podqos import aggregate
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Check,
    Errors,
    Raw,
    check_choice,
    check_labels,
    complain,
    go_struct,
)
from kubeqos.rules.validation.meta import check_annotations, check_meta, meta_of
from kubeqos.rules.validation.pods.containers import (
    PodContext,
    all_containers,
    check_containers,
    check_ephemeral_containers,
    check_host_network_ports,
    check_init_containers,
    claims_of,
)
from kubeqos.rules.validation.pods.scheduling import check_affinity, check_spread, check_tolerations
from kubeqos.rules.validation.pods.security import (
    check_host_sysctls,
    check_host_users,
    check_pod_context,
    check_windows,
)
from kubeqos.rules.validation.pods.volumes import Volumes, check_volumes
from kubeqos.rules.validation.resources import (
    check_container_requirements,
    check_pod_level,
    check_pod_requirements,
)

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_OPERATING_SYSTEMS = ("linux", "windows")
_CLAIM_FIELDS = ("name", "resourceClaimName", "resourceClaimTemplateName")
_MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_is_cost = re.compile("0|-[0-9]{1,10}|[1-9][0-9]{0,9}", re.ASCII).fullmatch
_MAX_HOSTNAME = 64
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARACTERS = 2048


def check_pod_create(out: Errors, raw: Raw) -> None:
    check_pod(out, raw)
    spec = raw.get("spec") or NO_MAP
    if spec.get("ephemeralContainers"):
        out.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        out.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))


def check_pod(out: Errors, raw: Raw) -> None:
    """A pod as such, new or changed."""
    meta = meta_of(raw)
    check_meta(out, meta, names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    if annotations := meta.get("annotations"):
        check_pod_annotations(out, "metadata.annotations", annotations, spec)
    check_pod_spec(out, "spec", spec, pod_name=meta.get("name", ""), is_pod=True)
    if not spec.get("serviceAccountName"):
        _check_token_volumes(out, spec)


def check_pod_template(out: Errors, path: str, template: Raw) -> None:
    """The template that a controller or a PodTemplate makes pods from."""
    meta = template.get("metadata") or NO_MAP
    spec = template.get("spec") or NO_MAP
    check_labels(out, f"{path}.labels", meta.get("labels"))
    annotations = meta.get("annotations") or NO_MAP
    check_annotations(out, f"{path}.annotations", annotations)
    check_pod_annotations(out, f"{path}.annotations", annotations, spec)
    check_pod_spec(out, f"{path}.spec", spec, pod_name="", is_pod=False)
    if spec.get("ephemeralContainers"):
        out.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))


def check_pod_annotations(out: Errors, path: str, annotations: Raw, spec: Raw) -> None:
    if _MIRROR in annotations and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        out.append(invalid(f"{path}[{_MIRROR}]", annotations[_MIRROR], why))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not (_is_cost(cost) and -names.MAX_INT32 - 1 <= int(cost) <= names.MAX_INT32):
        out.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))


def check_pod_spec(out: Errors, path: str, spec: Raw, *, pod_name: str, is_pod: bool) -> None:
    get = spec.get
    volumes: Volumes = {}
    if given := get("volumes"):
        volumes = check_volumes(out, f"{path}.volumes", given, pod_name)
    claims = claims_of(spec)
    if given := get("resourceClaims"):
        _check_resource_claims(out, f"{path}.resourceClaims", given)
    grace = get("terminationGracePeriodSeconds")
    if grace is None:
        out.append(required(f"{path}.terminationGracePeriodSeconds"))
    restart_policy = get("restartPolicy", "")
    system = None if (os := get("os")) is None else os.get("name", "")
    pod = PodContext(volumes, claims, grace, restart_policy, get("hostUsers") is not False, system, is_pod)
    containers: Sequence[Raw] = get("containers") or NO_LIST
    check_containers(out, f"{path}.containers", containers, pod)
    if init := get("initContainers"):
        check_init_containers(out, f"{path}.initContainers", init, containers, pod)
    if get("ephemeralContainers"):
        check_ephemeral_containers(out, f"{path}.ephemeralContainers", spec, pod)
    resources = get("resources")
    if resources is not None:
        _check_pod_resources(out, f"{path}.resources", resources, spec, claims)
    if get("hostNetwork"):
        check_host_network_ports(out, path, spec, is_pod=is_pod)
    if restart_policy not in _RESTART_POLICIES:
        check_choice(out, f"{path}.restartPolicy", restart_policy, _RESTART_POLICIES)
    dns_policy = get("dnsPolicy", "")
    if dns_policy not in _DNS_POLICIES:
        check_choice(out, f"{path}.dnsPolicy", dns_policy, _DNS_POLICIES)
    _check_optional(out, path, spec)


def _check_optional(out: Errors, path: str, spec: Raw) -> None:
    """Everything that most pods do not have, found by walking what the spec does have."""
    for field, value in spec.items():
        if value is not None and (check := _OPTIONAL.get(field)) is not None:
            check(out, f"{path}.{field}", spec)
    if spec.get("dnsPolicy") == "None" and spec.get("dnsConfig") is None:
        out.append(required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"))


def _check_pod_resources(out: Errors, path: str, resources: Raw, spec: Raw, claims: frozenset[str]) -> None:
    if (spec.get("os") or NO_MAP).get("name") == "windows":
        out.append(forbidden(path, "may not be set for a windows pod"))
        return
    if resources.get("claims"):
        out.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    if resources.get("qosResources"):
        where = f"{path.removesuffix('.resources')}.qosResources"
        out.append(forbidden(f"{path}.qosResources", f"a pod requests classes in {where}"))
    check_pod_requirements(out, path, resources, claims)
    counted = counted_spec(spec)
    check_pod_level(out, path, resources, aggregate(counted, "requests"), aggregate(counted, "limits"), spec)


def counted_spec(spec: Raw) -> PodSpec:
    """The part of a pod that decides its QoS class and its effective requests."""
    return PodSpec.of({key: spec[key] for key in ("initContainers", "containers", "resources") if spec.get(key)})


def _check_resource_claims(out: Errors, path: str, claims: Sequence[Raw]) -> None:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            out.append(required(f"{where}.name"))
        elif name in seen:
            out.append(duplicate(f"{where}.name", name))
        else:
            complain(out, f"{where}.name", name, names.dns_label(name))
            seen.add(name)
        # KEP-3675 is written against the alpha claims, which nest the two names in `source`.
        origin, below = (claim["source"], f"{where}.source") if claim.get("source") else (claim, where)
        given = [field for field in _CLAIM_FIELDS[1:] if origin.get(field) is not None]
        shown = go_struct(claim, _CLAIM_FIELDS)
        if len(given) == 2:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            out.append(invalid(where, shown, why))
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            out.append(invalid(where, shown, why))
        for field in given:
            complain(out, f"{below}.{field}", origin[field], names.dns_subdomain(origin[field]))


def _check_token_volumes(out: Errors, spec: Raw) -> None:
    for index, volume in enumerate(spec.get("volumes") or NO_LIST):
        for number, source in enumerate((volume.get("projected") or NO_MAP).get("sources") or NO_LIST):
            if source.get("serviceAccountToken") is not None:
                where = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                out.append(forbidden(where, "must not be specified when serviceAccountName is not set"))


def _check_dns_config(out: Errors, path: str, spec: Raw) -> None:
    config = spec["dnsConfig"]
    servers, searches = config.get("nameservers") or NO_LIST, config.get("searches") or NO_LIST
    if spec.get("dnsPolicy") == "None" and not servers:
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        out.append(required(f"{path}.nameservers", why))
        return
    if len(servers) > _MAX_NAMESERVERS:
        out.append(invalid(f"{path}.nameservers", servers, f"must not have more than {_MAX_NAMESERVERS} nameservers"))
    for index, server in enumerate(servers):
        complain(out, f"{path}.nameservers[{index}]", server, names.ip_address(server))
    if len(searches) > _MAX_SEARCHES:
        out.append(invalid(f"{path}.searches", searches, f"must not have more than {_MAX_SEARCHES} search paths"))
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        why = f"must not have more than {_MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        out.append(invalid(f"{path}.searches", searches, why))
    for index, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            complain(out, f"{path}.searches[{index}]", name, names.dns_search_path(name))
    for index, option in enumerate(config.get("options") or NO_LIST):
        if not option.get("name"):
            out.append(required(f"{path}.options[{index}]", "must not be empty"))


def _check_readiness_gates(out: Errors, path: str, spec: Raw) -> None:
    for index, gate in enumerate(spec["readinessGates"]):
        kind = gate.get("conditionType", "")
        complain(out, f"{path}[{index}].conditionType", kind, names.qualified_name(kind))


def _check_scheduling_gates(out: Errors, path: str, spec: Raw) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(spec["schedulingGates"]):
        name = gate.get("name", "")
        complain(out, f"{path}[{index}]", name, names.qualified_name(name))
        if name in seen:
            out.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _check_deadline(out: Errors, path: str, spec: Raw) -> None:
    seconds = spec["activeDeadlineSeconds"]
    if not 1 <= seconds <= names.MAX_INT32:
        out.append(invalid(path, seconds, names.between(1, names.MAX_INT32)))


def _check_host_aliases(out: Errors, path: str, spec: Raw) -> None:
    for index, alias in enumerate(spec["hostAliases"]):
        address = alias.get("ip", "")
        complain(out, f"{path}[{index}].ip", address, names.ip_address(address))
        for number, host in enumerate(alias.get("hostnames") or NO_LIST):
            complain(out, f"{path}[{index}].hostnames[{number}]", host, names.dns_subdomain(host))


def _check_os(out: Errors, path: str, spec: Raw) -> None:
    name = spec["os"].get("name", "")
    if not name:
        out.append(required(f"{path}.name", "cannot be empty"))
    elif name not in _OPERATING_SYSTEMS:
        out.append(not_supported(path, name, _OPERATING_SYSTEMS))
    elif name == "linux":
        _check_no_windows_options(out, path.removesuffix(".os"), spec)
    else:
        check_windows(out, path.removesuffix(".os"), spec)


def _check_no_windows_options(out: Errors, path: str, spec: Raw) -> None:
    contexts = [("securityContext", spec.get("securityContext"))]
    contexts += [(f"{where}.securityContext", one.get("securityContext")) for where, one in all_containers(spec)]
    for where, context in contexts:
        if (context or NO_MAP).get("windowsOptions") is not None:
            why = "windows options cannot be set for a linux pod"
            out.append(forbidden(f"{path}.{where}.windowsOptions", why))


def _check_hostname_override(out: Errors, path: str, spec: Raw) -> None:
    name = spec["hostnameOverride"]
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(field):
            out.append(forbidden(path, f"may not be specified when {field} is true"))
    if len(name.encode()) > _MAX_HOSTNAME:
        out.append(too_long(path, _MAX_HOSTNAME))
    complain(out, path, name, names.dns_subdomain(name))


def _check_preemption_policy(out: Errors, path: str, spec: Raw) -> None:
    check_choice(out, path, spec["preemptionPolicy"], _PREEMPTION_POLICIES)


def _check_host_users(out: Errors, path: str, spec: Raw) -> None:
    check_host_users(out, path.removesuffix(".hostUsers"), spec)


def _check_security_context(out: Errors, path: str, spec: Raw) -> None:
    check_pod_context(out, path, spec["securityContext"])
    check_host_sysctls(out, path, spec)


def _check_shared_processes(out: Errors, path: str, spec: Raw) -> None:
    if spec["shareProcessNamespace"] and spec.get("hostPID"):
        where = f"{path.removesuffix('.shareProcessNamespace')}.securityContext.shareProcessNamespace"
        out.append(invalid(where, True, "ShareProcessNamespace and HostPID cannot both be enabled"))


def _check_overhead(out: Errors, path: str, spec: Raw) -> None:
    check_container_requirements(out, path, {"limits": spec["overhead"]}, frozenset())


def _check_classes(out: Errors, path: str, spec: Raw) -> None:
    out.extend(request_errors(spec["qosResources"], path, level=Level.POD))


def _value(check: Check) -> Check:
    """A check of the field's value that needs nothing else of the spec."""

    def checked(out: Errors, path: str, spec: Raw) -> None:
        check(out, path, spec[path.rpartition(".")[2]])

    return checked


def _name(rule: names.NameRule) -> Check:
    def checked(out: Errors, path: str, value: str) -> None:
        if value and (wrong := rule(value)):
            complain(out, path, value, wrong)

    return _value(checked)


_OPTIONAL: dict[str, Check] = {
    "serviceAccountName": _name(names.dns_subdomain),
    "nodeName": _name(names.dns_subdomain),
    "hostname": _name(names.dns_label),
    "subdomain": _name(names.dns_label),
    "priorityClassName": _name(names.dns_subdomain),
    "runtimeClassName": _name(names.dns_subdomain),
    "nodeSelector": _value(check_labels),
    "affinity": _value(check_affinity),
    "securityContext": _check_security_context,
    "shareProcessNamespace": _check_shared_processes,
    "dnsConfig": _check_dns_config,
    "readinessGates": _check_readiness_gates,
    "schedulingGates": _check_scheduling_gates,
    "topologySpreadConstraints": _value(check_spread),
    "hostUsers": _check_host_users,
    "activeDeadlineSeconds": _check_deadline,
    "tolerations": _value(check_tolerations),
    "hostAliases": _check_host_aliases,
    "hostnameOverride": _check_hostname_override,
    "preemptionPolicy": _check_preemption_policy,
    "overhead": _check_overhead,
    "os": _check_os,
    "qosResources": _check_classes,
}
