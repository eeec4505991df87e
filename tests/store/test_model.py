"""The store against a model that keeps everything: any order of writes, reads, compactions and restarts."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeqos.store import Compacted, Conflict, Delete, Event, FutureRevision, Put, Store, Stored

KEYS = st.sampled_from(["/p/a", "/p/b", "/p/c", "/p/c/d", "/pq", "/q/a", "/q/é", "/q/\ue000"])
PREFIXES = st.sampled_from(["", "/", "/p", "/p/", "/p/c", "/q/", "/none/"])
EXPECTATIONS = st.sampled_from(["any", "absent", "current", "stale"])
State = dict[str, Stored]


class StoreModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.store = self.open()
        self.states: dict[int, State] = {1: {}}  # by revision, committed or submitted
        self.events: list[Event] = []
        self.newest = 1
        self.compacted = 0
        self.submitted: list[tuple[Awaitable[int], int]] = []

    def open(self) -> Store:
        return Store.open(self.directory / "state.db")

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def at(self, revision: int) -> State:
        return self.states[max(known for known in self.states if known <= revision)]

    @rule(
        choices=st.lists(
            st.tuples(KEYS, st.binary(max_size=3), EXPECTATIONS, st.booleans()),
            min_size=1,
            max_size=4,
            unique_by=lambda choice: choice[0],
        ),
        wait=st.booleans(),
    )
    def write(self, choices: list[tuple[str, bytes, str, bool]], wait: bool) -> None:
        before = self.at(self.newest)
        ops: list[Put | Delete] = []
        refused = False
        for key, value, expectation, delete in choices:
            found = before[key].revision if key in before else 0
            expect = {"any": None, "absent": 0, "current": found, "stale": found + 1}[expectation]
            refused |= expect not in (None, found) or (delete and not found)
            ops.append(Delete(key, value, expect) if delete else Put(key, value, expect))
        if refused:
            with pytest.raises(Conflict):
                self.run(self.submit(ops))
            return
        self.newest += 1
        self.submitted.append((self.run(self.submit(ops)), self.newest))
        self.apply(ops, before)
        if wait:
            self.settle()

    async def submit(self, ops: list[Put | Delete]) -> Awaitable[int]:
        return self.store.commit(ops)

    def apply(self, ops: list[Put | Delete], before: State) -> None:
        state = dict(before)
        for op in ops:
            old = before.get(op.key)
            if isinstance(op, Delete):
                assert old is not None
                assert isinstance(op.final, bytes)
                self.events.append(Event("DELETED", op.key, op.final, self.newest, old.value))
                del state[op.key]
                continue
            assert isinstance(op.value, bytes)
            created = old.created if old else self.newest
            state[op.key] = Stored(op.key, op.value, self.newest, created)
            kind: Any = "MODIFIED" if old else "ADDED"
            self.events.append(Event(kind, op.key, op.value, self.newest, old.value if old else None))
        self.states[self.newest] = state

    @rule()
    def settle(self) -> None:
        async def wait() -> list[int]:
            return [await future for future, _ in self.submitted]

        assert self.run(wait()) == [revision for _, revision in self.submitted]
        self.submitted.clear()
        assert self.store.revision == self.newest

    @rule(prefix=PREFIXES, after=st.one_of(st.just(""), KEYS), limit=st.integers(0, 4), back=st.integers(-2, 6))
    def read(self, prefix: str, after: str, limit: int, back: int) -> None:
        revision = max(1, self.store.revision - back)
        if revision > self.store.revision:
            with pytest.raises(FutureRevision):
                self.store.range(prefix, revision=revision)
            return
        if revision < self.compacted:
            with pytest.raises(Compacted):
                self.store.range(prefix, revision=revision)
            return
        page = self.store.range(prefix, after=after, limit=limit, revision=revision)
        state = self.at(revision)
        matching = [state[key] for key in sorted(state) if key.startswith(prefix) and key > after]
        expected = matching[:limit] if limit else matching
        assert page.items == expected
        assert page.remaining == len(matching) - len(expected)
        assert page.more == (page.remaining > 0)
        assert page.revision == revision

    @rule(prefix=PREFIXES, back=st.integers(0, 8))
    def watch_from(self, prefix: str, back: int) -> None:
        start, upto = max(0, self.store.revision - back), self.store.revision
        if start < self.compacted:
            with pytest.raises(Compacted):
                self.store.watch(prefix, start)
            return
        expected = [e for e in self.events if start < e.revision <= upto and e.key.startswith(prefix)]

        async def drain() -> list[Event]:
            watch = self.store.watch(prefix, start)
            seen: list[Event] = []
            while len(seen) < len(expected):
                seen += await anext(watch)
            return seen[: len(expected)]

        assert self.run(drain()) == expected

    @rule(back=st.integers(0, 5))
    def compact(self, back: int) -> None:
        revision = max(1, self.store.revision - back)

        async def compact() -> None:
            self.store.compact(revision)

        self.run(compact())
        self.compacted = max(self.compacted, revision)

    @precondition(lambda self: self.newest > 3)
    @rule()
    def restart(self) -> None:
        self.settle()
        self.run(self.store.close())
        self.store = self.open()
        assert self.store.revision == self.newest
        assert self.store.compacted <= self.compacted
        self.compacted = self.store.compacted

    @invariant()
    def both_views_are_exact(self) -> None:
        pending, committed = self.at(self.newest), self.at(self.store.revision)
        for key in {*pending, *committed}:
            assert self.store.get(key, pending=True) == pending.get(key)
            assert self.store.get(key) == committed.get(key)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.directory)


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
