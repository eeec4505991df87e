"""The NIC plugin: network interfaces with NUMA affinity, shared by many pods (KEP-3461, story and example 3).

A container learns the address of the interface nearest to its memory from its environment, and the runtime the network
namespace from an annotation. Pods that ask for bandwidth by name are charged for it; others share for free.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

from kubeqos.errors import ConfigurationError
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.messages import Allocation, NumaHint
from kubeqos.qrm.sdk.values import Capacity, Kind, Refuse, Request
from kubeqos.topology.alignment.hints import Hint

NETNS_ANNOTATION = "kubernetes.io/host-netns-path"
ADDRESS_ENVS = {4: "AFFINITY_NIC_ADDR_IPV4", 6: "AFFINITY_NIC_ADDR_IPV6"}
NAME_ENV = "AFFINITY_NIC_NAME"


class NicConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which roles get a NIC (all when empty), and interfaces by name: addresses, namespace, speed in Mbit/s."""

    resource: str = "NIC"
    roles: tuple[str, ...] = ()
    restricted: bool = True
    """Only the NIC of the container's own NUMA node will do; otherwise a far one is second best."""
    share: float = 0.94
    """Part of a line's speed that is handed out."""
    nics: dict[str, dict[str, str]] = {}


class Nic(msgspec.Struct, frozen=True):
    name: str
    numa: int
    addresses: tuple[str, ...] = ()
    netns: str = ""
    speed: float = 0.0


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """The NIC of a pod and the bandwidth that its containers asked for."""

    nic: str
    containers: dict[str, float] = {}


def nics_of(machine: Machine, config: NicConfig) -> dict[str, Nic]:
    """The machine's interfaces, with what the configuration adds to them."""
    found = {}
    for device in machine.devices:
        if device.kind != "nic" or device.numa is None:
            continue
        facts = {**device.attributes, **config.nics.get(device.name, {})}
        addresses = tuple(facts[key] for key in ("address", "ipv4", "ipv6") if facts.get(key))
        for address in addresses:
            try:
                ipaddress.ip_address(address)
            except ValueError as error:
                raise ConfigurationError(
                    f"nic {device.name}: {error}", remedy="write an IPv4 or IPv6 address"
                ) from error
        speed = float(facts.get("speed", 0))
        found[device.name] = Nic(device.name, device.numa, addresses, facts.get("netns", ""), speed)
    unknown = sorted(config.nics.keys() - found.keys())
    if unknown:
        raise ConfigurationError(f"nics: the machine has no interface {unknown[0]} with a known NUMA node")
    return found


class NicPlugin:
    """Gives pods the NIC of their NUMA node."""

    def __init__(self, machine: Machine, config: NicConfig) -> None:
        self.implicit = config.roles or True
        self.resource = config.resource
        self.config = config
        self.machine = machine
        self.nics = nics_of(machine, config)
        self.places: dict[str, Place] = {}

    def hints(self, request: Request) -> tuple[Hint, ...] | None:
        if not self._serves(request):
            return None
        place = self.places.get(request.pod_uid)
        if place:
            return (Hint(NumaSet.of(self.nics[place.nic].numa), True),)
        near = sorted({nic.numa for nic in self.nics.values() if self._free(nic) >= request.quantity})
        hints = [Hint(NumaSet.of(numa), True) for numa in near]
        if near and not self.config.restricted:
            hints.append(Hint(self.machine.numa, False))
        return tuple(hints)

    pod_hints = (
        hints  # a pod has one NIC anyway; what its containers are told stays theirs, and init containers have none
    )

    def allocate(self, request: Request) -> Allocation | None:
        if not self._serves(request):
            return None
        place = self.places.get(request.pod_uid) or Place(self._choose(request).name)
        nic = self.nics[place.nic]
        more = request.quantity - place.containers.get(request.container, 0.0)
        if more > self._free(nic):
            raise Refuse(f"{nic.name} has {self._free(nic):g} Mbit/s left, {more:g} requested")
        containers = {**place.containers, request.container: request.quantity}
        self.places[request.pod_uid] = Place(place.nic, containers)
        return self._allocation(nic, request.quantity)

    def _choose(self, request: Request) -> Nic:
        """The nearest interface with room; among equals the one with fewest pods, so that load spreads."""
        pods = {name: sum(place.nic == name for place in self.places.values()) for name in self.nics}
        asked = request.hint.numa
        able = [nic for nic in self.nics.values() if self._free(nic) >= request.quantity]
        near = [nic for nic in able if asked is None or nic.numa in asked]
        if not near and (self.config.restricted or not able):
            where = f"on NUMA {asked}" if asked is not None else "on this machine"
            raise Refuse(f"no NIC with {request.quantity:g} Mbit/s {where}")
        return min(near or able, key=lambda nic: (pods[nic.name], nic.name))

    def _allocation(self, nic: Nic, quantity: float) -> Allocation:
        envs = {ADDRESS_ENVS[ipaddress.ip_address(address).version]: address for address in nic.addresses}
        return Allocation(
            quantity=quantity,
            scalar=quantity > 0,
            node=quantity > 0,
            hints=(NumaHint((nic.numa,), True),),
            envs=envs or {NAME_ENV: nic.name},
            annotations={NETNS_ANNOTATION: nic.netns} if nic.netns else {},
        )

    def _serves(self, request: Request) -> bool:
        if request.kind is Kind.INIT:
            return False
        return request.quantity > 0 or not self.config.roles or request.role in self.config.roles

    def _free(self, nic: Nic) -> float:
        used = sum(sum(place.containers.values()) for place in self.places.values() if place.nic == nic.name)
        return nic.speed * self.config.share - used

    def release(self, pod_uid: str) -> None:
        self.places.pop(pod_uid, None)

    def allocations(self) -> Mapping[str, Any]:
        return {
            uid: {
                container: {self.resource: self._allocation(self.nics[place.nic], quantity)}
                for container, quantity in place.containers.items()
            }
            for uid, place in self.places.items()
        }

    def capacity(self) -> dict[str, Capacity]:
        whole: dict[int, float] = {}
        for nic in self.nics.values():
            whole[nic.numa] = whole.get(nic.numa, 0.0) + nic.speed
        by_numa = {numa: speed * self.config.share for numa, speed in whole.items()}
        total, allocatable = sum(whole.values()), sum(by_numa.values())
        shown = "/" in self.resource
        return {self.resource: Capacity(total, allocatable, by_numa, node=shown, total_by_numa=whole)}

    def save(self) -> Any:
        """The shape of the KEP's example 3, whose `nuam_node` is a slip of the pen for `numa_node`."""
        state: dict[str, Any] = {str(numa): {"nics": []} for numa in self.machine.numa}
        for nic in self.nics.values():
            addresses = {f"ipv{ipaddress.ip_address(text).version}": text for text in nic.addresses}
            shown = {"interface_name": nic.name, "numa_node": nic.numa, "address": addresses}
            state[str(nic.numa)]["nics"].append(shown | ({"netns": nic.netns} if nic.netns else {}))
        return {"machineState": state, "pod_entries": msgspec.to_builtins(self.places)}

    def restore(self, data: Any) -> None:
        saved = msgspec.convert(data.get("pod_entries", {}), dict[str, Place], strict=False)
        self.places = {uid: place for uid, place in saved.items() if place.nic in self.nics}
