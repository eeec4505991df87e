"""Memory that a burst of connections has used goes back to the system, and no request pays for that."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial

import pytest

from kubeqos.web import garbage
from tests.qrm.harness import until

AFTER_A_BURST = """
from pathlib import Path
from kubeqos.web.garbage import hand_back

def resident_kb():
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1])

# The first one that is freed teaches the C library to keep such in its heap.
first = bytearray(256 << 10)
del first
burst, stays = [], []
for number in range(400):
    burst.append(bytearray(256 << 10))
    stays.append(bytes(600 + number))
most = resident_kb()
burst.clear()
hand_back()
print(most - resident_kb())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library's heap is asked")
def test_a_heap_that_large_buffers_have_left_is_handed_back() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_A_BURST], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 80 << 10, "of 100 MiB"


async def test_several_connections_that_end_are_swept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[int] = []
    monkeypatch.setattr(garbage, "_LATER_SECONDS", 0.0)
    monkeypatch.setattr(garbage, "hand_back", lambda: swept.append(1))
    ended = garbage._Leftovers()

    def has_swept(times: int) -> bool:
        return len(swept) == times

    for often in (0, 1, 2):
        assert len(swept) == often
        for _ in range(20):
            ended.add()
        await until("swept", partial(has_swept, often + 1))
    ended.add()
    await asyncio.sleep(0.05)
    assert len(swept) == 3, "one alone is not worth it"
