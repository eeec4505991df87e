"""A short soak: workloads of every kind come and go on fifty nodes and leave nothing. `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scenarios.terminal import ROOT, environment


@pytest.mark.slow
def test_nothing_is_left_behind_by_pods_that_come_and_go() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--minutes", "0.3", "--nodes", "50"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ("no quota used", "no core owned", "every node can be filled again", "every ledger empty"):
        assert f"ok      {what}\n" in done.stdout
