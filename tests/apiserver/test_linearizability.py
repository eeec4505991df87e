"""Histories recorded through HTTP under kill -9: one store that did everything one after the other explains them.

Clients create, update with and without preconditions, delete and read a few objects, others list and watch with
bookmarks, and the server dies in the middle. KUBEQOS_CRASHES says how often (by hand, a thousand).
"""

from __future__ import annotations

import http.client
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.codec import decode_json
from tests.apiserver.linearizability import NEVER, Operation, Seen, explains, unexplained, wrong_list, wrong_watch
from tests.apiserver.test_crash import TOKEN, Server, call
from tests.shared.victims import kills
from tools import reliability

KILLS = kills(local=10)
KILLS_PER_DIRECTORY = 50
CLIENTS, KEYS = 5, 3
MAPS = "/api/v1/namespaces/default/configmaps"
_values = itertools.count(1)


class Client(threading.Thread):
    """Asks for one thing after the other, until the connection is gone."""

    def __init__(self, number: int, server: Server, keys: list[str], seed: str) -> None:
        super().__init__(daemon=True)
        self.number, self.server, self.keys = number, server, keys
        self.chance = random.Random(seed)
        self.history: list[Operation] = []
        self.known: dict[str, int] = {}
        self.lists: list[tuple[list[tuple[str, str, int]], int]] = []

    def run(self) -> None:
        try:
            connection = self.server.connect()
            while True:
                if self.chance.random() < 0.1:
                    self._list(connection)
                else:
                    self.ask(connection, self.chance.choice(self.keys), self._kind())
        except (OSError, http.client.HTTPException):
            return  # the server is gone: what was asked last has no answer

    def _kind(self) -> str:
        return self.chance.choice(["create", "create", "update", "update", "update", "delete", "read"])

    def ask(self, connection: http.client.HTTPSConnection, key: str, kind: str) -> None:
        expects = self.known.get(key, 0) if kind == "update" and self.chance.random() < 0.7 else 0
        value = str(next(_values)) if kind in ("create", "update") else ""
        asked = Operation(self.number, key, kind, time.monotonic(), value=value, expects=expects)
        self.history.append(asked)
        status, said = _carry_out(connection, asked)
        self.history[-1] = answered = _answered(asked, status, said)
        if answered.revision:
            self.known[key] = answered.revision

    def _list(self, connection: http.client.HTTPSConnection) -> None:
        _, said = call(connection, "GET", MAPS)
        found = [_entry(one) for one in said["items"]]
        self.lists.append((found, int(said["metadata"]["resourceVersion"])))


def _carry_out(connection: http.client.HTTPSConnection, op: Operation) -> tuple[int, Any]:
    body = {"metadata": {"name": op.key}, "data": {"value": op.value}}
    if op.expects:
        body["metadata"]["resourceVersion"] = str(op.expects)
    match op.kind:
        case "create":
            return call(connection, "POST", MAPS, body)
        case "update":
            return call(connection, "PUT", f"{MAPS}/{op.key}", body)
        case "delete":
            return call(connection, "DELETE", f"{MAPS}/{op.key}")
    return call(connection, "GET", f"{MAPS}/{op.key}")


def _answered(op: Operation, status: int, said: Any) -> Operation:
    _, value, revision = _entry(said) if said.get("kind") == "ConfigMap" else ("", "", 0)
    read = {"value": value} if op.kind == "read" else {}
    return replace(op, answered=time.monotonic(), told=status, revision=revision, **read)


def _entry(raw: Any) -> tuple[str, str, int]:
    metadata = raw["metadata"]
    value = (raw.get("data") or {}).get("value", "")
    return metadata.get("name", ""), value, int(metadata.get("resourceVersion") or 0)


