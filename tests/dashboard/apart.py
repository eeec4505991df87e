"""A network for the browser alone, so that it does not see interfaces come and go.

Chromium gives up every request when a network interface of its machine changes (ERR_NETWORK_CHANGED), also those to
loopback, and whoever starts containers beside it changes them all the time. So it runs in a network namespace with
nothing but loopback, and reaches the real one through a SOCKS proxy whose listening socket is in there, and whose
process is not. Needs root and nsenter; without them the browser runs as everybody does.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_PIECE = 1 << 16


@contextmanager
def own_network(program: str, folder: Path) -> Iterator[tuple[str, str]]:
    """A script that starts `program` in a network of its own, and the address of the way out; empty: there is none."""
    enter = shutil.which("nsenter")
    if os.geteuid() != 0 or enter is None:
        yield program, ""
        return
    namespace, listener = _made()
    script = folder / "apart.sh"
    script.write_text(f'#!/bin/sh\nexec {enter} --net=/proc/{os.getpid()}/fd/{namespace} {program} "$@"\n')
    script.chmod(0o755)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop, listener), daemon=True)
    thread.start()
    try:
        yield str(script), f"socks5://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listener.close()
        os.close(namespace)


def _made() -> tuple[int, socket.socket]:
    """A namespace with loopback, and a socket that listens in it: a thread goes there, and ends."""
    found: list[tuple[int, socket.socket]] = []

    def there() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        listener = socket.create_server(("127.0.0.1", 0))
        found.append((os.open("/proc/thread-self/ns/net", os.O_RDONLY), listener))

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    return found[0]


def _serve(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    asyncio.set_event_loop(loop)
    server = loop.run_until_complete(asyncio.start_server(_proxied, sock=listener))
    loop.run_forever()
    server.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def _proxied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """SOCKS 5 (RFC 1928) without a password, to addresses of this machine only."""
    try:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        assert kind in (1, 3), kind
        size = 4 if kind == 1 else (await reader.readexactly(1))[0]
        address = await reader.readexactly(size)
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        host = socket.inet_ntoa(address) if kind == 1 else address.decode()
        if host not in ("127.0.0.1", "localhost"):
            writer.write(b"\x05\x02\x00\x01" + bytes(6))
            return
        out_reader, out_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(_copied(reader, out_writer), _copied(out_reader, writer))
    except (OSError, asyncio.IncompleteReadError):
        return  # the browser or the server hung up: the other side is told by closing
    finally:
        writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
