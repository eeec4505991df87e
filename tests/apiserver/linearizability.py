"""Whether a history of requests can be explained by one store that did them one after the other, each at one moment.

A register for each key, because keys do not depend on each other: Wing and Gong's search, with what is known pruned by
time. An operation that was answered has effect between its call and its answer; one that was not (the server died) may
have had it at any time after its call, or never. Revisions make it sharper: what a request was told is in order
with what everybody else was told.

Called by `test_linearizability`. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Operation:
    """What one client asked, and what it was told. `answered` is never for one that got no answer.

    kind: create, update (with the revision it expects, or 0), delete, read. `told` is the HTTP status; `value` what was
    written or read, `revision` what the answer carried.
    """

    client: int
    key: str
    kind: str
    called: float
    answered: float = NEVER
    told: int = 0
    value: str = ""
    expects: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """A key at a moment: no value when it does not exist. A revision of 0 is one that nobody was told."""

    value: str | None = None
    revision: int = 0


def after(state: State, op: Operation) -> State | None:
    """The state after an operation with this answer; None if it cannot have had this answer in this state."""
    exists = state.value is not None
    if op.answered == NEVER:
        return _unanswered(state, op)
    match op.kind, op.told:
        case "create", 201:
            return State(op.value, op.revision) if not exists else None
        case "create", 409:
            return state if exists else None
        case "update", 200:
            fits = exists and (not op.expects or not state.revision or state.revision == op.expects)
            return State(op.value, op.revision) if fits and op.revision > state.revision else None
        case "update", 409:
            return state if exists and op.expects and state.revision != op.expects else None
        case "delete", 200:
            return State() if exists else None
        case "read", 200:
            same = exists and state.value == op.value and state.revision in (0, op.revision)
            return State(op.value, op.revision) if same else None
        case _, 404:
            return state if not exists else None
    return None


def _unanswered(state: State, op: Operation) -> State | None:
    """It happened, if it could; that it did not is for the search to try."""
    exists = state.value is not None
    match op.kind:
        case "create":
            return State(op.value) if not exists else None
        case "update":
            fits = exists and (not op.expects or state.revision in (0, op.expects))
            return State(op.value) if fits else None
        case "delete":
            return State() if exists else None
    return None


def unexplained(history: Iterable[Operation]) -> Iterator[str]:
    """The keys whose histories no single store can have produced."""
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for op in history:
        by_key[op.key].append(op)
    for key, ops in by_key.items():
        if not explains(ops):
            yield key


def explains(ops: Sequence[Operation]) -> bool:
    """Whether some order of them, each between its call and its answer, gives every answer that was given."""
    ordered = sorted((op for op in ops if not (op.answered == NEVER and op.kind == "read")), key=lambda op: op.called)
    everything = (1 << len(ordered)) - 1
    optional = sum(1 << place for place, op in enumerate(ordered) if op.answered == NEVER)
    todo, seen = [(0, State())], {(0, State())}
    while todo:
        done, state = todo.pop()
        if done | optional == everything:
            return True
        # Nobody can go before an operation that was over before he began.
        first_end = min(op.answered for place, op in enumerate(ordered) if not done >> place & 1)
        for place, op in enumerate(ordered):
            if done >> place & 1:
                continue
            if op.called > first_end:
                break
            following = after(state, op)
            if following is not None and (step := (done | 1 << place, following)) not in seen:
                seen.add(step)
                todo.append(step)
    return False


@dataclass(frozen=True, slots=True)
class Seen:
    """One event of a watch; a bookmark has no key."""

    type: str
    key: str = ""
    value: str = ""
    revision: int = 0


def wrong_watch(events: Sequence[Seen], since: int, history: Iterable[Operation]) -> str:
    """What a watch told that it must not, or kept to itself; nothing when it is right.

    Revisions grow, a bookmark promises that nothing before it is missing, and every write that was acknowledged with a
    revision between the beginning and the last event or bookmark was shown with that value.
    """
    at, shown = since, {}
    for event in events:
        if event.revision < at or (event.revision == at and event.type != "BOOKMARK" and event.key in shown):
            return f"{event} comes after revision {at}"
        at = event.revision
        if event.type != "BOOKMARK":
            shown[event.revision, event.key] = event
    for op in history:
        if op.kind in ("create", "update") and op.told in (200, 201) and since < op.revision <= at:
            event = shown.get((op.revision, op.key))
            if event is None:
                return f"{op} was acknowledged and not shown, though the watch reached {at}"
            if event.value != op.value:
                return f"{op} was shown as {event}"
    return ""


def wrong_list(listed: Iterable[tuple[str, str, int]], at: int, history: Sequence[Operation]) -> str:
    """A list is a state at one revision: nothing newer in it, and nothing acknowledged up to then missing from it."""
    found = {key: (value, revision) for key, value, revision in listed}
    for key, (_, revision) in found.items():
        if revision > at:
            return f"a list at {at} holds {key} at {revision}"
    newest: dict[str, Operation] = {}
    for op in history:
        if op.told in (200, 201) and op.kind != "read" and 0 < op.revision <= at:
            newest[op.key] = max(newest.get(op.key, op), op, key=lambda one: one.revision)
    for key, op in newest.items():
        value, revision = found.get(key, ("", 0))
        if op.kind == "delete" and revision and revision <= op.revision:
            return f"a list at {at} holds {key} at {revision}, which was deleted at {op.revision}"
        if (
            op.kind != "delete"
            and revision
            and (revision < op.revision or (revision == op.revision and value != op.value))
        ):
            return f"a list at {at} holds {key} at {revision} with {value!r}, and {op} was acknowledged"
    return ""
