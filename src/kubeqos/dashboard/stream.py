"""A view as server-sent events: all of it first, then what changed of it, as often as that costs little.

event: view      the whole answer
event: change    {"members": {name: value}, "tables": {name: {"set": {key: row}, "drop": [key]}}}
event: problem   why the view cannot be told any more; the stream ends
event: closed    the session has ended; the stream ends
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from kubeqos.dashboard.answers import Answers, NotFound
from kubeqos.dashboard.present.data import Data, Problem
from kubeqos.errors import KubeqosError
from kubeqos.web.identity import Identity

LEAST_SECONDS = 0.1
"""Between two changes; what comes meanwhile is told together."""
SHARE = 10
"""Working a view out may take this part of the time: 1/10."""
SILENT_SECONDS = 15.0
"""After which a comment shows that the connection lives, and the session is looked at."""


def difference(old: Data, new: Data) -> dict[str, Any]:
    """What changed between two answers of the same kind: members as a whole, tables by row."""
    members: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for plain, name in zip(old.__struct_fields__, old.__struct_encode_fields__, strict=True):
        before, after = getattr(old, plain), getattr(new, plain)
        if before is after or before == after:
            continue
        if _is_table(before) and _is_table(after):
            put = {key: row for key, row in after.items() if key not in before or before[key] != row}
            drop = [key for key in before if key not in after]
            tables[name] = {"set": put, "drop": drop}
        else:
            members[name] = after
    return {"members": members, "tables": tables} if members or tables else {}


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(row, Data) for row in value.values())


async def follow(answers: Answers, identity: Identity, view: str, alive: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The stream of one view, until it cannot be told any more or the session ends."""
    seen, last = -1, None
    while alive():
        if not await answers.feed.changed(seen, SILENT_SECONDS):
            yield b": still here\n\n"
            continue
        started, seen = time.perf_counter(), answers.feed.revision
        try:
            now = await answers.view(identity, view, {})
        except (NotFound, KubeqosError) as error:
            yield _event("problem", Problem(error=error.what, remedy=error.remedy or ""))
            return
        if last is None:
            yield _event("view", now)
        elif changed := difference(last, now):
            yield _event("change", changed)
        last = now
        await asyncio.sleep(max(LEAST_SECONDS, SHARE * (time.perf_counter() - started)))
    yield b"event: closed\ndata: {}\n\n"


def _event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
