"""A small synchronous reader for the command line: one kubeconfig, one connection, plain JSON.

The full client takes a quarter of a second to import; a command that prints a table should have printed it by
then. It reads certificates and tokens; credentials that need a helper program go through the full client.
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.kubeconfig import REMEDY, files, merged
from kubeqos.codec import JsonObject, decode_json
from kubeqos.errors import ConfigurationError

_SECONDS = 30.0
_RIGHT_HOST = "did you specify the right host or port?"


class LightApi:
    """Reads from one API server."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, token: str, namespace: str) -> None:
        parts = urlsplit(server)
        self.server = server
        self.namespace = namespace
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": "kubeqos"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_SECONDS, context=tls
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)

    @classmethod
    def from_kubeconfig(
        cls, path: Path | None = None, context: str | None = None, env: Mapping[str, str] = os.environ
    ) -> LightApi:
        """As the kubeconfig says."""
        whole = merged(files(path, env))
        where = str(path or env.get("KUBECONFIG") or "~/.kube/config")
        name = context or whole.get("current-context") or ""
        chosen = _entry(whole, "contexts", name, "context", where)
        cluster = _entry(whole, "clusters", chosen.get("cluster", ""), "cluster", where)
        user = _entry(whole, "users", chosen.get("user", ""), "user", where) if chosen.get("user") else {}
        if "exec" in user or "auth-provider" in user:
            raise NeedsHelper(f"context {name!r} gets its credentials from a helper program")
        try:
            tls = _tls(cluster, user)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"kubeconfig: the certificates cannot be used: {error}", where=f"{where}: context {name}", remedy=REMEDY
            ) from error
        token = user.get("token") or ""
        if not token and user.get("tokenFile"):
            token = Path(user["tokenFile"]).read_text().strip()
        return cls(cluster.get("server", ""), tls, token, chosen.get("namespace") or "default")

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

    def _send(self, method: str, path: str, query: Mapping[str, str]) -> http.client.HTTPResponse:
        target = self._base + quote(path, safe="/:") + (f"?{urlencode(query)}" if query else "")
        try:
            self._connection.request(method, target, headers=self._headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException, socket.gaierror) as error:
            self._connection.close()
            if isinstance(error, ConnectionRefusedError):
                what = f"The connection to the server {urlsplit(self.server).netloc} was refused - {_RIGHT_HOST}"
            else:
                what = f"cannot reach the API server: {getattr(error, 'strerror', None) or error}"
            raise Unreachable(what, where=self.server, applied=False) from error


class NeedsHelper(ConfigurationError):
    """The kubeconfig asks for an external program, which only the full client runs."""


def _entry(whole: JsonObject, section: str, name: str, kind: str, where: str) -> JsonObject:
    for entry in whole.get(section) or ():
        if entry.get("name") == name:
            return cast(JsonObject, entry.get(kind) or {})
    if not name:
        raise ConfigurationError("kubeconfig: no current context", where=where, remedy=REMEDY)
    known = ", ".join(str(entry.get("name")) for entry in whole.get(section) or ())
    raise ConfigurationError(
        f"{kind} was not found for specified {kind}: {name}",
        where=where,
        remedy=f"the kubeconfig has: {known or 'none'}",
    )


def _tls(cluster: JsonObject, user: JsonObject) -> ssl.SSLContext | None:
    if not str(cluster.get("server", "")).startswith("https"):
        return None
    authority = cluster.get("certificate-authority-data")
    if authority:
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    else:
        context = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate-data"):
        _load_pair(context, user["client-certificate-data"], user.get("client-key-data", ""))
    elif user.get("client-certificate"):
        context.load_cert_chain(user["client-certificate"], user.get("client-key"))
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """The library reads a client certificate from a file only; this one exists for a moment, for nobody else."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(certificate) + b"\n" + base64.b64decode(key))
        file.flush()
        context.load_cert_chain(file.name)
