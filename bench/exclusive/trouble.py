"""Everything that goes wrong on the day: deaths, lost memories, lies and resizes, drawn by a seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
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
MORTALS = ("cpu-plugin", "memory-plugin", "driver", "qrm-agent", "cci-agent", "static-agent")
TOGETHER = (("qrm-agent", "cpu-plugin"), ("qrm-agent", "cpu-plugin", "memory-plugin"), ("cci-agent", "driver"))
LIE_SECONDS = 4.0
PAUSE_SECONDS = 0.8


class Troublemaker:
    """One trouble after the other, until told to stop; then everybody is well again."""

    def __init__(self, house: House, tally: Tally, seed: int) -> None:
        self.house, self.tally, self.rng = house, tally, random.Random(seed)

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
        self._tell_driver()
        self.house.lie.unlink(missing_ok=True)

    def _count(self, what: str) -> None:
        self.tally.troubles[what] = self.tally.troubles.get(what, 0) + 1

    async def resize(self) -> None:
        request = pb.SetPoolsRequest()
        request.pools["online"].count = self.rng.randrange(8, 25, 2)
        request.pools["offline"].count = self.rng.randrange(4, 13, 2)
        channel = dial(self.house.cpu_socket)
        try:
            await call(channel, SET_POOLS, request, pb.PoolsResponse, seconds=5.0)
            self._count("pools resized")
        except RemoteError:
            self._count("resizes refused")
        finally:
            await channel.close(None)

    async def kill(self, *names: str, forget: bool = False) -> None:
        parts = [self.house.parts[name] for name in names or (self.rng.choice(MORTALS),)]
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
        await self.kill(self.rng.choice(MORTALS), forget=True)

    async def forget_together(self) -> None:
        await self.kill(*self.rng.choice(TOGETHER), forget=True)

    async def lie(self) -> None:
        if self.rng.random() < 0.5:
            what = self.rng.choice(LIES)
            _write(self.house.lie, what.encode())
            self._count("CPU plugin lied")
        else:
            self._tell_driver(self.rng.choice([fault for fault in FAULTS if fault != "hang"]))
            self._count("driver lied")
        await asyncio.sleep(LIE_SECONDS * self.rng.random())
        self._well_again()

    def _tell_driver(self, fault: str = "") -> None:
        _write(self.house.script, encode_json([{"do": fault, "times": 3}] if fault else []))


def _write(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".new")
    scratch.write_bytes(data)
    with contextlib.suppress(FileNotFoundError):
        scratch.replace(path)
