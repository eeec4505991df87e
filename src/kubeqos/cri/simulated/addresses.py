"""Addresses of simulated pods. Pure; kept by `core`."""

from __future__ import annotations

import heapq
import ipaddress

from kubeqos.cri.errors import Code, RuntimeRefused


class Addresses:
    """Pod addresses, the lowest free one first."""

    def __init__(self, cidr: str) -> None:
        network = ipaddress.ip_network(cidr)
        self._cidr = cidr
        self._first = int(network.network_address) + 1
        self._size = network.num_addresses - 2
        self._next = 1
        self._free: list[int] = []

    def take(self) -> str:
        if self._free:
            offset = heapq.heappop(self._free)
        elif self._next < self._size:
            offset, self._next = self._next, self._next + 1
        else:
            raise RuntimeRefused(Code.RESOURCE_EXHAUSTED, f"no address is free in {self._cidr}")
        return str(ipaddress.ip_address(self._first + offset))

    def give_back(self, address: str) -> None:
        if address:
            heapq.heappush(self._free, int(ipaddress.ip_address(address)) - self._first)
