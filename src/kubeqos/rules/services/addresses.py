"""Cluster addresses and node ports: which service has which, and what a service that comes is given. Pure.

One ledger for a server. Addresses that are asked for by name come from the whole range; those that are given come from
its upper part first, as Kubernetes does, so that fixed addresses at the lower end stay free. Where to begin looking
depends on the service's name alone: the same manifests give the same addresses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any

from kubeqos.rules.fielderror import FieldError, internal, invalid
from kubeqos.rules.services.updates import has_cluster_ip, has_health_port, has_node_ports, is_on_nodes

Raw = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name)"""

DEFAULT_RANGE = IPv4Network("10.96.0.0/12")
NODE_PORTS = range(30000, 32768)
_HEADLESS = "None"


@dataclass(slots=True)
class ServiceAddresses:
    """Who has what."""

    network: IPv4Network = DEFAULT_RANGE
    _addresses: dict[str, Key] = field(default_factory=dict)
    _ports: dict[tuple[str, int], Key] = field(default_factory=dict)
    _held: dict[Key, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = field(default_factory=dict)

    def put(self, key: Key, service: Raw) -> None:
        """A service is stored."""
        self.drop(key)
        spec = service.get("spec") or {}
        addresses = tuple(one for one in spec.get("clusterIPs") or () if one != _HEADLESS)
        ports = tuple(_ports_of(spec))
        self._held[key] = addresses, ports
        self._addresses.update(dict.fromkeys(addresses, key))
        self._ports.update(dict.fromkeys(ports, key))

    def drop(self, key: Key) -> None:
        """A service is gone."""
        addresses, ports = self._held.pop(key, ((), ()))
        for address in addresses:
            self._addresses.pop(address, None)
        for port in ports:
            self._ports.pop(port, None)

    def complete(self, key: Key, service: Raw) -> list[FieldError]:
        """Give a service, which was found valid, what it lacks; or say what it cannot have."""
        spec = service.setdefault("spec", {})
        errors = self._address(key, spec) if has_cluster_ip(spec) else []
        return errors or self._node_ports(key, spec)

    # -- addresses ---------------------------------------------------------------------------------------------

    def _address(self, key: Key, spec: Raw) -> list[FieldError]:
        asked = spec.get("clusterIP")
        if asked == _HEADLESS:
            return []
        if not asked:
            found = next(self._free_addresses(key), None)
            if found is None:
                return [internal("spec.clusterIPs", f"failed to allocate an address: the range {self.network} is full")]
            spec["clusterIP"], spec["clusterIPs"] = found, [found]
            return []
        owner = self._addresses.get(asked)
        if owner == key:
            return []
        if not self._in_range(asked):
            why = "the provided network does not match the current range"
        elif owner is not None:
            why = "provided IP is already allocated"
        else:
            return []
        return [invalid("spec.clusterIPs", spec["clusterIPs"], f"failed to allocate IP {asked}: {why}")]

    def _in_range(self, address: str) -> bool:
        try:
            found = IPv4Address(address)
        except AddressValueError:
            return False
        return found in self.network and found not in (self.network.network_address, self.network.broadcast_address)

    def _free_addresses(self, key: Key) -> Iterator[str]:
        size = self.network.num_addresses - 2
        lower = min(max(16, size // 16), 256, size)
        first = int(self.network.network_address) + 1
        for start, length in ((lower, size - lower), (0, lower)):
            offset = _seed(key) % length if length else 0
            for step in range(length):
                address = str(IPv4Address(first + start + (offset + step) % length))
                if address not in self._addresses:
                    yield address

    # -- ports -------------------------------------------------------------------------------------------------

    def _node_ports(self, key: Key, spec: Raw) -> list[FieldError]:
        errors: list[FieldError] = []
        own: dict[tuple[str, int], Key] = {}
        for index, port in enumerate(spec.get("ports") or () if is_on_nodes(spec) else ()):
            protocol, asked = port.get("protocol") or "TCP", port.get("nodePort")
            if asked:
                if self._ports.get((protocol, asked), key) != key:
                    said = "provided port is already allocated"
                    errors.append(invalid(f"spec.ports[{index}].nodePort", asked, said))
                own[protocol, asked] = key
        for index, port in enumerate(spec.get("ports") or () if has_node_ports(spec) else ()):
            if port.get("nodePort"):
                continue
            protocol = port.get("protocol") or "TCP"
            found = self._free_port(key, protocol, own)
            if found is None:
                errors.append(internal(f"spec.ports[{index}].nodePort", "failed to allocate a nodePort: none is free"))
                break
            port["nodePort"] = found
            own[protocol, found] = key
        if not errors and has_health_port(spec):
            errors = self._health_port(key, spec, own)
        return errors

    def _health_port(self, key: Key, spec: Raw, own: dict[tuple[str, int], Key]) -> list[FieldError]:
        asked = spec.get("healthCheckNodePort")
        if asked and self._ports.get(("TCP", asked), key) != key:
            return [internal("spec.healthCheckNodePort", f"failed to allocate requested HealthCheck NodePort {asked}")]
        found = asked or self._free_port(key, "TCP", own)
        if found is None:
            return [internal("spec.healthCheckNodePort", "failed to allocate a HealthCheck NodePort: none is free")]
        spec["healthCheckNodePort"] = found
        return []

    def _free_port(self, key: Key, protocol: str, own: dict[tuple[str, int], Key]) -> int | None:
        size, offset = len(NODE_PORTS), _seed(key)
        for step in range(size):
            port = NODE_PORTS[(offset + step) % size]
            if (protocol, port) not in self._ports and (protocol, port) not in own:
                return port
        return None


def _ports_of(spec: Raw) -> Iterator[tuple[str, int]]:
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port.get("protocol") or "TCP", port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield "TCP", spec["healthCheckNodePort"]


def _seed(key: Key) -> int:
    return zlib.crc32("/".join(key).encode())
