"""How a client asks for a delete: by the old and the new names of options, and what it hears about wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.codec import JsonObject
from tests.apiserver.live import LiveServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def held(live: LiveServer, name: str) -> str:
    """An object that a finalizer keeps from going; its path."""
    live.call("POST", CONFIG_MAPS, {"metadata": {"name": name, "finalizers": ["example.com/hold"]}})
    return f"{CONFIG_MAPS}/{name}"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (None, 200),
        ({"propagationPolicy": "Background"}, 200),
        ({"orphanDependents": False}, 202),
        ({"orphanDependents": True}, 200),
    ],
)
def test_a_cascade_by_its_old_name_is_accepted_while_it_has_only_begun(
    live: LiveServer, options: JsonObject | None, code: int
) -> None:
    path = held(live, f"held-{code}-{len(str(options))}")
    assert live.call("DELETE", path, options).code == code
    assert live.call("DELETE", path, options).code == code


def test_a_cascade_that_is_over_at_once_is_done(live: LiveServer) -> None:
    live.call("POST", CONFIG_MAPS, {"metadata": {"name": "free"}})
    assert live.call("DELETE", f"{CONFIG_MAPS}/free", {"orphanDependents": False}).code == 200


@pytest.mark.parametrize(
    ("query", "options"),
    [("", {"propagationPolicy": "Bogus", "dryRun": ["x"]}), ("?propagationPolicy=Bogus&dryRun=x", None)],
)
def test_everything_that_is_wrong_is_said(live: LiveServer, query: str, options: Any) -> None:
    path = held(live, "wrong")
    answer = live.call("DELETE", path + query, options)
    assert answer.code == 422
    assert [one["field"] for one in answer.body["details"]["causes"]] == ["propagationPolicy", "dryRun"]


def test_options_of_another_kind(live: LiveServer) -> None:
    answer = live.call("DELETE", held(live, "kind"), {"kind": "Pod"})
    assert answer.code == 400
    assert answer.body["message"].startswith('no kind "Pod" is registered for version "meta.k8s.io/v1" in scheme')
