"""kill -9 at random moments: what was acknowledged is there, revisions only grow, transactions are whole."""

from __future__ import annotations

import asyncio
import random
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kubeqos.store import Store, Stored
from tests.shared.victims import nursery
from tests.store import crash_writer

KILLS = 200
KILLS_PER_FILE = 25  # a young file also meets kills while it is being made
NUMBERS_PER_LIFE = 1_000_000


@pytest.mark.slow
async def test_kill_9_never_loses_an_acknowledged_write(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    acknowledged = 0
    for file_number in range(KILLS // KILLS_PER_FILE):
        acknowledged += await one_file(tmp_path / f"state-{file_number}.db", chance, f"seed {seed}")
    assert acknowledged > KILLS, "the writers were killed before they did anything: nothing was tested"


async def one_file(path: Path, chance: random.Random, story: str) -> int:
    context = nursery()
    seen = Seen()
    for life in range(KILLS_PER_FILE):
        ours, theirs = context.Pipe(duplex=False)
        victim = context.Process(target=crash_writer.run, args=(path, life * NUMBERS_PER_LIFE, theirs))
        victim.start()
        theirs.close()
        if life % 3:  # in the middle of its work; else at any moment, opening and creating included
            seen.collect(ours, chance.randint(1, 30))
        await asyncio.sleep(chance.choice([0, 0.002, 0.02]) * chance.random())
        victim.kill()
        victim.join()
        assert victim.exitcode == -9, f"the writer failed by itself, {story}"
        seen.collect(ours)
        await verify(path, seen, f"{story}, life {life} of {path.name}")
    return len(seen.lives)


class Seen:
    """What the writers acknowledged."""

    def __init__(self) -> None:
        self.lives: dict[int, int] = {}  # number → revision of its pair
        self.deaths: dict[int, int] = {}
        self.newest = 0

    def collect(self, pipe: Connection, count: int = 1 << 30) -> None:
        """Read so many acknowledgements, or all that a dead writer left."""
        try:
            for _ in range(count):
                what, number, revision = pipe.recv_bytes().split()
                (self.lives if what == b"put" else self.deaths)[int(number)] = int(revision)
                self.newest = max(self.newest, int(revision))
        except EOFError:
            return


async def verify(path: Path, seen: Seen, story: str) -> None:
    store = Store.open(path)
    assert store.revision >= seen.newest, story
    left = {item.key.removeprefix("/left/"): item for item in store.range("/left/").items}
    right = {item.key.removeprefix("/right/"): item for item in store.range("/right/").items}
    assert content(left) == content(right), story
    for number, revision in seen.lives.items():
        found = left.get(str(number))
        if number in seen.deaths:
            assert found is None, f"{number} came back, {story}"
        elif found is not None:
            assert found.revision == revision, story
        else:  # its deletion may have been written without being acknowledged; nothing else explains it
            assert number % 3 == 0, f"{number} is lost, {story}"
    usage = store.get("/usage")
    assert int(usage.value if usage else b"0") == len(left), story
    seen.newest = store.revision
    await store.close()


def content(items: dict[str, Stored]) -> dict[str, tuple[bytes, int]]:
    return {key: (item.value, item.revision) for key, item in items.items()}
