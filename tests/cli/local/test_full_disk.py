"""A disk that is full before a cluster starts, or fills while it runs: it is said in words, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.cluster.instance import LEAST_FREE_BYTES
from tests.cli.local.test_up import kubeqos
from tests.scenarios.cluster import KUBECTL

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
SIZE = 2 * LEAST_FREE_BYTES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which is small."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        kubeqos("down", "--data-dir", str(folder / "cluster"))
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Use up what is free."""
    file = disk / "ballast"
    with file.open("wb", buffering=0) as ballast:
        left = shutil.disk_usage(disk).free - leave
        with contextlib.suppress(OSError):  # that is what full means
            while left > 0:
                left -= ballast.write(bytes(min(left, 65536)))
    return file


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_before_the_start(disk: Path, how: tuple[str, ...]) -> None:
    fill(disk, leave=LEAST_FREE_BYTES // 2)
    done = kubeqos("up", "--data-dir", str(disk / "cluster"), "--port", "0", *how, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: the disk is full: 16 MB are free, a cluster needs 32 MB",
        f"  at  {disk}/cluster",
        "  free some space, or pass a directory on another disk with --data-dir",
    ]
    assert kubeqos("status", "--data-dir", str(disk / "cluster"), check=False).returncode == 1


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")
def test_while_it_runs(disk: Path) -> None:
    cluster = disk / "cluster"
    start = ("up", "--nodes", "1", "--data-dir", str(cluster), "--port", "0", "--detach")
    kubeqos(*start)

    def kubectl(*words: str) -> tuple[int, str]:
        environment = {**os.environ, "KUBECONFIG": str(cluster / "kubeconfig"), "HOME": str(cluster)}
        assert KUBECTL is not None
        done = subprocess.run([KUBECTL, *words], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert kubectl("create", "configmap", "before", "--from-literal=a=b")[0] == 0
    ballast = fill(disk)
    large = "--from-literal=text=" + "x" * 100_000
    refused = [kubectl("create", "configmap", f"large-{number}", large) for number in range(5)]
    code, said = refused[-1]
    assert code == 1
    assert "the disk is full" in said
    assert "Traceback" not in said
    assert "Internal error" not in said, "nothing is wrong with the server: it says what to do"
    assert "free space" in said
    assert kubectl("get", "configmap", "before", "-o", "jsonpath={.data.a}") == (0, "b")
    ballast.unlink()
    deadline = time.monotonic() + 60
    while kubectl("create", "configmap", "after", "--from-literal=c=d")[0] and time.monotonic() < deadline:
        time.sleep(0.5)
    acknowledged = [f"large-{number}" for number, (code, _) in enumerate(refused) if code == 0]
    kubeqos("down", "--data-dir", str(cluster))
    kubeqos(*start)
    found = kubectl("get", "configmaps", "-o", "name")[1].split()
    wanted = {"before", "after", *acknowledged}
    assert {name.removeprefix("configmap/") for name in found} - {"kube-root-ca.crt"} == wanted
