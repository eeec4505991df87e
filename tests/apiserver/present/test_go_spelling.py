"""Letters that Go escapes in JSON: the same to every reader, and spelled as Go does where readers compare bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.live import LiveServer

TEXT = "a && b <c>\u2028\u2029"
ESCAPED = rb"a \u0026\u0026 b \u003cc\u003e\u2028\u2029"


def raw(live: LiveServer, method: str, path: str, body: Any = None) -> bytes:
    """An answer as it is written."""
    return live.call(method, path, body).raw


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
def test_data_that_is_compared_is_spelled_as_go_does(live: LiveServer, query: str) -> None:
    """A StatefulSet's controller finds its revision by the bytes of `data`."""
    where = "/apis/apps/v1/namespaces/default/controllerrevisions"
    body = {"metadata": {"name": "one"}, "revision": 1, "data": {"command": TEXT}}
    written = raw(live, "POST", where + query, body)
    assert ESCAPED in written
    assert json.loads(written)["data"] == {"command": TEXT}
    if not query:
        assert ESCAPED in raw(live, "GET", f"{where}/one")
        assert ESCAPED in raw(live, "GET", where)
        assert raw(live, "DELETE", f"{where}/one")


def test_everything_else_means_the_same(live: LiveServer) -> None:
    """What is stored is served as it is, whichever way a client spelled it."""
    where = "/api/v1/namespaces/default/configmaps"
    for name, spelled in (("plain", TEXT.encode()), ("go", ESCAPED)):
        body = b'{"metadata":{"name":"%b"},"data":{"a":"%b"}}' % (name.encode(), spelled)
        assert live.call("POST", where, body).code == 201
        assert json.loads(raw(live, "GET", f"{where}/{name}"))["data"] == {"a": TEXT}
