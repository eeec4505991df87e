"""Validation of Service."""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.rules.fielderror import OMITTED, duplicate, forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_choice,
    check_labels,
    check_port_or_name,
    check_reachable,
    check_supported,
    complain,
)
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods.containers import PROTOCOLS

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_TRAFFIC_POLICIES = ("Cluster", "Local")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_NOT_FOR_EXTERNAL = "may not be set for ExternalName services"
_SET_ONCE = "may not change once set"
_MAX_AFFINITY_SECONDS = 86400
_NODE_PORTS = (30000, 32767)
_MOST_ADDRESSES = 2
_INGRESS_MODES = ("Proxy", "VIP")


def check_service(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_1035_label, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    kind, headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    ports: Sequence[Raw] = spec.get("ports") or NO_LIST
    if not ports and not headless and kind != "ExternalName":
        out.append(required("spec.ports"))
    if headless and kind in ("LoadBalancer", "NodePort"):
        out.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    _check_ports(out, "spec.ports", ports, kind)
    check_labels(out, "spec.selector", spec.get("selector"))
    _check_affinity(out, "spec", spec)
    if kind == "ExternalName":
        _check_external_name(out, spec)
    else:
        check_addresses(out, "spec", spec)
    for index, address in enumerate(spec.get("externalIPs") or NO_LIST):
        check_reachable(out, f"spec.externalIPs[{index}]", address)
    check_choice(out, "spec.type", kind, _TYPES)
    _check_load_balancer(out, "spec", spec, kind)
    _check_traffic(out, "spec", spec, kind)
    if not out:
        check_port_range(out, "spec.ports", ports)


def check_port_range(out: Errors, path: str, ports: Sequence[Raw]) -> None:
    """What Kubernetes' allocator says, beside nothing else."""
    low, high = _NODE_PORTS
    for index, port in enumerate(ports):
        number = port.get("nodePort", 0)
        if number and not low <= number <= high:
            why = f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
            out.append(invalid(f"{path}[{index}].nodePort", number, why))


def _check_ports(out: Errors, path: str, ports: Sequence[Raw], kind: str) -> None:
    seen_names = set[str]()
    node_ports, numbers = set[tuple[str, int]](), set[tuple[str, int]]()
    for index, port in enumerate(ports):
        where, name, number = f"{path}[{index}]", port.get("name", ""), port.get("port", 0)
        if name:
            complain(out, f"{where}.name", name, names.dns_label(name))
            if name in seen_names:
                out.append(duplicate(f"{where}.name", name))
            seen_names.add(name)
        elif len(ports) > 1:
            out.append(required(f"{where}.name"))
        complain(out, f"{where}.port", number, names.port_number(number))
        protocol = port.get("protocol", "")
        check_choice(out, f"{where}.protocol", protocol, PROTOCOLS)
        check_port_or_name(out, f"{where}.targetPort", port.get("targetPort"))
        if port.get("appProtocol") is not None:
            value = port["appProtocol"]
            complain(out, f"{where}.appProtocol", value, names.qualified_name(value))
        node_port = port.get("nodePort", 0)
        if node_port:
            if kind == "ClusterIP":
                out.append(forbidden(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'"))
            if (protocol, node_port) in node_ports:
                out.append(duplicate(f"{where}.nodePort", node_port))
            node_ports.add((protocol, node_port))
        if (protocol, number) in numbers:
            # Kubernetes compares, and shows, a port of which only these two fields are set.
            shown = {
                "Name": "",
                "Protocol": protocol,
                "AppProtocol": None,
                "Port": number,
                "TargetPort": 0,
                "NodePort": 0,
            }
            out.append(duplicate(where, shown))
            if not node_port and kind in ("LoadBalancer", "NodePort"):
                # Kubernetes has given both the same port of the nodes by now.
                out.append(duplicate(f"{where}.nodePort", OMITTED))
        numbers.add((protocol, number))


def _check_affinity(out: Errors, path: str, spec: Raw) -> None:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    check_choice(out, f"{path}.sessionAffinity", affinity, _AFFINITIES)
    if affinity == "None":
        if config is not None:
            why = "must not be set when session affinity is None"
            out.append(forbidden(f"{path}.sessionAffinityConfig", why))
    elif affinity == "ClientIP":
        seconds = ((config or NO_MAP).get("clientIP") or NO_MAP).get("timeoutSeconds")
        where = f"{path}.sessionAffinityConfig.clientIP.timeoutSeconds"
        if seconds is None:
            out.append(required(where, "when session affinity type is ClientIP"))
        elif not 0 < seconds <= _MAX_AFFINITY_SECONDS:
            out.append(invalid(where, seconds, f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}"))


def _check_external_name(out: Errors, spec: Raw) -> None:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            out.append(forbidden(f"spec.{field}", _NOT_FOR_EXTERNAL))
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        out.append(required("spec.externalName"))
    else:
        complain(out, "spec.externalName", name, names.dns_subdomain(name))


def check_addresses(out: Errors, path: str, spec: Raw) -> None:
    first, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or NO_LIST
    if first and addresses and addresses[0] != first:
        out.append(invalid(f"{path}.clusterIPs", addresses, "first value must match `clusterIP`"))
    elif not first and addresses:
        out.append(invalid(f"{path}.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    seen = set[str]()
    for index, family in enumerate(spec.get("ipFamilies") or NO_LIST):
        check_supported(out, f"{path}.ipFamilies[{index}]", family, _FAMILIES)
        if family in seen:
            out.append(duplicate(f"{path}.ipFamilies[{index}]", family))
        seen.add(family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None:
        check_supported(out, f"{path}.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    found = len(out)
    for index, address in enumerate(addresses or ([first] if first else NO_LIST)):
        if index == 0 and address == "None":
            if len(addresses) > 1:
                out.append(invalid(f"{path}.clusterIPs", addresses, "'None' must be the first and only value"))
            continue
        complain(out, f"{path}.clusterIPs[{index}]", address, names.ip_address(address))
    unreadable = len(out) > found
    if len(addresses) > _MOST_ADDRESSES:
        out.append(invalid(f"{path}.clusterIPs", addresses, f"may only hold up to {_MOST_ADDRESSES} values"))
    if not unreadable:
        _check_families(out, path, addresses, spec.get("ipFamilies") or NO_LIST)


def _check_families(out: Errors, path: str, addresses: Sequence[str], families: Sequence[str]) -> None:
    """Addresses that can be read: one of each family, each of the family that stands at its place."""
    if len(addresses) > 1 and len({":" in one for one in addresses}) < len(addresses):
        out.append(invalid(f"{path}.clusterIPs", addresses, "may specify no more than one IP for each IP family"))
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if address != "None" and family in _FAMILIES and family != ("IPv6" if ":" in address else "IPv4"):
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            out.append(invalid(f"{path}.clusterIPs[{index}]", address, why))


def _check_load_balancer(out: Errors, path: str, spec: Raw, kind: str) -> None:
    ranges = spec.get("loadBalancerSourceRanges") or NO_LIST
    where = f"{path}.LoadBalancerSourceRanges"
    if ranges and kind != "LoadBalancer":
        out.append(forbidden(where, _ONLY_BALANCED))
    for index, value in enumerate(ranges):
        complain(out, f"{where}[{index}]", value.strip(), names.cidr(value.strip()))
    if kind != "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not None:
        out.append(forbidden(f"{path}.allocateLoadBalancerNodePorts", _ONLY_BALANCED))
    balancer = spec.get("loadBalancerClass")
    if balancer is not None:
        if kind != "LoadBalancer":
            out.append(forbidden(f"{path}.loadBalancerClass", _ONLY_BALANCED))
        else:
            complain(out, f"{path}.loadBalancerClass", balancer, names.qualified_name(balancer))


def _check_traffic(out: Errors, path: str, spec: Raw, kind: str) -> None:
    external = spec.get("externalTrafficPolicy", "")
    reachable = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if not reachable:
        if external:
            why = "may only be set for externally-accessible services"
            out.append(invalid(f"{path}.externalTrafficPolicy", external, why))
    else:
        check_choice(out, f"{path}.externalTrafficPolicy", external, _TRAFFIC_POLICIES)
    checked = spec.get("healthCheckNodePort", 0)
    if checked and not (kind == "LoadBalancer" and external == "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        out.append(invalid(f"{path}.healthCheckNodePort", checked, why))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None:
        check_supported(out, f"{path}.internalTrafficPolicy", internal, _TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        out.append(not_supported(f"{path}.trafficDistribution", distribution, _DISTRIBUTIONS))


def check_service_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _check_kept(out, "spec.clusterIPs", _cluster_ips(spec), _cluster_ips(before))
        if "None" not in (*_cluster_ips(spec), *_cluster_ips(before)):
            _check_kept(out, "spec.ipFamilies", spec.get("ipFamilies") or [], before.get("ipFamilies") or [])
    if spec.get("type") == before.get("type") == "LoadBalancer":
        balancer = spec.get("loadBalancerClass")
        if balancer != before.get("loadBalancerClass"):
            out.append(invalid("spec.loadBalancerClass", balancer, _SET_ONCE))
    check_service(out, raw)


def _cluster_ips(spec: Raw) -> list[str]:
    return spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])


def _check_kept(out: Errors, path: str, new: list[str], old: list[str]) -> None:
    """The first of a list stays what it is once it is set; what an update leaves out is filled in from before."""
    if new and old and new[0] != old[0]:
        out.append(invalid(f"{path}[0]", new, _SET_ONCE))


def check_service_status(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    path, kind = "status.loadBalancer.ingress", (raw.get("spec") or NO_MAP).get("type")
    ingress = ((raw.get("status") or NO_MAP).get("loadBalancer") or NO_MAP).get("ingress") or NO_LIST
    if ingress and kind != "LoadBalancer":
        out.append(forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
        return
    for index, one in enumerate(ingress):
        where, address, mode, host = f"{path}[{index}]", one.get("ip"), one.get("ipMode"), one.get("hostname")
        if address:
            complain(out, f"{where}.ip", address, names.ip_address(address))
        if mode is None and address:
            out.append(required(f"{where}.ipMode", "must be specified when `ip` is set"))
        elif mode is not None and not address:
            out.append(forbidden(f"{where}.ipMode", "may not be specified when `ip` is not set"))
        elif mode is not None:
            check_supported(out, f"{where}.ipMode", mode, _INGRESS_MODES)
        if host:
            complain(out, f"{where}.hostname", host, names.dns_subdomain(host))
            if not names.ip_address(host):
                out.append(invalid(f"{where}.hostname", host, "must be a DNS name, not an IP address"))
