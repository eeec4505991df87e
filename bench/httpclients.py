"""Ways to send a request from Python, beside our client: what each takes of the client's CPU, over TLS to our server.

Each runs in a process of its own on uvloop with sixteen persistent connections. aiohttp and niquests are measured where
they are installed; nothing of ours needs them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.apiserver import PODS, TOKEN, server
from bench.machine import describe
from bench.pods import one_template
from bench.wirework import all_of
from kubeqos.client.api import Call
from kubeqos.client.http import HttpApi
from kubeqos.codec import encode_json

REQUESTS, CONNECTIONS = 4000, 16
CLIENTS = ("kubeqos", "httpx2", "aiohttp", "niquests")
HEADERS = {"authorization": f"Bearer {TOKEN}", "accept": "application/json", "content-type": "application/json"}
Send = Callable[[str, str, bytes], Awaitable[int]]


def _kubeqos(url: str, authority: str) -> Send:
    api = HttpApi.to(url, token=TOKEN, verify=ssl.create_default_context(cafile=authority))

    async def send(method: str, path: str, body: bytes) -> int:
        return (await api.transport.send(Call(method, path, body=body))).status

    return send


def _httpx2(url: str, authority: str) -> Send:
    httpx2 = importlib.import_module("httpx2")
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    tls = ssl.create_default_context(cafile=authority)
    client = httpx2.AsyncClient(base_url=url, verify=tls, limits=limits, timeout=30, headers=HEADERS)

    async def send(method: str, path: str, body: bytes) -> int:
        response = await client.request(method, path, content=body or None)
        return len(response.content) and int(response.status_code)

    return send


def _aiohttp(url: str, authority: str) -> Send:
    aiohttp = importlib.import_module("aiohttp")
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority), limit=CONNECTIONS)
    client = aiohttp.ClientSession(url, connector=connector, headers=HEADERS)

    async def send(method: str, path: str, body: bytes) -> int:
        async with client.request(method, path, data=body or None) as response:
            return len(await response.read()) and int(response.status)

    return send


def _niquests(url: str, authority: str) -> Send:
    niquests = importlib.import_module("niquests")
    client = niquests.AsyncSession(pool_connections=1, pool_maxsize=CONNECTIONS)

    async def send(method: str, path: str, body: bytes) -> int:
        response = await client.request(method, f"{url}{path}", data=body or None, headers=HEADERS, verify=authority)
        return len(response.content) and int(response.status_code)

    return send


async def measure(which: str, url: str, authority: str) -> dict[str, list[float]]:
    """Rate and milliseconds of CPU of each GET and each POST."""
    make: dict[str, Callable[[str, str], Any]] = dict(
        zip(CLIENTS, (_kubeqos, _httpx2, _aiohttp, _niquests), strict=True)
    )
    send = make[which](url, authority)

    async def get(_number: int) -> None:
        assert await send("GET", f"{PODS}/one", b"") == 200

    async def post(number: int) -> None:
        assert await send("POST", PODS, encode_json(one_template(f"{which}-{number}", number))) == 201

    await all_of(200, CONNECTIONS, get)
    found = {}
    for verb, work in (("GET", get), ("POST", post)):
        busy = time.process_time()
        rate = await all_of(REQUESTS, CONNECTIONS, work)
        found[verb] = [rate, 1e3 * (time.process_time() - busy) / REQUESTS]
    return found


def main() -> None:
    """Print each client's figures."""
    print(f"{CONNECTIONS} connections, {REQUESTS} requests, over TLS")
    with server("--no-audit") as live:
        live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        live.call("POST", PODS, one_template("one", 0))
        for which in CLIENTS:
            if which != "kubeqos" and importlib.util.find_spec(which) is None:
                print(f"{which:10} not installed")
                continue
            words = [sys.executable, "-W", "ignore", "-m", "bench.httpclients", which, live.url]
            authority = str(live.directory / "data/pki/ca.crt")
            done = subprocess.run([*words, authority], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            found = json.loads(done.stdout)
            told = (f"{verb:4} {rate:6.0f}/s {each:.3f} ms CPU each" for verb, (rate, each) in found.items())
            print(f"{which:10} {'    '.join(told)}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvloop

        print(json.dumps(uvloop.run(measure(*sys.argv[1:]))), flush=True)
    else:
        print(describe())
        main()
