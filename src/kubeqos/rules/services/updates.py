"""Updates of services: what the API once filled in stays, or goes away with the type that it was for.

Called by admission on updates. A client that does not say an address or a port keeps the one it was given. A field is
dropped only where the new type has no use for it and the client did not touch it; a client that changes it at the same
time is told by validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Raw = dict[str, Any]


def has_cluster_ip(spec: Raw) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _is_balanced(spec: Raw) -> bool:
    return bool(spec.get("type") == "LoadBalancer")


def is_on_nodes(spec: Raw) -> bool:
    """May its ports have node ports? Who balances and wants none given to it may still name some."""
    return spec.get("type") in ("LoadBalancer", "NodePort")


def has_node_ports(spec: Raw) -> bool:
    if _is_balanced(spec):
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec.get("type") == "NodePort")


def _is_external(spec: Raw) -> bool:
    kind = spec.get("type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def has_health_port(spec: Raw) -> bool:
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


# (who needs the fields, the fields that are dropped together)
_DEPENDENT: tuple[tuple[Callable[[Raw], bool], tuple[str, ...]], ...] = (
    (has_cluster_ip, ("clusterIP", "clusterIPs")),
    (has_cluster_ip, ("ipFamilies",)),
    (has_cluster_ip, ("ipFamilyPolicy",)),
    (has_cluster_ip, ("internalTrafficPolicy",)),
    (has_health_port, ("healthCheckNodePort",)),
    (_is_balanced, ("allocateLoadBalancerNodePorts",)),
    (_is_balanced, ("loadBalancerClass",)),
    (_is_external, ("externalTrafficPolicy",)),
)


def keep_allocated(new: Raw, old: Raw) -> None:
    """Fill in what the client left out and the service has already."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if has_cluster_ip(before) and has_cluster_ip(spec):
        _keep_addresses(spec, before)
    _agree(spec, before)
    if has_node_ports(before) and has_node_ports(spec):
        # By name, as in Kubernetes: all else about a port may change, and it keeps the node port that it had.
        had = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
        taken = _node_ports(spec)
        for port in spec.get("ports") or ():
            known = had.get(port.get("name", ""))
            if known and not port.get("nodePort") and known not in taken:
                port["nodePort"] = known
    had_port = before.get("healthCheckNodePort") if has_health_port(before) and has_health_port(spec) else None
    if had_port and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = had_port


def _keep_addresses(spec: Raw, before: Raw) -> None:
    for field in ("clusterIP", "clusterIPs"):
        if not spec.get(field) and before.get(field):
            spec[field] = before[field]


def _agree(spec: Raw, before: Raw) -> None:
    """`clusterIP` and `clusterIPs` say the same; a client that changes the first alone means both."""
    first = spec.get("clusterIP")
    if first != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
        spec["clusterIPs"] = [first] if first else []
    elif first and not spec.get("clusterIPs") and before.get("clusterIPs"):
        spec["clusterIPs"] = before["clusterIPs"]
    if not spec.get("clusterIPs"):
        spec.pop("clusterIPs", None)


def drop_type_dependent(new: Raw, old: Raw) -> None:
    """Take out of the raw new service what only its old type needed."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    wiped_ports = is_on_nodes(before) and not is_on_nodes(spec) and _node_ports(spec) == _node_ports(before)
    dropped = [
        field
        for needs, fields in _DEPENDENT
        if needs(before) and not needs(spec) and all(spec.get(field) == before.get(field) for field in fields)
        for field in fields
    ]
    for field in dropped:
        spec.pop(field, None)
    if wiped_ports:
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if not _is_balanced(spec) and ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
        new["status"] = {**new["status"], "loadBalancer": {}}


def _node_ports(spec: Raw) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