class Watcher(threading.Thread):
    """Follows all objects, with bookmarks, until the connection is gone."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.events: list[Seen] = []
        connection = server.connect()
        _, said = call(connection, "GET", MAPS)
        self.since = int(said["metadata"]["resourceVersion"])
        connection.close()

    def run(self) -> None:
        try:
            connection = self.server.connect()
            query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion={self.since}"
            connection.request("GET", MAPS + query, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            while line := response.readline():
                if line.endswith(b"\n"):
                    event = decode_json(line)
                    name, value, revision = _entry(event["object"])
                    self.events.append(Seen(event["type"], name, value, revision))
        except (OSError, http.client.HTTPException, ValueError):
            return


def one_life(server: Server, chance: random.Random, life: int) -> tuple[list[Client], Watcher]:
    """Work, and a kill in the middle of it."""
    keys = [f"k{life}-{number}" for number in range(KEYS)]
    watcher = Watcher(server)
    clients = [Client(number, server, keys, f"{chance.random()}") for number in range(CLIENTS)]
    for thread in (watcher, *clients):
        thread.start()
    enough, end = chance.randint(5, 80), time.monotonic() + 20
    while sum(len(client.history) for client in clients) < enough and time.monotonic() < end:
        time.sleep(0.002)
    server.kill()
    for thread in (watcher, *clients):
        thread.join(60)
    return clients, watcher


def last_look(server: Server, keys: set[str]) -> list[Operation]:
    """What the next server says of every key."""
    reader = Client(-1, server, sorted(keys), "last")
    connection = server.connect()
    for key in sorted(keys):
        reader.ask(connection, key, "read")
    connection.close()
    return reader.history


def judge(clients: list[Client], watcher: Watcher, after: list[Operation]) -> tuple[list[Operation], list[str]]:
    history = [op for client in clients for op in client.history] + after
    wrong = [f"no order explains {_told(key, history)}" for key in unexplained(history)]
    wrong += [problem] if (problem := wrong_watch(watcher.events, watcher.since, history)) else []
    for client in clients:
        wrong += [problem for listed, at in client.lists if (problem := wrong_list(listed, at, history))]
    return history, wrong


def _told(key: str, history: list[Operation]) -> str:
    return "\n".join(str(op) for op in sorted(history, key=lambda one: one.called) if op.key == key)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("total", [pytest.param(KILLS, id=f"{KILLS} kills")])
def test_histories_under_kill_9_are_linearizable(tmp_path: Path, total: int) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    told = {"kills": total, "requests": 0, "requests without an answer": 0, "watch events": 0, "lists": 0}
    for start in range(0, total, KILLS_PER_DIRECTORY):
        folder = tmp_path / f"directory-{start}"
        folder.mkdir()
        server = Server(folder)
        for life in range(start, min(start + KILLS_PER_DIRECTORY, total)):
            clients, watcher = one_life(server, chance, life)
            server = Server(folder)
            history, wrong = judge(clients, watcher, last_look(server, {key for one in clients for key in one.keys}))
            assert not wrong, f"seed {seed}, life {life}: " + "\n".join(wrong)
            told["requests"] += len(history)
            told["requests without an answer"] += sum(op.answered == NEVER for op in history)
            told["watch events"] += len(watcher.events)
            told["lists"] += sum(len(client.lists) for client in clients)
        server.kill()
    print(told)
    assert told["requests"] > total
    if reliability.asked_for():
        reliability.record("linearizability under kill -9", told, 0)


# ---- The checker itself


def op(kind: str, told: int, called: float, answered: float = NEVER, **more: Any) -> Operation:
    return Operation(0, "k", kind, called, answered, told, **more)


MADE = op("create", 201, 0, 1, value="a", revision=5)


@pytest.mark.parametrize(
    ("why", "history", "fine"),
    [
        ("read your write", [MADE, op("read", 200, 2, 3, value="a", revision=5)], True),
        ("a lost write", [MADE, op("read", 404, 2, 3)], False),
        ("a stale read", [MADE, op("update", 200, 2, 3, value="b", revision=6),
                          op("read", 200, 4, 5, value="a", revision=5)], False),
        ("a read beside the write", [MADE, op("update", 200, 2, 9, value="b", revision=6),
                                     op("read", 200, 4, 5, value="a", revision=5)], True),
        ("an unanswered write may be done", [op("create", 0, 0, value="a"),
                                             op("read", 200, 2, 3, value="a", revision=9)], True),
        ("an unanswered write may be lost", [op("create", 0, 0, value="a"), op("read", 404, 2, 3)], True),
        ("it is not taken back", [op("create", 0, 0, value="a"), op("read", 200, 2, 3, value="a", revision=9),
                                  op("read", 404, 4, 5)], False),
        ("created twice", [MADE, op("create", 201, 2, 3, value="b", revision=6)], False),
        ("a precondition that did not hold", [MADE, op("update", 200, 2, 3, value="b", revision=6),
                                              op("update", 200, 4, 5, value="c", revision=7, expects=5)], False),
        ("a conflict without a reason", [MADE, op("update", 409, 2, 3, value="b", expects=5)], False),
        ("a revision that goes back", [MADE, op("update", 200, 2, 3, value="b", revision=4)], False),
        ("a deletion comes back", [MADE, op("delete", 200, 2, 3), op("read", 200, 4, 5, value="a", revision=5)], False),
    ],
)  # fmt: skip
def test_the_checker_knows_what_cannot_be(why: str, history: list[Operation], fine: bool) -> None:
    assert explains(history) is fine, why


def test_the_checker_knows_wrong_watches_and_lists() -> None:
    events = [Seen("ADDED", "k", "a", 5), Seen("BOOKMARK", revision=8)]
    assert wrong_watch(events, 0, [MADE]) == ""
    assert "not shown" in wrong_watch(events, 0, [MADE, op("update", 200, 2, 3, value="b", revision=7)])
    assert "was shown as" in wrong_watch([Seen("ADDED", "k", "z", 5)], 0, [MADE])
    assert "comes after" in wrong_watch([*reversed(events)], 0, [MADE])
    assert wrong_list([("k", "a", 5)], 6, [MADE]) == ""
    assert "holds k at 9" in wrong_list([("k", "a", 9)], 6, [])
    assert "was acknowledged" in wrong_list([("k", "a", 3)], 6, [MADE])


@given(st.lists(st.tuples(st.sampled_from(["create", "update", "delete", "read"]), st.booleans()), max_size=8))
def test_a_history_of_a_real_store_is_explained(steps: list[tuple[str, bool]]) -> None:
    """One after the other, some of them without an answer, done or not."""
    state: tuple[str, int] | None = None
    history: list[Operation] = []
    for number, (kind, answers) in enumerate(steps):
        value, revision = f"v{number}", number + 1
        told, found = _store(kind, state)
        new: Callable[[], tuple[str, int] | None] = lambda v=value, r=revision: (v, r)  # type: ignore[misc] # noqa: E731
        done = told in (200, 201)
        if kind == "read":
            value, revision = found or ("", 0)
        elif done:
            state = None if kind == "delete" else new()
        if answers or kind == "read":
            carried = revision if done and kind != "delete" else 0
            history.append(op(kind, told, number, number + 0.5, value=value, revision=carried))
        else:
            history.append(op(kind, 0, number, value=value))
    assert explains(history)


def _store(kind: str, state: tuple[str, int] | None) -> tuple[int, tuple[str, int] | None]:
    if kind == "create":
        return (409 if state else 201), state
    return (200 if state else 404), state
