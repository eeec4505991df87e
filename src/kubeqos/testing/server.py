"""An API server for tests of operators and controllers: real, empty, with the kinds they need, gone afterwards.

    from kubeqos.testing import api_server

    def test_my_operator():
        with api_server("crds.yaml") as server:
            ...  # any client: server.kubeconfig, or server.url with server.token

It runs in a thread of the test's process and listens on loopback. Nobody schedules or runs pods there: what a
controller would do, the test does, or starts the controller beside it. Nothing in this house imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import TransportApi
from kubeqos.client.resources import Resource, resource_of
from kubeqos.codec import JsonObject, decode_yaml_all
from kubeqos.errors import InputError, StateError
from kubeqos.gates import FeatureGates

Manifest = str | Path | Mapping[str, Any]
"""A file with any number of documents, or one object."""
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TestServer:
    """A running API server and how to reach it."""

    url: str
    kubeconfig: Path
    token: str
    """A bearer token of an administrator."""
    authority: Path
    """The certificate by which clients know the server."""
    _server: ApiServer
    _loop: asyncio.AbstractEventLoop

    __test__ = False  # pytest takes classes of this name for tests

    def create(self, *manifests: Manifest, namespace: str = "default") -> list[JsonObject]:
        """Create objects, in their order; what the server stored."""
        return [self._create(obj, namespace) for manifest in manifests for obj in objects_of(manifest)]

    def _create(self, obj: JsonObject, namespace: str) -> JsonObject:
        api: TransportApi = self._server.local()
        resource = self._resource(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
        home = obj.get("metadata", {}).get("namespace", namespace) if resource.namespaced else ""
        return asyncio.run_coroutine_threadsafe(api.create(resource, obj, home), self._loop).result(_START_SECONDS)

    def _resource(self, api_version: str, kind: str) -> Resource:
        found = resource_of(api_version, kind)
        if found is not None:
            return found
        for each in self._server.core.catalog.added:
            if (each.api_version, each.kind) == (api_version, kind):
                return Resource(each.group, each.version, each.plural, each.kind, each.namespaced)
        raise InputError(
            f'no matches for kind "{kind}" in version "{api_version}"',
            remedy="create its CustomResourceDefinition first",
        )


def objects_of(manifest: Manifest) -> list[JsonObject]:
    """The objects in a file, or the one given."""
    if isinstance(manifest, Mapping):
        return [dict(manifest)]
    path = Path(manifest)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read the manifest: {error.strerror}", where=str(path)) from error
    return [found for found in decode_yaml_all(text) if found]


@contextlib.contextmanager
def api_server(*manifests: Manifest, feature_gates: str = "") -> Iterator[TestServer]:
    """Start an API server with these objects in it; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-") as folder, _running(Path(folder), feature_gates) as server:
        server.create(*manifests)
        yield server


@contextlib.contextmanager
def _running(folder: Path, feature_gates: str) -> Iterator[TestServer]:
    token, tokens = secrets.token_urlsafe(24), folder / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f'{token},admin,admin,"system:masters"\n', encoding="ascii")
    gates = FeatureGates.parse(feature_gates)
    settings = Settings(folder / "data", port=0, token_file=tokens, gates=gates, audit=False)
    started = threading.Event()
    found: list[TestServer | BaseException] = []
    stop = asyncio.Event()

    async def serve() -> None:
        async with ApiServer.start(settings) as server:
            url = f"https://{server.application.address}"
            loop = asyncio.get_running_loop()
            found.append(TestServer(url, server.kubeconfig, token, server.pki.ca_file, server, loop))
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start is told
            found.append(error)
            started.set()

    thread = threading.Thread(target=run, name="kubeqos-api-server", daemon=True)
    thread.start()
    if not started.wait(_START_SECONDS):
        raise StateError(f"the API server did not start within {_START_SECONDS:.0f} s")
    server = found[0]
    if isinstance(server, BaseException):
        raise server
    try:
        yield server
    finally:
        server._loop.call_soon_threadsafe(stop.set)
        thread.join(_START_SECONDS)
