"""Everything that goes wrong on the day: deaths, lost memories, lies and resizes, drawn by a seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.exclusive.house import House
from bench.exclusive.lying import LIES
from bench.exclusive.users import Tally
from kubeqos.cci.builtin.scripted import FAULTS
from kubeqos.codec import encode_json
from kubeqos.errors import RemoteError
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm.proto import cpupools_pb2 as pb

SET_POOLS = f"/{pb.DESCRIPTOR.services_by_name['CpuPools'].full_name}/SetPools"
TOGETHER: Mapping[str, Sequence[tuple[str, ...]]] = {
    "qrm": (("agent", "cpu"), ("agent", "cpu", "memory")),
    "cci": (("agent", "driver"),),
}
"""Who loses everything at once, by profile."""
LIE_SECONDS = 4.0
PAUSE_SECONDS = 0.8


class Troublemaker:
    """One trouble after the other, until told to stop; then everybody is well again."""

    def __init__(self, house: House, tally: Tally, seed: int) -> None:
        self.house, self.tally, self.rng = house, tally, random.Random(seed)
        self.mortals = [name for name in house.parts if not name.endswith("-runtime")]

    async def run(self, ends: float) -> None:
        troubles = (
            self.resize,
            self.resize,
            self.kill,
            self.kill,
            self.forget,
            self.forget_together,
            self.lie,
            self.lie,
        )
        while time.monotonic() < ends:
            await self.rng.choice(troubles)()
            await asyncio.sleep(self.rng.uniform(0.2, 2 * PAUSE_SECONDS))
        self._well_again()

    async def calm(self, task: asyncio.Task[None]) -> None:
        """No more trouble; whoever is dead is started, so that the last pods can go."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._well_again()
        for part in self.house.parts.values():
            if part.process is None:
                await part.start()

    def _well_again(self) -> None:
        for node in self.house.of_profile("cci"):
            self._tell_driver(node)
        for node in self.house.of_profile("qrm"):
            self.house.lie(node).unlink(missing_ok=True)

    def _count(self, what: str) -> None:
        self.tally.troubles[what] = self.tally.troubles.get(what, 0) + 1

    async def resize(self) -> None:
        node, kind = self.rng.choice([(name, kind) for name, kind in self.house.nodes.items() if kind.pools])
        request = pb.SetPoolsRequest()
        for pool, sizes in kind.pools.items():
            request.pools[pool].count = self.rng.choice(sizes)
        channel = dial(self.house.cpu_socket(node))
        try:
            await call(channel, SET_POOLS, request, pb.PoolsResponse, seconds=5.0)
            self._count("pools resized")
        except RemoteError:
            self._count("resizes refused")
        finally:
            await channel.close(None)

    async def kill(self, *names: str, forget: bool = False) -> None:
        parts = [self.house.parts[name] for name in names or (self.rng.choice(self.mortals),)]
        await asyncio.gather(*(part.end() for part in parts))
        for part in parts:
            self._count(f"{part.name} {'forgot' if forget else 'killed'}")
            if forget:
                part.forget()
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 1.0)))
        self.rng.shuffle(parts)
        for part in parts:
            await part.start()

    async def forget(self) -> None:
        await self.kill(self.rng.choice(self.mortals), forget=True)

    async def forget_together(self) -> None:
        node = self.rng.choice([node for profile in TOGETHER for node in self.house.of_profile(profile)])
        losers = self.rng.choice(TOGETHER[self.house.nodes[node].profile])
        await self.kill(*(name for part in losers if (name := f"{node}-{part}") in self.house.parts), forget=True)

    async def lie(self) -> None:
        if self.rng.random() < 0.5:
            node = self.rng.choice(self.house.of_profile("qrm"))
            _write(self.house.lie(node), self.rng.choice(LIES).encode())
            self._count(f"{node}-cpu lied")
        else:
            node = self.rng.choice(self.house.of_profile("cci"))
            self._tell_driver(node, self.rng.choice([fault for fault in FAULTS if fault != "hang"]))
            self._count(f"{node}-driver lied")
        await asyncio.sleep(LIE_SECONDS * self.rng.random())
        self._well_again()

    def _tell_driver(self, node: str, fault: str = "") -> None:
        _write(self.house.script(node), encode_json([{"do": fault, "times": 3}] if fault else []))


def _write(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".new")
    scratch.write_bytes(data)
    with contextlib.suppress(FileNotFoundError):
        scratch.replace(path)
