"""What web.serving and web.tls reach for inside uvicorn is there; pyproject.toml admits only tested versions."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from kubeqos.web.serving import Protocol
from kubeqos.web.tls import PeerCertificateSocket

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
PINNED = {found.name: found for found in map(Requirement, PROJECT["dependencies"])}


@pytest.mark.parametrize("name", ["uvicorn", "httptools"])
def test_only_the_minor_version_that_was_tested_is_admitted(name: str) -> None:
    here = Version(version(name))
    assert PINNED[name].specifier.contains(here)
    assert not PINNED[name].specifier.contains(f"{here.major}.{here.minor + 1}")


def test_the_protocols_are_still_where_they_are_extended() -> None:
    assert issubclass(Protocol, HttpToolsProtocol) and issubclass(PeerCertificateSocket, WebSocketsSansIOProtocol)
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "name",
    [
        *("on_message_begin", "on_headers_complete", "on_message_complete", "on_response_complete", "_start_asgi_task"),
        *("handle_websocket_upgrade", "send_400_response", "pause_writing", "resume_writing", "shutdown"),
    ],
)
def test_a_method_that_is_replaced_or_called_exists(name: str) -> None:
    assert callable(getattr(HttpToolsProtocol, name))


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (HttpToolsProtocol, ["cycle", "flow", "loop", "pipeline", "scope", "server_state", "transport"]),
        (
            RequestResponseCycle,
            [
                *("chunked_encoding", "disconnected", "flow", "keep_alive", "message_event", "on_response"),
                *("response_complete", "response_started", "scope", "transport"),
            ],
        ),
    ],
)
def test_a_field_that_is_read_or_set_exists(owner: type, names: list[str]) -> None:
    made = inspect.getsource(owner.__init__)
    assert [name for name in names if f"self.{name}" not in made] == []
