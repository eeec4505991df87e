"""APIServices: what the server serves itself is listed as Local, and follows definitions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.apiserver.live import LiveServer, live_server
from tests.apiserver.registry.test_definitions import DEFINITIONS, TABLE, definition

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def rows(live: LiveServer) -> dict[str, tuple[str, str]]:
    table = live.call("GET", SERVICES, headers=TABLE).body
    return {row["cells"][0]: tuple(row["cells"][1:3]) for row in table["rows"]}


def test_every_group_version_is_local_and_there(tmp_path: Path) -> None:
    with live_server(tmp_path / "data") as live:
        groups = live.call("GET", "/apis").body["groups"]
        versions = {f"{one['version']}.{group['name']}" for group in groups for one in group["versions"]}
        assert rows(live) == dict.fromkeys({"v1.", *versions} - {"v1.apiregistration.k8s.io"}, ("Local", "True"))


def test_those_of_definitions_come_and_go(tmp_path: Path) -> None:
    def eventually(there: bool) -> None:
        deadline = time.monotonic() + 30
        while ("v1.shop.example.com" in rows(live)) is not there:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    with live_server(tmp_path / "data") as live:
        assert live.call("POST", DEFINITIONS, definition("widgets", "Widget")).code == 201
        eventually(there=True)
        assert rows(live)["v1.shop.example.com"] == ("Local", "True")
        assert live.call("DELETE", f"{DEFINITIONS}/widgets.shop.example.com").code == 200
        eventually(there=False)


def test_what_somebody_changed_is_put_right_at_the_next_start_unless_it_is_his_own(tmp_path: Path) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    changed: dict[str, Any] = {"spec": {"versionPriority": 7}}
    own = {"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": None}}, **changed}
    with live_server(tmp_path / "data") as live:
        assert live.call("PATCH", f"{SERVICES}/v1.apps", changed, merge).code == 200
        assert live.call("PATCH", f"{SERVICES}/v1.batch", own, merge).code == 200
        assert live.call("DELETE", f"{SERVICES}/v1.policy").code == 200
    with live_server(tmp_path / "data") as live:
        found = {one["metadata"]["name"]: one["spec"] for one in live.call("GET", SERVICES).body["items"]}
        assert [found[f"v1.{group}"]["versionPriority"] for group in ("apps", "batch", "policy")] == [15, 7, 15]


def test_who_names_another_server_is_told_that_nobody_asks_it(tmp_path: Path) -> None:
    spec = {"group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}
    far = {"metadata": {"name": "v1.far.example.com"}, "spec": {**spec, "service": {"namespace": "a", "name": "b"}}}
    with live_server(tmp_path / "data") as live:
        made = live.call("POST", SERVICES, far)
        assert (made.code, made.body["spec"]["service"]["port"], made.body["status"]) == (201, 443, {})
        assert [one for one in made.warnings if "other API servers are not asked here" in one]
        assert rows(live)["v1.far.example.com"] == ("a/b", "Unknown")
        assert live.call("GET", "/apis/far.example.com/v1").code == 404
