"""Our kinds on our own API server: it refuses what a real one refuses (`test_crds`), by the same schemas.

Rules in CEL are the exception, and it says so: it warns of each when the definition comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.stock.cluster import CLASSES, LIMIT_RANGES, QUOTAS, RESOURCES
from kubeqos.stock.definitions import definitions
from kubeqos.stock.examination import KINDS
from tests.apiserver.live import LiveServer, live_server
from tests.stock.refusals import BY_RULE, REFUSALS

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLACES = {resource.kind: resource for resource in (CLASSES, LIMIT_RANGES, QUOTAS, RESOURCES)}
Raw = dict[str, Any]


class Server:
    """A server with our kinds, and what it warned of when their definitions came."""

    def __init__(self, live: LiveServer) -> None:
        self.call = live.call
        self.warned: dict[str, list[str]] = {}
        for raw in definitions(KINDS):
            made = live.call("POST", DEFINITIONS, raw)
            assert made.code == 201, made.body
            self.warned[raw["spec"]["names"]["kind"]] = made.warnings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with live_server(tmp_path_factory.mktemp("crds") / "data") as live:
        yield Server(live)


@pytest.mark.parametrize(("raw", "what"), REFUSALS)
def test_what_makes_no_sense_is_refused(server: Server, raw: Raw, what: str) -> None:
    refused = server.call("POST", path_of(raw), raw)
    assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused.body
    assert what in refused.body["message"]
    assert server.call("GET", f"{path_of(raw)}/x").code == 404


@pytest.mark.parametrize(("before", "after", "what"), BY_RULE)
def test_rules_in_cel_are_left_out_and_that_is_said(server: Server, before: Raw, after: Raw, what: str) -> None:
    [definition] = [raw for raw in definitions(KINDS) if raw["spec"]["names"]["kind"] == before["kind"]]
    assert what in str(definition), "a real server has its words from there"
    assert any(
        "x-kubernetes-validations: CEL rules are not evaluated" in text for text in server.warned[before["kind"]]
    )
    stored = server.call("POST", path_of(before), before)
    assert stored.code == 201
    changed = {**after, "metadata": stored.body["metadata"]}
    assert server.call("PUT", f"{path_of(before)}/x", changed).code == 200


def test_nothing_else_of_our_kinds_is_left_out(server: Server) -> None:
    """Whoever gives a kind of ours a rule in CEL lists a case for it."""
    assert {kind for kind, warnings in server.warned.items() if warnings} == {
        before["kind"] for before, _, _ in BY_RULE
    }


def path_of(raw: Raw) -> str:
    resource = PLACES[raw["kind"]]
    scope = "/namespaces/default" if resource.namespaced else ""
    return f"/apis/{raw['apiVersion']}{scope}/{resource.plural}"
