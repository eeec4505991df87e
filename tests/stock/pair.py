"""A real kube-apiserver and ours, asked the same things; what is theirs alone (uids, versions, times) is left out."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from tests.apiserver.live import LiveServer, live_server
from tests.stock.kube_apiserver import TOKEN, kube_apiserver

Reply = tuple[int, Any]
Raw = tuple[int, str, bytes]
"""An answer as it came: its code, its media type and its bytes."""

_OWN = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)"), "<time>"),
    (re.compile(r'("resourceVersion":\s*)"\d+"'), r'\1"<version>"'),
    (re.compile(r"(ResourceVersion in object meta: )\d+"), r"\1<version>"),
    (re.compile(r'"10\.0\.0\.\d+"'), '"<address>"'),
    (re.compile(r'(odePort": )\d+'), r'\1"<port>"'),
)


class Stock:
    """The real server, as far as it is needed here."""

    def __init__(self, kubeconfig: Path) -> None:
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        insecure = ssl.create_default_context()
        insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
        self.connection = http.client.HTTPSConnection(server.removeprefix("https://"), context=insecure, timeout=30)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Reply:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type, "User-Agent": "tests"}
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        self.connection.request(method, path, text, headers)
        try:
            response = self.connection.getresponse()
        except http.client.RemoteDisconnected as error:  # it panicked, as over some changes of a service's type
            self.connection.close()
            return 500, {"kind": "Status", "message": str(error)}
        return response.status, json.loads(response.read())

    def raw(self, method: str, path: str, accept: str, body: Any = None) -> Raw:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Accept": accept}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        return response.status, response.headers.get("content-type", ""), response.read()


class Ours:
    """Our server, asked in the same words."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Reply:
        answer = self.live.call(method, path, body, {"Content-Type": content_type})
        return answer.code, answer.body

    def raw(self, method: str, path: str, accept: str, body: Any = None) -> Raw:
        answer = self.live.call(method, path, body, {"Content-Type": "application/json", "Accept": accept})
        return answer.code, answer.content_type or "", answer.raw


@contextmanager
def both_servers(stock_folder: Path, our_folder: Path) -> Iterator[tuple[Stock, Ours]]:
    # The range that a kube-apiserver takes when it is told none.
    addresses = IPv4Network("10.0.0.0/24")
    with (
        kube_apiserver(stock_folder) as kubeconfig,
        live_server(our_folder / "data", service_range=addresses) as live,
    ):
        yield Stock(kubeconfig), Ours(live)


def comparable(reply: Reply) -> Reply:
    """An answer without what only its server could have said: of a refusal its reason and causes, not its wording."""
    code, body = reply
    text = json.dumps(body, sort_keys=True)
    for pattern, instead in _OWN:
        text = pattern.sub(instead, text)
    said = json.loads(text)
    if said.get("kind") == "Status" and code >= 400:
        return code, {"reason": said.get("reason"), "causes": sorted(map(list, causes(said)))}
    for obj in (said, *said.get("items", ())):
        if said.get("kind") in ("ResourceQuota", "ResourceQuotaList"):
            obj.pop("status", None)  # what is used is counted by a controller there, and by the server itself here
        # Entries stand in the order of their times, and a second may end at one server before the other has answered.
        (obj.get("metadata") or {}).get("managedFields", []).sort(key=_of_whom)
    return code, said


def _of_whom(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get(key, "") for key in ("operation", "manager", "subresource", "apiVersion"))


def causes(body: Any) -> set[tuple[str, str]]:
    """Why a request was refused: the kind of each mistake and its field."""
    return {(one.get("reason", ""), one.get("field", "")) for one in (body.get("details") or {}).get("causes") or ()}


def differences(theirs: Any, ours: Any, at: str = "") -> Iterator[str]:
    """What two values do not agree on, by path."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            yield from differences(theirs.get(key), ours.get(key), f"{at}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{at}[{number}]")
    elif theirs != ours:
        yield f"{at or 'all'}: theirs {json.dumps(theirs)}, ours {json.dumps(ours)}"
