"""Checks of any compute driver against the interface, through its socket (`kubeqos cci conformance SOCKET`).

Every check is a small story that ends in nothing reserved: what is admitted is removed again. A driver passes when it
answers in time, keeps its promises on the machine that it is told about, and says no in words. `cci.kit.hardchecks` has
the stories of several pods, of every attribute and of managers that ask nonsense.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from kubeqos.cci.drivers import PLUGIN_TYPE, VERSIONS, negotiate
from kubeqos.cci.kit.examination import Broken, Peer, Verdict
from kubeqos.cci.kit.hardchecks import HARD_CHECKS, KILLED, killed
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.killable import Killable
from kubeqos.plugins.registration import ask_info
from kubeqos.plugins.sockets import dial
from kubeqos.topology.attributes import DeviceAffinity, MemoryAffinity, Siblings
from kubeqos.topology.claims.parameters import Group, Parameters


def _one(count: int, **attributes: Any) -> Parameters:
    return Parameters((Group(count, count, **attributes),))


async def _registration(peer: Peer) -> None:
    plugin = await ask_info(peer.socket, peer.channel)
    if plugin.type != PLUGIN_TYPE:
        raise Broken(f"registers as type {plugin.type!r}, must be {PLUGIN_TYPE!r}")
    if negotiate(plugin.versions) is None:
        raise Broken(f"speaks versions {', '.join(plugin.versions) or 'none'}, must speak {VERSIONS[0]}")


async def _exclusive(peer: Peer) -> None:
    await peer.granted(_one(1, exclusive=True), peer.machine.online)


async def _shared(peer: Peer) -> None:
    await peer.granted(_one(1), peer.machine.online)


async def _mixed(peer: Peer) -> None:
    core = len(next(iter(peer.machine.cores.values())))
    if len(peer.machine.online) > core:
        await peer.granted(Parameters((Group(core, core, exclusive=True), Group(1, 1))), peer.machine.online)


async def _inside(peer: Peer) -> None:
    """Of a machine whose cores are half taken, the other half serves."""
    cores = list(peer.machine.cores.values())
    half = NO_CPUS
    for core in cores[len(cores) // 2 :]:
        half |= core & peer.machine.online
    await peer.granted(_one(1, exclusive=True), half)


async def _range(peer: Peer) -> None:
    await peer.granted(Parameters((Group(1, 2),)), peer.machine.online)


async def _siblings(peer: Peer) -> None:
    core = next(iter(peer.machine.cores.values()))
    await peer.granted(_one(len(core), exclusive=True, siblings=Siblings.REQUIRED), peer.machine.online)
    await peer.granted(_one(1, exclusive=True, siblings=Siblings.PREFERRED), peer.machine.online)
    if len(peer.machine.cores) > 1:  # EXCLUSIVE owns full cores: the rest of its own claim is elsewhere
        await peer.granted(Parameters((Group(1, 1, exclusive=True), Group(1, 1))), peer.machine.online)
    await peer.granted(_one(1, exclusive=True, siblings=Siblings.DENIED), peer.machine.online)


async def _memory(peer: Peer) -> None:
    everywhere = len(peer.machine.cpu_numa)
    await peer.granted(_one(1, exclusive=True, memory=MemoryAffinity.BIND_REQUIRED), peer.machine.online)
    interleaved = _one(everywhere, exclusive=True, memory=MemoryAffinity.INTERLEAVE_REQUIRED)
    await peer.granted(interleaved, peer.machine.online)


async def _device(peer: Peer) -> None:
    for node in peer.machine.cpu_numa:
        where = peer.machine.numa_of(peer.machine.numa_cpus[node])
        group = Group(1, 1, exclusive=True, device=DeviceAffinity.REQUIRED)
        await peer.granted(Parameters((group,), device_numa=where), peer.machine.online)


async def _too_many(peer: Peer) -> None:
    count = len(peer.machine.online) + 1
    await peer.refused(_one(count, exclusive=True).handle(), peer.machine.online, f"{count} exclusive cores")


async def _nothing_left(peer: Peer) -> None:
    await peer.refused(_one(1, exclusive=True).handle(), CpuSet(), "a core of none available")


async def _nonsense(peer: Peer) -> None:
    await peer.refused("this is not a claim", peer.machine.online, "a claim that cannot be read")


async def _lifecycle(peer: Peer) -> None:
    await peer.granted(_one(1, exclusive=True), peer.machine.online)
    claim = peer.admitted.pop()
    start = pb.AddResourceRequest(
        cgroup="/kubepods/conformance", pod=claim.pod, container=claim.container, container_id=f"id-{claim.pod}"
    )
    answer = await peer.call("CCIAddContainerResource", start)
    if answer.err:
        raise Broken(f"refused to add an admitted container: {answer.err}")
    for _ in range(2):  # a removal may be repeated after a crash
        await peer.remove(claim.claim_uid, claim.claim_name, start.container_id)


async def _stranger(peer: Peer) -> None:
    await peer.remove("nobody", "nobody", "no-such-container")


async def _gives_back(peer: Peer) -> None:
    """What was admitted and removed can be had again: nothing leaks inside the driver."""
    for _ in range(8):
        await peer.granted(_one(1, exclusive=True), peer.machine.online)
        await peer.clean()


Check = Callable[[Peer], Awaitable[None]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("registers as a compute driver", _registration),
    ("admits an exclusive core", _exclusive),
    ("admits a shared core", _shared),
    ("answers a mixed claim with one set per group", _mixed),
    ("stays inside the available CPUs", _inside),
    ("serves a range of cores", _range),
    ("honours sibling attributes", _siblings),
    ("honours memory attributes", _memory),
    ("honours device attributes", _device),
    ("refuses more cores than there are, in words", _too_many),
    ("refuses when nothing is available, in words", _nothing_left),
    ("refuses a claim that cannot be read, in words", _nonsense),
    ("adds and removes, also twice", _lifecycle),
    ("accepts the removal of a container that it does not know", _stranger),
    ("gives back what was removed", _gives_back),
    *HARD_CHECKS,
)


async def examine(socket: Path, machine: Machine, program: Killable | None = None) -> list[Verdict]:
    """Run every check against the driver behind a socket; one that we run ourselves is killed, too."""
    channel = dial(socket)
    verdicts: list[Verdict] = []
    checks: list[tuple[str, Check]] = list(CHECKS)
    if program is not None:
        checks.append((KILLED, partial(killed, program)))
    try:
        for name, check in checks:
            peer = Peer(socket, machine, channel, serial=len(verdicts) * 1000)
            started = time.perf_counter()
            problem = ""
            try:
                await check(peer)
                await peer.clean()
            except (Broken, RemoteError) as error:
                problem = str(error)
            verdicts.append(Verdict(name, problem, (time.perf_counter() - started) * 1000))
    finally:
        await channel.close(None)
    return verdicts
