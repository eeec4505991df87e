"""Who is let in: ours beside what a real kube-apiserver answered, identity by verb by kind."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.auth.reviews import asked_attributes
from tests.apiserver.live import LiveServer, live_server
from tests.conformance.access import CALLERS, IDENTITIES, NAME, TEAM, Allowed, Cell, collected, questions, read
from tests.conformance.credentials import Caller, caller, expired, foreign, let_in, make_world
from tests.conformance.differences import ACCESS, access_differs


class Ours:
    """Our server with the same world in it."""

    def __init__(self, live: LiveServer, folder: Path) -> None:
        self.live, self.folder, self.pki = live, folder, live.server.pki
        self.address = f"{live.host}:{live.port}"

    def call(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        answer = self.live.call(method, path, body)
        return answer.code, answer.body

    def caller(self, who: str) -> Caller:
        return caller(who, self.address, self.pki, self.folder, self.call)

    def with_pair(self, pair: Any) -> Caller:
        return Caller(self.address, self.pki.ca_file, self.folder, pair)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    folder = tmp_path_factory.mktemp("access")
    with live_server(folder / "data") as live:
        made = Ours(live, folder)
        make_world(made.call)
        deadline = time.monotonic() + 30  # bindings take effect a moment after they are written
        while made.caller("view").request("GET", f"/api/v1/namespaces/{TEAM}/pods/{NAME}")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield made


def disagreements(recorded: Allowed, found: Allowed) -> Iterator[tuple[Cell, str, bool]]:
    """Cell and verb where one of the two lets in, and whether it is ours."""
    for cell in sorted({*recorded, *found}):
        for verb in sorted(recorded.get(cell, set()) ^ found.get(cell, set())):
            yield cell, verb, verb in found.get(cell, ())


def unexplained(recorded: Allowed, found: Allowed) -> list[str]:
    """Where they do not agree and nobody has said why."""
    return [
        f"{cell}: {verb} is {'allowed' if more else 'refused'} by ours alone"
        for cell, verb, more in disagreements(recorded, found)
        if access_differs(cell, verb, more=more) is None
    ]


def decided(ours: Ours) -> Allowed:
    decide = ours.live.server.access.authorizer.decide
    return collected((one, decide(IDENTITIES[one.who], asked_attributes(one.review)).allowed) for one in questions())


def test_every_identity_may_do_what_it_may_in_kubernetes(ours: Ours) -> None:
    assert unexplained(read("access"), decided(ours)) == []


def test_every_difference_that_is_listed_is_one(ours: Ours) -> None:
    met = {access_differs(cell, verb, more=more) for cell, verb, more in disagreements(read("access"), decided(ours))}
    assert met == {*ACCESS}


@pytest.mark.parametrize("who", CALLERS)
def test_every_request_lets_in_whom_kubernetes_lets_in(ours: Ours, who: str) -> None:
    recorded = {cell: verbs for cell, verbs in read("access_http").items() if cell[0] == who}
    assert unexplained(recorded, let_in(who, ours.caller(who))) == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("which", ["expired", "foreign"])
def test_a_certificate_that_is_over_or_of_another_authority_opens_nothing(ours: Ours, which: str, method: str) -> None:
    """A real server says 401; ours ends the handshake. Neither looks at what was asked."""
    pair = expired(ours.pki) if which == "expired" else foreign(ours.folder)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        ours.with_pair(pair).request(method, f"/api/v1/namespaces/{TEAM}/pods/{NAME}", b"{}")
