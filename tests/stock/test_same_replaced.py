"""PUT of every kind that is stored: where no version is named, and where nothing is there yet, both answer the same.

Whether a kind may be replaced blindly (`AllowUnconditionalUpdate`), or made by a PUT (`AllowCreateOnUpdate`), each kind
of Kubernetes says for itself, and our table of kinds for all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.apiserver.registry.kinds import KINDS, Kind
from tests.apiserver.examples import NAMES, collection, example
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Reply, Stock, both_servers

pytestmark = needs_stock("kube-apiserver", "etcd")

OURS_ALONE = "resource.k8s.io/v1alpha1"
"""The claims of the proposal, which no Kubernetes of today has."""
REPLACED = [kind for kind in KINDS if kind.stored and "update" in kind.verbs and kind.api_version != OURS_ALONE]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


def told(reply: Reply) -> Any:
    """All of a refusal, its text too; of a success that it is one."""
    code, body = reply
    return (code, body) if code >= 400 else code


@pytest.mark.parametrize("kind", REPLACED, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_both_want_the_same_version_named(servers: tuple[Stock, Ours], kind: Kind) -> None:
    path, name = collection(kind), NAMES.get(kind.kind, f"replaced-{kind.group[:6]}-{kind.version}".replace("--", "-"))
    answers = []
    for server in servers:
        made = server.call("POST", path, example(kind, name))
        assert made[0] == 201, made
        held = server.call("GET", f"{path}/{name}")[1]
        blind = {**held, "metadata": {k: v for k, v in held["metadata"].items() if k != "resourceVersion"}}
        answers.append([told(server.call("PUT", f"{path}/{name}?dryRun=All", blind))])
        if "status" in kind.verb_of_subresource:
            answers[-1].append(told(server.call("PUT", f"{path}/{name}/status?dryRun=All", blind)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", REPLACED, ids=lambda kind: f"{kind.plural}.{kind.version}.{kind.group}")
def test_both_make_the_same_kinds_by_a_put(servers: tuple[Stock, Ours], kind: Kind) -> None:
    path, name = collection(kind), {"IPAddress": "192.0.2.9"}.get(kind.kind, "absent")
    absent = example(kind)
    absent["metadata"] = {"name": name}
    theirs, ours = (told(server.call("PUT", f"{path}/{name}?dryRun=All", absent)) for server in servers)
    assert theirs == ours


DEFINED = {
    "metadata": {"name": "blinds.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "blinds", "kind": "Blind"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_both_want_it_of_kinds_that_a_definition_added(servers: tuple[Stock, Ours]) -> None:
    answers = []
    for server in servers:
        server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINED)
        path, one = "/apis/example.com/v1/namespaces/default/blinds", {"metadata": {"name": "one"}}
        body = {"apiVersion": "example.com/v1", "kind": "Blind", **one}
        served_soon(server, path)
        assert server.call("POST", path, body)[0] == 201
        places = (f"{path}/one", f"{path}/one/status", f"{path}/absent")
        answers.append([told(server.call("PUT", place, _named(body, place))) for place in places])
    assert answers[0] == answers[1]
    assert [code for code, _ in answers[0]] == [422, 422, 404]


def _named(body: dict[str, Any], place: str) -> dict[str, Any]:
    return {**body, "metadata": {"name": "absent" if place.endswith("absent") else "one"}}


def served_soon(server: Stock | Ours, path: str) -> None:
    """A real server serves a definition's kind a moment after it has taken the definition."""
    deadline = time.monotonic() + 60
    while not _served(server, path) and time.monotonic() < deadline:
        time.sleep(0.2)


def _served(server: Stock | Ours, path: str) -> bool:
    listed = "/apis/example.com/v1"
    try:
        return server.call("GET", listed)[0] == server.call("GET", path)[0] == 200
    except json.JSONDecodeError:  # a page that was not found is plain text
        return False
