"""Credentials of every identity of `access`, as a server is shown them, and the answers it gives to their bearers."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubeqos.web.authority import KeyPair
from kubeqos.web.identity import ANONYMOUS, AUTHENTICATED
from kubeqos.web.pki import Pki
from tests.conformance.access import IDENTITIES, TEAM, Allowed, Call, calls, collected, is_let_in, world

Admin = Callable[[str, str, Any], tuple[int, Any]]
"""A request by an administrator: method, path, body; code and decoded answer."""


class Caller:
    """Somebody with a certificate, a token or nothing, on one connection."""

    def __init__(
        self, address: str, authority: Path, folder: Path, pair: KeyPair | None = None, token: str = ""
    ) -> None:
        self.context = ssl.create_default_context(cafile=str(authority))
        self.context.check_hostname = False
        if pair is not None:
            path = folder / "caller.pem"
            path.touch(mode=0o600)
            path.write_bytes(pair.certificate + pair.key)
            self.context.load_cert_chain(path)
        self.headers = {"User-Agent": "tests"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.address = address
        self._connection: http.client.HTTPSConnection | None = None

    def code(self, call: Call) -> int:
        return self.request(call.method, call.path, call.body, call.content_type)[0]

    def request(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> tuple[int, bytes]:
        headers = self.headers | ({"Content-Type": content_type or "application/json"} if body is not None else {})
        for attempt in (1, 2):
            connection = self._connection or http.client.HTTPSConnection(self.address, context=self.context, timeout=30)
            self._connection = connection
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()  # after an answer that ended the connection
                self._connection = None
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def caller(who: str, address: str, pki: Pki, folder: Path, admin: Admin) -> Caller:
    """Accounts have tokens, everybody else a certificate, but who is anonymous."""
    identity = IDENTITIES[who]
    if identity == ANONYMOUS:
        return Caller(address, pki.ca_file, folder)
    if identity.user.startswith("system:serviceaccount:"):
        name = identity.user.rpartition(":")[2]
        code, answer = admin("POST", f"/api/v1/namespaces/{TEAM}/serviceaccounts/{name}/token", {"spec": {}})
        assert code == 201, answer
        return Caller(address, pki.ca_file, folder, token=answer["status"]["token"])
    groups = [group for group in identity.groups if group != AUTHENTICATED]
    return Caller(address, pki.ca_file, folder, pki.issue_client(identity.user, groups))


def make_world(admin: Admin) -> None:
    for path, body in world():
        code, answer = admin("POST", path, body)
        assert code in (200, 201), (path, answer)


def let_in(who: str, found: Caller) -> Allowed:
    """What a caller is let in for, over HTTP."""

    def answers() -> Iterator[tuple[Any, bool]]:
        for call in calls(who):
            yield call.question, is_let_in(found.code(call))

    return collected(answers())


def expired(pki: Pki) -> KeyPair:
    """A certificate of the cluster's authority that ended yesterday, of somebody who might do everything."""
    then = datetime.now(UTC) - timedelta(days=30)
    return Pki(pki.directory, then).issue_client("root", ["system:masters"], days=29)


def foreign(folder: Path) -> KeyPair:
    """A certificate that says the same, by an authority of the same name that nobody knows."""
    return Pki(folder / "foreign-pki").issue_client("root", ["system:masters"])


def readable(body: bytes) -> Any:
    return json.loads(body) if body[:1] in (b"{", b"[") else body.decode()
