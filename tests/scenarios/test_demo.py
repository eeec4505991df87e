"""The demo: every proposal's story on a cluster that `kubeqos up` started, through kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.cluster import needs_kubectl

pytestmark = pytest.mark.slow


def kubeqos(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kubeqos.cli.main", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("kubectl", [pytest.param(True, marks=[pytest.mark.kubectl, needs_kubectl]), False])
def test_all_stories_go_as_the_proposals_promise(tmp_path: Path, kubectl: bool) -> None:
    """With the real kubectl, and on a machine that has none."""
    elsewhere = {} if kubectl else {"PATH": str(tmp_path)}
    data = ("--data-dir", str(tmp_path / "cluster"))
    up = kubeqos("up", *data, "--port", "0", "--detach")
    assert up.returncode == 0, up.stderr
    try:
        told = kubeqos("demo", *data, **elsewhere)
        assert told.returncode == 0, told.stdout + told.stderr
        assert ("kubectl is not on PATH" in told.stdout) is not kubectl
        assert "All 5 stories went as the proposals promise." in told.stdout
    finally:
        kubeqos("down", *data)


def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    told = kubeqos("demo", "--data-dir", str(tmp_path))
    assert told.returncode == 1
    assert "start one: kubeqos up --detach" in told.stderr
