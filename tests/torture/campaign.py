"""Many runs: processes side by side, figures of all of them, and the fewest faults of those that broke a law."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.reliability import record

from kubeqos.web.pki import Pki
from tests.torture.plan import Fault, faults_of
from tests.torture.run import Outcome, made_pki, run

MOST_SECONDS = 600
"""Of real time for one run."""


def alone(seed: int, faults: Sequence[Fault], pki: Pki) -> Outcome:
    """A run in a process of its own, forked from one that has read all the code."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(seed, faults, pki, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(MOST_SECONDS):
            process.kill()
            return Outcome(seed, len(faults), 0, 0.0, 0, 0, 0, f"not done in {MOST_SECONDS} s of real time")
        return Outcome(**ours.recv())
    except EOFError:
        return Outcome(seed, len(faults), 0, 0.0, 0, 0, 0, "the process of the run died")
    finally:
        process.join()


def _child(seed: int, faults: Sequence[Fault], pki: Pki, answer: Any) -> None:
    try:
        outcome = run(seed, faults, pki)
    except BaseException as error:  # noqa: BLE001 - told by the parent
        import traceback

        outcome = Outcome(seed, len(faults), 0, 0.0, 0, 0, 0, f"the run itself failed: {traceback.format_exc()}{error}")
    answer.send(outcome.json())
    answer.close()
    os._exit(0)  # what the dead have left is not cleaned up


def shrunk(seed: int, faults: Sequence[Fault], pki: Pki) -> tuple[list[Fault], Outcome]:
    """The fewest faults that still break a law, by leaving out halves, quarters, … and at last single ones."""
    kept, size = list(faults), max(1, len(faults) // 2)
    outcome = alone(seed, kept, pki)
    while size:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            tried = alone(seed, fewer, pki)
            if tried.violation:
                kept, outcome = fewer, tried
            else:
                at += size
        size //= 2
    return kept, outcome


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a campaign is to be run, and what is to be told of it."""

    jobs: int
    shrinks: bool
    story: bool
    json: str = ""
    minutes: float = 0.0
    record: bool = False
    first: bool = False


def campaign(seeds: Sequence[int], wishes: Wishes) -> int:
    """Run them all; 1 if any broke a law."""
    with made_pki() as pki:
        figures, outcomes = _run_all(seeds, pki, wishes)
        failed = [one for one in outcomes if one.violation]
        for outcome in failed if wishes.shrinks else ():
            _print_shrunk(outcome, pki)
    if wishes.json:
        runs = [{"seed": one.seed, "digest": one.digest, "violation": one.violation} for one in outcomes]
        Path(wishes.json).write_text(json.dumps({**figures, "violations": len(failed), "runs": runs}, indent=2))
    if wishes.record:
        record("cluster in virtual time", figures, len(failed), seeds=[one.seed for one in outcomes])
    shown = (
        f"{value:.1f} {name}" if isinstance(value, float) else f"{value} {name}" for name, value in figures.items()
    )
    print(f"{', '.join(shown)}: {len(failed)} violations")
    return 1 if failed else 0


def _run_all(seeds: Sequence[int], pki: Pki, wishes: Wishes) -> tuple[dict[str, Any], list[Outcome]]:
    started = time.monotonic()
    figures: dict[str, Any] = {"seeds": 0, "faults": 0, "deaths": 0, "steps": 0, "hours of virtual time": 0.0,
                               "acknowledged writes": 0, "containers started": 0}  # fmt: skip
    outcomes: list[Outcome] = []

    found = threading.Event()

    def one(seed: int) -> Outcome | None:
        late = wishes.minutes and time.monotonic() - started > 60 * wishes.minutes
        if late or (wishes.first and found.is_set()):
            return None
        outcome = alone(seed, faults_of(seed), pki)
        if outcome.violation:
            found.set()
        return outcome

    with ThreadPoolExecutor(wishes.jobs) as workers:
        for outcome in filter(None, workers.map(one, seeds)):
            _count(figures, outcome)
            print(f"seed {outcome.seed}: {outcome.faults} faults, {outcome.deaths} deaths, {outcome.steps} steps, "
                  f"{outcome.seconds:.0f} s, {outcome.digest}: {outcome.violation or 'ok'}", flush=True)  # fmt: skip
            if wishes.story:
                print("\n".join(f"    {line}" for line in outcome.told))
            outcomes.append(outcome)
    return figures, outcomes


def _count(figures: dict[str, Any], outcome: Outcome) -> None:
    figures["seeds"] += 1
    figures["steps"] += outcome.steps
    figures["hours of virtual time"] += outcome.seconds / 3600
    figures["deaths"] += outcome.deaths
    figures["acknowledged writes"] += outcome.acknowledged
    figures["containers started"] += outcome.starts
    figures["faults"] += outcome.faults


def _print_shrunk(outcome: Outcome, pki: Pki) -> None:
    faults, least = shrunk(outcome.seed, faults_of(outcome.seed), pki)
    print(f"seed {outcome.seed} shrunk to {len(faults)} faults: {least.violation}", file=sys.stderr)
    for fault in faults:
        print(f"    {fault!r}", file=sys.stderr)
    print("\n".join(f"  {line}" for line in least.told[-40:]), file=sys.stderr)
