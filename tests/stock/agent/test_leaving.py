"""What is left of an agent's folder when kubeqos is uninstalled: nothing, mounted or not, with classes only, too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from kubeqos.apiserver.server import ApiServer
from kubeqos.apiserver.server import Settings as ServerSettings
from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.stock.agent.agent import Settings, StockAgent
from kubeqos.stock.agent.leaving import remove_folders
from kubeqos.stock.installation import EMPTY, objects

MOUNTED = """
mount --bind "$1" "$2" && exec "$3" -c '
import asyncio, sys
from pathlib import Path
from tests.stock.agent.test_leaving import left
asyncio.run(left(*map(Path, sys.argv[1:])))
' "$2" "$4"
"""


async def left(folder: Path, host_root: Path) -> None:
    """An agent with classes only comes, and ends when the cluster does not know our kinds any more."""
    with tempfile.TemporaryDirectory() as made:
        own = Path(made)
        (own / "classes.yaml").write_text("resources: {}\n")
        machine = LocalMachine(Host(own, version=V2), own / "resctrl")
        settings = Settings(
            "n1", own / "classes.yaml", machine, own / "nri.sock", host_root=host_root, made_for_us=folder
        )
        async with ApiServer.start(ServerSettings(own / "data", port=0)) as server:
            agent = await StockAgent.start(server.local(), settings)
            task = asyncio.create_task(agent.run())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def kept(folder: Path) -> Path:
    """A folder in which much was left behind."""
    (folder / "plugins_registry").mkdir(parents=True)
    (folder / "plugins_registry" / "cpu.sock").touch()
    (folder / "ledger.json").write_text("{}")
    (folder / "link").symlink_to("/")
    return folder


async def test_an_agent_with_classes_only_leaves_no_folder(tmp_path: Path) -> None:
    folder = kept(tmp_path / "var" / "lib" / "kubeqos")
    await left(folder, Path("/"))
    assert not folder.exists() and folder.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts need root, on Linux")
def test_a_folder_that_is_mounted_goes_from_the_host(tmp_path: Path) -> None:
    """As in the DaemonSet: the host's folder is seen at a mount point, which nobody can remove where it is mounted."""
    inside = tmp_path / "inside"
    inside.mkdir()
    host_root = tmp_path / "host"
    folder = kept(host_root / inside.relative_to("/"))
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTED, "sh"]
    words += [str(folder), str(inside), sys.executable, str(host_root)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if "unshare" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert not folder.exists(), done.stdout + done.stderr
    assert inside.exists(), "the mount point is the container's"


async def test_what_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = kept(tmp_path / "kubeqos")

    def busy(self: Path) -> None:
        raise OSError(16, "Device or resource busy", str(self))

    monkeypatch.setattr(Path, "rmdir", busy)
    await remove_folders([folder], tmp_path / "elsewhere")
    assert not (folder / "ledger.json").exists(), "what could go has gone"
    assert "a folder stays on this node" in caplog.text and f"{folder} is mounted here" in caplog.text


async def test_what_a_thread_still_writes_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = kept(tmp_path / "kubeqos")
    rmdir, late = Path.rmdir, ["ledger.json"]

    def written_before(self: Path) -> None:
        if self == folder and late:
            (folder / late.pop()).touch()
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", written_before)
    await remove_folders([folder], tmp_path / "elsewhere")
    assert not late and not folder.exists()


def test_the_installation_says_which_folder_it_makes() -> None:
    [made] = [raw for raw in objects("x", EMPTY) if raw["kind"] == "DaemonSet"]
    spec = made["spec"]["template"]["spec"]
    [folder] = [one["hostPath"]["path"] for one in spec["volumes"] if one["name"] == "state"]
    assert f"--state-dir={folder}" in spec["containers"][0]["args"], yaml.safe_dump(spec)
    assert spec["hostPID"], "the host's files are those of its first process"
