"""So many requests, or so many minutes: what was sent, what came back, and whether the server is what it was before."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.reliability import record

from kubeqos.apiserver.registry.kinds import KINDS
from kubeqos.model.kinds import RBAC
from tests.apiserver.examples import collection, example
from tests.badinput.mutate import as_json
from tests.badinput.requests import QUIET, Drawing, Sent
from tests.badinput.sender import Findings, Sender, Slow
from tests.badinput.server import TOKEN, Served, served

SWEEP = 5_000
"""Requests until everything that was made is deleted, and what requests are aimed at is made anew."""
WARM = 0.2
"""The part of the requests after which memory is a server's that has seen everything once."""
GROWTH_MIB = 64.0
SLOW_CLIENTS = 10
MOST_FINDINGS = 20


@dataclass(frozen=True)
class Wishes:
    requests: int = 20_000
    minutes: float = 0.0
    seed: int = 0
    record: bool = False


def campaign(wishes: Wishes) -> int:
    """Send them all; 1 if anything was found."""
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as made, served(Path(made)) as server:
        findings, memory, slow = _send_all(server, wishes)
        wrong = findings.wrong + _wrong_with(server, memory)
    done = {**{what: findings.sent[what] for what in sorted(findings.sent)}, "slow clients": slow}
    figures = {"requests": sum(findings.sent.values()), **done, "most MiB grown": max(0.0, memory[-1] - memory[0])}
    print(", ".join(f"{count:,} × {code or 'no answer'}" for code, count in sorted(findings.codes.items())))
    print(", ".join(f"{value:,.0f} {what}" for what, value in figures.items()) + f": {len(wrong)} violations")
    for one in wrong[:MOST_FINDINGS]:
        print(one)
    if wishes.record:
        record("bad input", figures, len(wrong), seeds=[wishes.seed])
    return 1 if wrong else 0


def _send_all(server: Served, wishes: Wishes) -> tuple[Findings, list[float], int]:
    findings, drawing = Findings(), Drawing(wishes.seed, TOKEN)
    sender, slow = Sender(server, findings), Slow(server, SLOW_CLIENTS)
    ends = time.monotonic() + 60 * wishes.minutes if wishes.minutes else None
    memory: list[float] = []
    for number in range(wishes.requests):
        if number % SWEEP == 0:
            for one in world():
                sender.send(one)
            slow.trickle()
        if number >= WARM * wishes.requests and not number % 1_000:
            memory.append(server.resident_mib())
        sender.send(drawing.draw())
        if len(findings.wrong) >= MOST_FINDINGS or (ends is not None and time.monotonic() > ends):
            break
    sender.close()
    slow.close()
    return findings, memory or [server.resident_mib()] * 2, slow.opened


def world() -> Iterator[Sent]:
    """Everything is deleted, but who may do what; then there is one object of every kind again."""
    drawing = Drawing(0, TOKEN)

    def request(method: str, path: str, body: bytes = b"") -> Sent:
        return drawing._request("upkeep", method, path, {}, body, "application/json" if body else "")

    kinds = [kind for kind in KINDS if kind.stored and kind.view is None and kind.group not in (RBAC, *QUIET)]
    for kind in kinds:
        if "deletecollection" in kind.verbs:
            yield request("DELETE", collection(kind))
    for kind in kinds:
        yield request("POST", collection(kind), as_json(drawing.random, example(kind)))


def _wrong_with(server: Served, memory: list[float]) -> list[str]:
    wrong = [f"a traceback in the log: {line}" for line in server.tracebacks()]
    if not server.is_alive():
        wrong.append("the server ended by itself")
    if memory[-1] - memory[0] > GROWTH_MIB:
        wrong.append(f"memory grew from {memory[0]:.0f} to {memory[-1]:.0f} MiB")
    return wrong
