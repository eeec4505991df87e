"""Performs hooks and probes: a command in the container, an HTTP request, a TCP connection, a sleep.

A simulated container has no network: there `GET PATH` and `CONNECT PORT` are executed as commands, so that the pod's
script (`simulate.kubeqos.io/exec.NAME: "GET /healthz => 1"`) can answer them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kubeqos.clock import Clock
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.errors import RemoteError

Raw = Mapping[str, Any]
LONGEST_OUTPUT = 10_000


class ProbeFailed(RemoteError):
    """The container answered badly or not in time; the message is what an event says."""


class Prober:
    """Runs handlers of one node's containers."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self.clock = clock
        self._simulated = isinstance(runtime, SimulatedRuntime)

    async def run(self, handler: Raw, container_id: str, container: Raw, ip: str, *, timeout: float) -> None:
        """Carry out one handler; raises `ProbeFailed` or the runtime's `CallError`."""
        if handler.get("exec"):
            await self._command(container_id, handler["exec"].get("command") or (), timeout)
        elif handler.get("httpGet"):
            await self._http(handler["httpGet"], container_id, container, ip, timeout)
        elif handler.get("tcpSocket"):
            await self._tcp(handler["tcpSocket"], container_id, container, ip, timeout)
        elif handler.get("sleep"):
            await self.clock.sleep(int(handler["sleep"].get("seconds", 0)))
        else:
            raise ProbeFailed(f"unsupported handler: {', '.join(handler) or 'none'}")

    async def _command(self, container_id: str, command: Any, timeout: float) -> None:
        answer = await self._runtime.exec_sync(container_id, list(command), timeout_seconds=max(1, int(timeout)))
        if answer.exit_code != 0:
            said = (answer.stdout + answer.stderr).decode(errors="replace")[:LONGEST_OUTPUT].strip()
            raise ProbeFailed(said or f"command exited with {answer.exit_code}")

    async def _http(self, get: Raw, container_id: str, container: Raw, ip: str, timeout: float) -> None:
        path = get.get("path") or "/"
        if self._simulated:
            await self._command(container_id, ("GET", path), timeout)
            return
        import httpx2  # a few megabytes that nodes without such probes do not need

        host, port = get.get("host") or ip, port_number(get.get("port"), container)
        scheme = (get.get("scheme") or "HTTP").lower()
        headers = {one["name"]: one.get("value", "") for one in get.get("httpHeaders") or ()}
        url = f"{scheme}://{host}:{port}/{path.lstrip('/')}"
        try:
            async with httpx2.AsyncClient(verify=False, timeout=timeout, trust_env=False) as client:
                answer = await client.get(url, headers=headers)
        except httpx2.TransportError as error:
            raise ProbeFailed(f'Get "{url}": {error or type(error).__name__}') from error
        if not 200 <= answer.status_code < 400:
            raise ProbeFailed(f"HTTP probe failed with statuscode: {answer.status_code}")

    async def _tcp(self, target: Raw, container_id: str, container: Raw, ip: str, timeout: float) -> None:
        port = port_number(target.get("port"), container)
        if self._simulated:
            await self._command(container_id, ("CONNECT", str(port)), timeout)
            return
        host = target.get("host") or ip
        try:
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
        except (OSError, TimeoutError) as error:
            raise ProbeFailed(f"dial tcp {host}:{port}: {error or 'i/o timeout'}") from error


def port_number(port: Any, container: Raw) -> int:
    """A port by number, or by the name that the container gives it."""
    for known in container.get("ports") or ():
        if known.get("name") == port:
            return int(known["containerPort"])
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    raise ProbeFailed(f"couldn't find port: {port}")
