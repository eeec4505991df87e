"""Services that change their type: what the API once filled in for the old type goes away with it.

Called by admission on updates. A field is dropped only where the new type has no use for it and the client did not
touch it; a client that changes it at the same time is told by validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Raw = dict[str, Any]


def _has_cluster_ip(spec: Raw) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _is_balanced(spec: Raw) -> bool:
    return bool(spec.get("type") == "LoadBalancer")


def _has_node_ports(spec: Raw) -> bool:
    if _is_balanced(spec):
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec.get("type") == "NodePort")


def _is_external(spec: Raw) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))


def _has_health_port(spec: Raw) -> bool:
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


# (who needs the fields, the fields that are dropped together)
_DEPENDENT: tuple[tuple[Callable[[Raw], bool], tuple[str, ...]], ...] = (
    (_has_cluster_ip, ("clusterIP", "clusterIPs")),
    (_has_cluster_ip, ("ipFamilies",)),
    (_has_cluster_ip, ("ipFamilyPolicy",)),
    (_has_cluster_ip, ("internalTrafficPolicy",)),
    (_has_health_port, ("healthCheckNodePort",)),
    (_is_balanced, ("allocateLoadBalancerNodePorts",)),
    (_is_balanced, ("loadBalancerClass",)),
    (_is_external, ("externalTrafficPolicy",)),
)


def drop_type_dependent(new: Raw, old: Raw) -> None:
    """Take out of the raw new service what only its old type needed."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    wiped_ports = _has_node_ports(before) and not _has_node_ports(spec) and _node_ports(spec) == _node_ports(before)
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


def _node_ports(spec: Raw) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
