"""Runs in a container of the guest, on the guest's Python seen through a volume: takes what it is told, and keeps it.

`cpu NUMBER` burns that CPU. `burn COUNT` burns with so many processes, wherever they may run. `memory MIB` touches
memory and holds it. `cache FILE` reads a file into the page cache, once. `huge BYTES PAGES` maps huge pages and says
how many it could touch. `read FILE` reads a disk, past the cache, with several processes, so that the disk has always
something to do for it.
Each prints a word when it is set, and stays.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time

MAP_HUGETLB = 0x40000
READERS = 4


def cpu(where: str) -> None:
    os.sched_setaffinity(0, {int(where)})  # all of them on one, so that they do compete
    print("burning", flush=True)
    while True:
        pass


def burn(count: str) -> None:
    print("burning", flush=True)
    for _ in range(int(count) - 1):
        if os.fork() == 0:
            break
    while True:
        pass


def memory(mib: str) -> None:
    held = [bytearray(os.urandom(1 << 12) * 256) for _ in range(int(mib))]
    print(f"holds {len(held)}", flush=True)
    rest()


def cache(file: str) -> None:
    with open(file, "rb") as stream:
        while stream.read(1 << 20):
            pass
    print("read", flush=True)
    rest()


def huge(page_bytes: str, pages: str) -> None:
    size = int(page_bytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB | (size.bit_length() - 1) << 26
    got = 0
    held = []
    for _ in range(int(pages)):
        try:
            held.append(mmap.mmap(-1, size, flags=flags))
        except OSError as error:
            print(f"refused: {error}", flush=True)
            break
        child = os.fork()  # a page that is over the limit ends who touches it
        if child == 0:
            held[-1][0] = 1
            time.sleep(0.01)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            print("killed at touch", flush=True)
            break
        held[-1][0] = 1
        got += 1
    print(f"got {got}", flush=True)
    rest()


def read(file: str) -> None:
    print("reading", flush=True)
    for _ in range(READERS - 1):
        if os.fork() == 0:
            break
    buffer = mmap.mmap(-1, 1 << 17)
    stream = os.open(file, os.O_RDONLY | os.O_DIRECT)
    while True:
        os.lseek(stream, 0, os.SEEK_SET)
        while os.readv(stream, [buffer]):
            pass


def rest() -> None:
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    {one.__name__: one for one in (cpu, burn, memory, cache, huge, read)}[sys.argv[1]](*sys.argv[2:])
