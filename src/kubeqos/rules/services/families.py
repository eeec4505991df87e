"""The IP families of a service, and ports that no node has: what it asks for, gets, and cannot have. Pure.

Called by admission before a service is judged, as in Kubernetes (`initIPFamilyFields`): what is wrong with families
and addresses is told alone. One family is served here, IPv4; a headless service without a selector may name both, since
somebody else writes its endpoints.
"""

from __future__ import annotations

from typing import Any

from kubeqos.rules.fielderror import FieldError, invalid
from kubeqos.rules.services.updates import has_cluster_ip, is_on_nodes
from kubeqos.rules.validation.service import check_addresses, check_port_range

Raw = dict[str, Any]
SERVED = ("IPv4",)
_SINGLE, _PREFERRED, _REQUIRED = "SingleStack", "PreferDualStack", "RequireDualStack"
_POLICY = "spec.ipFamilyPolicy"
_SEVERAL = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
_RELEASED = "must be 'SingleStack' to release the secondary {}"


def settle_families(new: Raw, old: Raw | None) -> list[FieldError]:
    """Fill in policy, families and the list of addresses; or say what is wrong with them."""
    spec, before = new.setdefault("spec", {}), (old or {}).get("spec") or {}
    if not has_cluster_ip(spec):
        return []
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if _is_settled(spec, before):
        return []
    chosen = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:  # an empty one is wrong, and told
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or (_REQUIRED if chosen else _SINGLE)
    policy = spec["ipFamilyPolicy"]
    errors: list[FieldError] = []
    check_addresses(errors, "spec", spec)
    if errors:
        return errors
    errors = [*(_released(spec, before, policy) if before else ()), *_of_addresses(spec, policy)]
    if errors:
        return errors
    families: list[str] = spec.get("ipFamilies") or [SERVED[0]]
    if chosen:
        both = families + [one for one in ("IPv4", "IPv6") if one not in families]
        spec["ipFamilies"] = families if policy == _SINGLE else both
        return []
    if policy == _REQUIRED:
        errors.append(invalid(_POLICY, policy, "this cluster is not configured for dual-stack services"))
    for index, family in enumerate(families):
        if family not in SERVED:
            errors.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    spec["ipFamilies"] = families
    return errors


def node_port_errors(service: Raw) -> list[FieldError]:
    """Node ports that are asked for by number and are out of range."""
    errors: list[FieldError] = []
    if is_on_nodes(service["spec"]):
        check_port_range(errors, "spec.ports", service["spec"].get("ports") or ())
    return errors[:1]


def _is_settled(spec: Raw, before: Raw) -> bool:
    """Whoever would like both families keeps what the service has, also where a cluster has learned another since."""
    same = all(spec.get(field) == before.get(field) for field in ("type", "clusterIPs", "ipFamilies"))
    return same and spec.get("ipFamilyPolicy") == before.get("ipFamilyPolicy") == _PREFERRED


def _released(spec: Raw, before: Raw, policy: str) -> list[FieldError]:
    """Who asks for one family and leaves the lists as they were means their first entries."""
    errors = []
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        now, had = spec.get(field) or [], before.get(field) or []
        if policy == _SINGLE and now == had:
            spec.update({field: now[:1]} if now else {})
        elif policy != _SINGLE and 0 < len(now) < len(had):
            errors.append(invalid(_POLICY, policy, _RELEASED.format(what)))
    return errors


def _of_addresses(spec: Raw, policy: str) -> list[FieldError]:
    """What the addresses that were asked for say about families."""
    errors, addresses = [], spec.get("clusterIPs") or []
    for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if policy == _SINGLE and len(spec.get(field) or ()) > 1:
            errors.append(invalid(_POLICY, policy, _SEVERAL.format(what)))
    for index, address in enumerate(addresses):
        families = spec.get("ipFamilies") or []
        if address == "None" or index < len(families):
            continue
        family = "IPv6" if ":" in address else "IPv4"
        if family in SERVED:
            spec["ipFamilies"] = [*families, family]
        else:
            errors.append(
                invalid(f"spec.clusterIPs[{index}]", addresses, f"{family} is not configured on this cluster")
            )
    return errors
