"""Replay recorded protocol facts: each id is a small script of requests and watches in a namespace of its own."""

from __future__ import annotations

import itertools
import re
import threading
import time
from typing import Any

import pytest

from kubeqos.codec import decode_json, encode_json
from tests.apiserver.live import ADMIN_TOKEN, LiveServer
from tests.conformance.differences import NOT_SERVED, different_on_purpose
from tests.conformance.recorded import cases

CASES = {case["id"]: case for case in cases("http")}
NUMBERS = itertools.count(1)
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
AGE = re.compile(r"^(\d+[smhdy])+$|^<unknown>$")
# Wide-only columns that kubeqos adds on purpose (issue: classes and scopes).
EXTRA_COLUMNS = {"QoS", "Classes", "Scopes"}


class Script:
    """One recorded script against the live server."""

    def __init__(self, live: LiveServer, case: dict[str, Any]) -> None:
        self.live = live
        self.case = case
        self.values = {"ns": f"c{next(NUMBERS)}"}

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, found in self.values.items():
                value = value.replace("{" + name + "}", found)
            return value
        if isinstance(value, dict):
            return {self.fill(k): self.fill(v) for k, v in value.items()}
        return [self.fill(v) for v in value] if isinstance(value, list) else value

    def run(self) -> None:
        created = self.live.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.values["ns"]}})
        assert created.code == 201, created.body
        for index, step in enumerate(self.case["steps"]):
            reason = "recorded as unstable" if step.get("unstable") else different_on_purpose("http", step)
            if "request" in step:
                problem = self.request(step)
            elif "watch" in step:
                problem = self.watch(step)
            else:
                self.outside(step["outside"])
                continue
            if reason is None:
                assert problem is None, f"step {index}: {step.get('request') or step.get('watch')}\n{problem}"
            elif reason != "recorded as unstable":
                assert problem is not None, f"step {index} is listed as different ({reason}) but agrees"

    def outside(self, what: str) -> None:
        store = self.live.server.store

        async def compact() -> None:
            store.compact(store.revision)

        self.live.run(compact())

    def request(self, step: dict[str, Any]) -> str | None:
        request = self.fill(step["request"])
        answer = self.live.call(request["method"], request["path"], request.get("body"), request.get("headers"))
        for name, path in (step.get("capture") or {}).items():
            found = answer.body
            for part in path.split("."):
                found = found[part]
            self.values[name] = str(found)
        return self.compare(answer, step["response"])

    def compare(self, answer: Any, want: dict[str, Any]) -> str | None:
        got: dict[str, Any] = {"code": answer.code, "contentType": answer.content_type}
        body = answer.body
        if "body" in want:
            got["body"] = self.normal(body, want["body"])
        if "names" in want:
            got["names"] = [item["metadata"]["name"] for item in body.get("items") or []]
            got["listMetadata"] = self.normal(body["metadata"], want["listMetadata"])
        if "retry-after" in want:
            got["retry-after"] = answer.headers.get("retry-after")
        if "warnings" in want:
            got["warnings"] = answer.warnings
        if "nameShape" in want:
            want = {**want, "nameShape": None}
            got["nameShape"] = None
        wanted = self.fill(want)
        if (
            wanted.get("body", {})
            and isinstance(wanted["body"], dict)
            and wanted["body"].get("kind") == "APIResourceList"
        ):
            served = [r for r in wanted["body"]["resources"] if r["name"] not in NOT_SERVED]
            wanted = {**wanted, "body": {**wanted["body"], "resources": served}}
        return None if got == wanted else difference(got, wanted)

    def normal(self, got: Any, want: Any, key: str = "") -> Any:
        """Rewrite what differs from run to run as the recording did."""
        if isinstance(want, str) and isinstance(got, str):
            return self.normal_text(got, want, key)
        if isinstance(want, dict) and isinstance(got, dict):
            if want.get("kind") == "Table":
                got = without_extra_columns(got)
            got = {k: v for k, v in got.items() if k != "managedFields"}
            if "columnDefinitions" in got or "priority" in got:
                got.pop("description", None)
            return {k: self.normal(v, want.get(k), k) for k, v in got.items()}
        if isinstance(want, list) and isinstance(got, list):
            padded = [*want, *([None] * len(got))]
            return [self.normal(v, w, key) for v, w in zip(got, padded, strict=False)]
        return got

    def normal_text(self, got: str, want: str, key: str) -> str:
        if want == "<age>" and (AGE.match(got) or TIME.fullmatch(got)):
            return want
        if want == "<continue>" or want == "<address>":
            return want if got else got
        if want == "<rv>" and got.isdigit():
            return want
        if "\n@@" in want:  # the rest is a textual diff of Go structs
            return want if got.partition("\n")[0] == self.fill(want).partition("\n")[0] else got
        if "<uid>" in want:
            got = UID.sub("<uid>", got)
        if "<time>" in want:
            got = TIME.sub("<time>", got)
        if "<age>" in want:
            got = re.sub(r"\((\d+[smhdy])+ ago\)", "(<age> ago)", got)
        if "<rv>" in want:
            pattern = re.escape(self.fill(want)).replace(re.escape("<rv>"), r"\d+")
            return self.fill(want) if re.fullmatch(pattern, got) else got
        return got

    def watch(self, step: dict[str, Any]) -> str | None:
        watch = self.fill(step["watch"])
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", **(watch.get("headers") or {})}
        connection = self.live.connect()
        connection.request("GET", watch["path"], headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            got = {"code": response.status, "events": self.normal(decode_json(response.read()), step["events"])}
            want = {"code": step["code"], "events": self.fill(step["events"])}
            return None if got == want else difference(got, want)
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(response.read().splitlines()), daemon=True)
        reader.start()
        time.sleep(0.05)
        for method, path, body, content_type in watch.get("during") or ():
            sent = {"Content-Type": content_type} if content_type else None
            answer = self.live.call(method, path, body, sent)
            assert answer.code < 300, (method, path, answer.body)
        reader.join(60)
        connection.close()
        events = [self.event(decode_json(line), watch) for line in lines if line]
        return self.compare_events(events, self.fill(step["events"]), step["code"])

    def event(self, event: dict[str, Any], watch: dict[str, Any]) -> list[Any]:
        obj = event["object"]
        if event["type"] == "BOOKMARK":
            metadata = obj["metadata"]
            keys = sorted(obj), sorted(metadata)
            return ["BOOKMARK", obj["kind"], *keys, metadata.get("annotations")]
        if event["type"] == "ERROR" or obj["kind"] == "Table":
            return [event["type"], obj]
        return [event["type"], obj["metadata"]["name"]]

    def compare_events(self, events: list[Any], want: list[Any], code: int) -> str | None:
        got = [self.normal(event, wanted) for event, wanted in itertools.zip_longest(events, want) if event is not None]
        plain = ["BOOKMARK", ["resourceVersion"]]

        def folded(found: list[Any]) -> list[Any]:
            """Periodic bookmarks depend on timing: they may come or not."""
            return [e for e in found if not (e[0] == plain[0] and e[3] == plain[1])]

        return None if (200, folded(got)) == (code, folded(want)) else difference(got, want)


def without_extra_columns(table: dict[str, Any]) -> dict[str, Any]:
    columns = table.get("columnDefinitions")
    if columns is None:
        kept = None
    else:
        kept = [i for i, column in enumerate(columns) if column["name"] not in EXTRA_COLUMNS]
        columns = [{k: v for k, v in columns[i].items() if k != "description"} for i in kept]
    rows = table.get("rows") or []
    width = len(kept) if kept is not None else None
    trimmed = []
    for row in rows:
        cells = [row["cells"][i] for i in kept] if kept is not None else row["cells"][: width or 9]
        trimmed.append({**row, "cells": cells})
    return {**table, "columnDefinitions": columns, "rows": trimmed if table.get("rows") is not None else None}


def difference(got: Any, want: Any) -> str:
    return f"got  {encode_json(got).decode()}\nwant {encode_json(want).decode()}"


@pytest.mark.parametrize("name", CASES)
def test_recorded_protocol(live: LiveServer, name: str) -> None:
    Script(live, CASES[name]).run()
