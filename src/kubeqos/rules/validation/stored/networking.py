"""What Kubernetes says about the fields of policies, ingresses, addresses and endpoints."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import forbidden, invalid, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_port_or_name, check_reachable, complain
from kubeqos.rules.validation.stored.checks import (
    PROTOCOLS,
    Fields,
    choice,
    judged,
    longest,
    named,
    named_word,
    needed,
    needs_name,
    port,
    prefixed_path,
    set_at_all,
    unique,
    wildcard_subdomain,
    within,
    word,
)

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS, _NOT_AT_THE_END = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_ADDRESSES = ("FQDN", "IPv4", "IPv6")
_LONGEST_CONTROLLER = 250


def _check_policy_types(out: Errors, path: str, value: Any) -> None:
    if len(value or ()) > 2:
        out.append(invalid(path, value, "may not specify more than two policyTypes"))
    else:
        within(word("Ingress", "Egress"))(out, path, value)


def _check_policy_port(out: Errors, path: str, raw: Raw) -> None:
    number, last = raw.get("port"), raw.get("endPort")
    if number is not None:
        check_port_or_name(out, f"{path}.port", number)
    if last is None:
        return
    if number is None:
        out.append(invalid(f"{path}.endPort", last, "may not be specified when `port` is not specified"))
    elif isinstance(number, str):
        out.append(invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric"))
    else:
        if last < number:
            out.append(invalid(f"{path}.endPort", last, "must be greater than or equal to `port`"))
        port(out, f"{path}.endPort", last)


def _check_peer(out: Errors, path: str, peer: Raw) -> None:
    present = [field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None]
    if not present:
        out.append(required(path, "must specify a peer"))
    elif len(present) > 1 and "ipBlock" in present:
        out.append(forbidden(path, "may not specify both ipBlock and another peer"))


def _check_block(out: Errors, path: str, block: Raw) -> None:
    if not block.get("cidr"):
        out.append(required(f"{path}.cidr"))
        return
    complain(out, f"{path}.cidr", block["cidr"], names.cidr(block["cidr"]))
    whole = names.parse_cidr(block["cidr"])
    if whole is None:
        return
    for index, text in enumerate(block.get("except") or NO_LIST):
        where, part = f"{path}.except[{index}]", names.parse_cidr(text)
        if part is None:
            complain(out, where, text, names.cidr(text))
        elif part.version != whole.version or part == whole or not part.subnet_of(whole):  # type: ignore[arg-type]
            out.append(invalid(where, text, "must be a strict subset of `cidr`"))


def _check_ingress(out: Errors, path: str, spec: Raw) -> None:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        out.append(invalid(path, None, "either `defaultBackend` or `rules` must be specified"))
    if (backend := spec.get("defaultBackend")) is not None:
        _check_backend(out, f"{path}.defaultBackend", backend)


def _check_host(out: Errors, path: str, value: Any) -> None:
    if not value:
        return
    if names.parse_ip(value) is not None:
        out.append(invalid(path, value, "must be a DNS name, not an IP address"))
    complain(out, path, value, wildcard_subdomain(value))


def _check_path(out: Errors, path: str, raw: Raw) -> None:
    kind, text = raw.get("pathType"), raw.get("path", "")
    if kind is None:
        return  # nothing else is looked at then
    _check_backend(out, f"{path}.backend", raw.get("backend") or NO_MAP)
    absolute = text.startswith("/") or (kind == "ImplementationSpecific" and not text)
    if kind in _PATH_TYPES and not absolute:
        out.append(invalid(f"{path}.path", text, "must be an absolute path"))
    if kind in ("Exact", "Prefix"):
        for part in _NOT_IN_PATHS:
            if part in text:
                out.append(invalid(f"{path}.path", text, f"must not contain '{part}'"))
        for part in _NOT_AT_THE_END:
            if text.endswith(part):
                out.append(invalid(f"{path}.path", text, f"cannot end with '{part}'"))


def _check_backend(out: Errors, path: str, backend: Raw) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        out.append(invalid(path, "", "cannot set both resource and service backends"))
    elif service is not None:
        _check_service_port(out, path, service.get("port") or NO_MAP)
    elif resource is None:
        out.append(invalid(path, "", "resource or service backend is required"))


def _check_service_port(out: Errors, path: str, wanted: Raw) -> None:
    name, number = wanted.get("name"), wanted.get("number")
    if name and number:
        out.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        complain(out, f"{path}.service.port.name", name, names.port_name(name))
    elif number:
        port(out, f"{path}.service.port.number", number)
    else:
        out.append(required(path, "port name or number is required"))


def _check_parameters(out: Errors, path: str, raw: Raw) -> None:
    scope, namespace = raw.get("scope"), raw.get("namespace")
    if scope == "Namespace":
        if namespace is None:
            out.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            complain(out, f"{path}.namespace", namespace, names.dns_label(namespace))
    elif scope == "Cluster" and namespace is not None:
        out.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))


def _check_cidrs(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path, "at least one CIDR required"))
        return
    families = []
    for index, text in enumerate(value):
        block = names.parse_cidr(text)
        if block is None:
            complain(out, f"{path}[{index}]", text, names.cidr(text))
        else:
            families.append(block.version)
    if len(value) > 2:
        out.append(invalid(path, value, "may only hold up to 2 values"))
    elif len(families) == 2 and families[0] == families[1]:
        out.append(
            invalid(
                path, value, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            )
        )


def check_cidrs_change(out: Errors, raw: Raw, old: Raw) -> None:
    """Ranges stay; one of the other family may be added to a single one."""
    ranges, before = ((one.get("spec") or NO_MAP).get("cidrs") for one in (raw, old))
    wanted, had = ranges or NO_LIST, before or NO_LIST
    if len(wanted) != len(had) and (len(had), len(wanted)) != (1, 2):
        out.append(invalid("spec.cidrs", ranges, names.IMMUTABLE))
        return
    for index, (one, known) in enumerate(zip(wanted, had, strict=False)):
        if one != known:
            out.append(invalid(f"spec.cidrs[{index}]", one, names.IMMUTABLE))
    if len(wanted) > len(had):
        _check_cidrs(out, "spec.cidrs", wanted)


def _check_slice(out: Errors, path: str, raw: Raw) -> None:
    """The addresses of a slice are all of its type."""
    kind = raw.get("addressType")
    for index, endpoint in enumerate(raw.get("endpoints") or NO_LIST):
        where = f"endpoints[{index}].addresses"
        for number, address in enumerate(endpoint.get("addresses") or NO_LIST):
            _check_typed_address(out, where, f"{where}[{number}]", address, kind)


def _check_typed_address(out: Errors, all_of_them: str, path: str, address: str, kind: str | None) -> None:
    if kind not in _ADDRESSES:
        return
    if kind == "FQDN":
        complain(out, path, address, names.dns_subdomain(address.removesuffix(".")))
        return
    found = names.parse_ip(address)
    if found is None:
        complain(out, path, address, names.ip_address(address))
        return
    if kind != f"IPv{found.version}":
        out.append(invalid(all_of_them, address, f"must be an {kind} address"))
    _check_endpoint(out, path, address)


def _check_endpoint(out: Errors, path: str, text: str) -> None:
    """An address at which somebody else can be reached, and nobody but one."""
    check_reachable(out, path, text)
    address = names.parse_ip(text)
    if address is not None and address.version == 4 and address.packed[:3] == b"\xe0\x00\x00":
        out.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))


def _check_subset(out: Errors, path: str, subset: Raw) -> None:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        out.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    ports = subset.get("ports") or NO_LIST
    if len(ports) > 1:
        for index, each in enumerate(ports):
            needed()(out, f"{path}.ports[{index}].name", each.get("name"))


def _check_ip(out: Errors, path: str, value: Any) -> None:
    """Kubernetes reads an address of Endpoints twice, and says each time that it is none."""
    if names.parse_ip(value or "") is None:
        out.append(invalid(path, value or "", "must be a valid IP address"))
    _check_endpoint(out, path, value or "")


_SEGMENT = needs_name(names.path_segment)
_REFERENCE: Fields = {"apiGroup": judged(names.dns_subdomain), "kind": _SEGMENT, "name": _SEGMENT}
TYPES: dict[str, Fields] = {
    "networking/v1.NetworkPolicySpec": {"policyTypes": _check_policy_types},
    "networking/v1.NetworkPolicyPort": {"protocol": choice("TCP", "UDP", "SCTP"), "": _check_policy_port},
    "networking/v1.NetworkPolicyPeer": {"": _check_peer},
    "networking/v1.IPBlock": {"cidr": (), "": _check_block},
    "networking/v1.IngressSpec": {"ingressClassName": judged(names.dns_subdomain), "": _check_ingress},
    "networking/v1.IngressTLS": {
        "hosts": within(judged(wildcard_subdomain)),
        "secretName": named(names.dns_subdomain),
    },
    "networking/v1.IngressRule": {"host": _check_host},
    "networking/v1.HTTPIngressRuleValue": {"paths": needed()},
    "networking/v1.HTTPIngressPath": {
        "pathType": (set_at_all("pathType must be specified"), choice(*_PATH_TYPES)),
        "": _check_path,
    },
    "networking/v1.IngressServiceBackend": {"name": needs_name(names.dns_label)},
    "core/v1.TypedLocalObjectReference": _REFERENCE,
    "networking/v1.IngressClassSpec": {"controller": (longest(_LONGEST_CONTROLLER), prefixed_path)},
    "networking/v1.IngressClassParametersReference": {
        **_REFERENCE,
        "scope": choice("Cluster", "Namespace"),
        "": _check_parameters,
    },
    "networking/v1.IPAddressSpec": {"parentRef": set_at_all()},
    "networking/v1.ParentReference": {
        "group": named(names.dns_subdomain),
        "resource": _SEGMENT,
        "name": _SEGMENT,
        "namespace": named(names.path_segment),
    },
    "networking/v1.ServiceCIDRSpec": {"cidrs": _check_cidrs},
    "discovery/v1.EndpointSlice": {
        "addressType": named_word(*_ADDRESSES),
        "ports": unique("name"),
        "": _check_slice,
    },
    "discovery/v1.EndpointPort": {
        "name": named(names.dns_label),
        "protocol": choice(*PROTOCOLS, unset=False),
        "appProtocol": judged(names.qualified_name),
    },
    "discovery/v1.Endpoint": {
        "addresses": needed(),
        "nodeName": judged(names.dns_subdomain),
        "hostname": judged(names.dns_label),
    },
    "discovery/v1.EndpointHints": {"forZones": unique("name"), "forNodes": unique("name")},
    "discovery/v1.ForZone": {"name": named(names.label_value)},
    "discovery/v1.ForNode": {"name": judged(names.dns_subdomain, unset=False)},
    "core/v1.EndpointSubset": {"": _check_subset},
    "core/v1.EndpointAddress": {
        "ip": _check_ip,
        "hostname": named(names.dns_label),
        "nodeName": judged(names.dns_subdomain),
    },
    "core/v1.EndpointPort": {
        "name": named(names.dns_label),
        "port": port,
        "protocol": (needed(), choice(*PROTOCOLS)),
        "appProtocol": judged(names.qualified_name),
    },
}
