"""kill -9 at random moments: what was acknowledged is there, revisions only grow, transactions are whole."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kubeqos.store import Store
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.crash_writer"])
    lives: dict[int, int] = {}  # number → revision of its pair
    deaths: dict[int, int] = {}
    newest = 0
    for life in range(KILLS_PER_FILE):
        ours, theirs = context.Pipe(duplex=False)
        victim = context.Process(target=crash_writer.run, args=(path, life * NUMBERS_PER_LIFE, theirs))
        victim.start()
        theirs.close()
        await asyncio.sleep(chance.choice([0.0, 0.005, 0.02, 0.05, 0.1]) * chance.random() + 0.02 * (life % 2))
        victim.kill()
        victim.join()
        assert victim.exitcode == -9, f"the writer failed by itself, {story}"
        newest = max(newest, collect(ours, lives, deaths))
        newest = await verify(path, lives, deaths, newest, f"{story}, life {life} of {path.name}")
    return len(lives)


def collect(pipe: Connection, lives: dict[int, int], deaths: dict[int, int]) -> int:
    newest = 0
    try:
        while True:
            what, number, revision = pipe.recv_bytes().split()
            (lives if what == b"put" else deaths)[int(number)] = int(revision)
            newest = max(newest, int(revision))
    except EOFError:
        return newest


async def verify(path: Path, lives: dict[int, int], deaths: dict[int, int], newest: int, story: str) -> int:
    store = Store.open(path)
    assert store.revision >= newest, story
    left = {item.key.removeprefix("/left/"): item for item in store.range("/left/").items}
    right = {item.key.removeprefix("/right/"): item for item in store.range("/right/").items}
    assert {k: (v.value, v.revision) for k, v in left.items()} == {
        k: (v.value, v.revision) for k, v in right.items()
    }, story
    for number, revision in lives.items():
        found = left.get(str(number))
        if number in deaths:
            assert found is None, f"{number} came back, {story}"
        elif found is not None:
            assert found.revision == revision, story
        else:  # its deletion may have been written without being acknowledged, a pod's own loss may not
            assert number % 3 == 0, f"{number} is lost, {story}"
    usage = store.get("/usage")
    assert int(usage.value if usage else b"0") == len(left), story
    revision = store.revision
    await store.close()
    return revision
