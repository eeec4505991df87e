"""A short bad day under the eyes of a stranger; `make exclusive` is the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cri.containerd import missing
from tests.scenarios.terminal import ROOT, environment


@pytest.mark.slow
@pytest.mark.proves("exclusive-cpus", "cci-claims", "qrm-pools", "restart")
def test_no_owned_core_is_shared_whoever_dies_forgets_or_lies() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.exclusive", "--minutes", "1", "--seed", "18"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "ok      no two containers ever shared a core that one of them owns, and no promise was unpinned\n"
        in done.stdout
    )
    assert missing() or all(f"\n{node} " in done.stdout for node in ("real-qrm", "real-cci")), "the kernel's sets too"
