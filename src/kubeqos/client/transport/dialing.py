"""Opens connections to one server, through a proxy where `address` says so, with TLS.

HTTP proxies are asked to CONNECT, SOCKS 5 proxies as RFC 1928 and 1929 say.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from urllib.parse import SplitResult, unquote

from kubeqos.client.transport.address import PORTS, Address, basic
from kubeqos.client.transport.connection import Connection

MOST_ANSWER = 1 << 16


class NotSent(Exception):
    """No connection: nothing was sent."""


async def dial(
    address: Address, tls: ssl.SSLContext | None, seconds: float, lost: Callable[[Connection], None]
) -> Connection:
    """A new connection; `NotSent` says why there is none."""
    loop = asyncio.get_running_loop()
    name = address.name if tls is not None else None
    try:
        async with asyncio.timeout(seconds):
            if address.proxy is None:
                _, made = await loop.create_connection(
                    lambda: Connection(lost), address.host, address.port, ssl=tls, server_hostname=name
                )
            else:
                raw = await _through(address.proxy, address.host, address.port)
                _, made = await loop.create_connection(
                    lambda: Connection(lost), sock=raw, ssl=tls, server_hostname=name
                )
    except TimeoutError as error:
        raise NotSent(f"no connection within {seconds:.0f} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotSent(f"its certificate is not to be trusted: {error.verify_message}") from error
    except OSError as error:
        raise NotSent(error.strerror or str(error)) from error
    return made


async def _through(proxy: SplitResult, host: str, port: int) -> socket.socket:
    """A socket on whose other end is the server."""
    loop = asyncio.get_running_loop()
    there = (proxy.hostname or "", proxy.port or PORTS[proxy.scheme])
    found = (await loop.getaddrinfo(*there, type=socket.SOCK_STREAM))[0]
    raw = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(raw, found[4])
        if proxy.scheme == "http":
            await _connect(raw, proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        else:
            await _socks(raw, proxy, host, port)
    except BaseException:
        raw.close()
        raise
    return raw


async def _connect(raw: socket.socket, proxy: SplitResult, target: str) -> None:
    loop = asyncio.get_running_loop()
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if proxy.username:
        head += f"Proxy-Authorization: {basic(proxy)}\r\n"
    await loop.sock_sendall(raw, f"{head}\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:  # the server says nothing before we do, so nothing of it is read here
        piece = await loop.sock_recv(raw, 4096)
        answer += piece
        if not piece or len(answer) > MOST_ANSWER:
            raise OSError("the proxy closed the connection")
    line = answer.partition(b"\r\n")[0].decode(errors="replace")
    if line.split(" ")[1:2] != ["200"]:
        raise OSError(f"the proxy refuses: {line}")


async def _socks(raw: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    async def take(count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = await loop.sock_recv(raw, count - len(got))
            if not piece:
                raise OSError("the proxy closed the connection")
            got += piece
        return got

    loop = asyncio.get_running_loop()
    user, password = (unquote(part or "").encode() for part in (proxy.username, proxy.password))
    await loop.sock_sendall(raw, b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    way = (await take(2))[1]
    if way == 2 and user:
        await loop.sock_sendall(raw, bytes([1, len(user), *user, len(password), *password]))
        if (await take(2))[1] != 0:
            raise OSError("the proxy refuses our name and password")
    elif way != 0:
        raise OSError("the proxy wants credentials that we do not have")
    name = host.encode("idna") if not host.isascii() else host.encode()
    await loop.sock_sendall(raw, bytes([5, 1, 0, 3, len(name), *name, *port.to_bytes(2, "big")]))
    _, code, _, kind = await take(4)
    if code != 0:
        raise OSError(f"the proxy cannot reach the server (code {code})")
    length = {1: 4, 4: 16}[kind] if kind in (1, 4) else (await take(1))[0]
    await take(length + 2)
