"""A small synchronous client for the command line: one kubeconfig, one connection, plain JSON.

The full client brings an event loop and takes longer to import than a command should to print a table. Where the server
is and who we are to it both read from the same place (`address`, `credentials`).
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from kubeqos.client.credentials import Credentials
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.kubeconfig import Config, load
from kubeqos.client.transport.address import PORTS, Address, address_of, basic
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.errors import ConfigurationError

_SECONDS = 30.0
_RIGHT_HOST = "did you specify the right host or port?"


class LightApi:
    """Reads from one API server, and writes what a command changes."""

    def __init__(self, config: Config, credentials: Credentials) -> None:
        cluster = config.cluster
        self.server = cluster.server
        self.namespace = config.namespace
        self._address = address_of(cluster.server, cluster.tls_server_name, cluster.proxy_url)
        self._headers = credentials.headers
        self._connection = _connection(self._address, credentials.tls)

    @classmethod
    def from_kubeconfig(
        cls, path: Path | None = None, context: str | None = None, env: Mapping[str, str] = os.environ
    ) -> LightApi:
        """As the kubeconfig says."""
        config = load(path, context, env)
        credentials = Credentials(config)
        if credentials.asks_program:
            credentials.renew()
        return cls(config, credentials)

    def get(self, path: str, **query: str) -> JsonObject:
        """One object or list."""
        response = self._send("GET", path, query)
        body = response.read()
        if response.status >= 400:
            raise ApiError.of(response.status, body)
        return cast(JsonObject, decode_json(body))

    def get_or_none(self, path: str, **query: str) -> JsonObject | None:
        """One object, or None where there is none."""
        try:
            return self.get(path, **query)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def items(self, path: str, **query: str) -> list[JsonObject]:
        """Every object of a collection."""
        return cast(list[JsonObject], self.get(path, **query).get("items") or [])

    def watch(self, path: str, **query: str) -> Iterator[tuple[str, JsonObject]]:
        """Events of a collection until the server ends the watch."""
        response = self._send("GET", path, {**query, "watch": "true"})
        if response.status >= 400:
            raise ApiError.of(response.status, response.read())
        while line := response.readline():
            event: Any = decode_json(line)
            yield event["type"], event["object"]

    def write(
        self, method: str, path: str, body: object, content_type: str = "application/json", **query: str
    ) -> tuple[JsonObject, list[str]]:
        """Change an object; the new one, and what the server warned of."""
        response = self._send(method, path, query, encode_json(body), content_type)
        answer = response.read()
        if response.status >= 400:
            raise ApiError.of(response.status, answer)
        warnings = [_warning(text) for text in response.headers.get_all("Warning") or ()]
        return cast(JsonObject, decode_json(answer)), warnings

    def _send(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None = None, content_type: str = ""
    ) -> http.client.HTTPResponse:
        target = self._address.base + quote(path, safe="/:") + (f"?{urlencode(query)}" if query else "")
        try:
            self._connection.putrequest(method, target)
            for name, value in (("Accept", "application/json"), ("User-Agent", "kubeqos"), *self._headers):
                self._connection.putheader(name, value)
            if body is not None:
                self._connection.putheader("Content-Type", content_type)
                self._connection.putheader("Content-Length", str(len(body)))
            self._connection.endheaders(body)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException, socket.gaierror) as error:
            self._connection.close()
            if isinstance(error, ConnectionRefusedError):
                what = f"The connection to the server {self._address.authority} was refused - {_RIGHT_HOST}"
            else:
                what = f"cannot reach the API server: {getattr(error, 'strerror', None) or error}"
            raise Unreachable(what, where=self.server, applied=False) from error


def _warning(header: str) -> str:
    """The text of a Warning header: `299 agent "text"`, quotes in it behind a backslash."""
    text = header.encode("latin-1", "replace").decode("utf-8", "replace").split(" ", 2)[-1]
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text.startswith('"') else text


class _Tls(http.client.HTTPSConnection):
    """To a server whose certificate may have another name than its address."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=_SECONDS, context=tls)
        self._tls, self._name = tls, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _connection(address: Address, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    proxy = address.proxy
    if proxy is not None and proxy.scheme != "http":
        remedy = "use an HTTP proxy, or a tunnel of your own"
        raise ConfigurationError("commands do not go through SOCKS proxies", where=proxy.geturl(), remedy=remedy)
    host, port = (proxy.hostname or "", proxy.port or PORTS["http"]) if proxy else (address.host, address.port)
    made = _Tls(host, port, tls, address.name) if tls else http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if proxy is not None:
        made.set_tunnel(address.host, address.port, {"Proxy-Authorization": basic(proxy)} if proxy.username else {})
    return made
