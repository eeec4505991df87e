"""A real containerd of the test's own: own root, state, socket and images; nothing of it is left behind.

Use `running_containerd(folder)` as a context manager, or the `containerd` fixture of tests/cri/conftest.py.
The runtime is stopped by force if it must be, but leftovers (a process, a mount, a cgroup) are an error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.proto.cri_pb2_grpc import RuntimeServiceStub
from tests.cri.images import BUSYBOX, BUSYBOX_IMAGE, PAUSE_IMAGE, write_image_tar
from tests.shared import cgroups
from tests.shared.cgroups import CGROUPS as CGROUPS

START_SECONDS = 30.0
STOP_SECONDS = 15.0

CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{base_spec}"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "runc"
        Root = "{folder}/runc"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
# Enough for the runtime to call its network ready; the tests' sandboxes live in the host's network namespace.
LOOPBACK = '{"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}\n'


def missing() -> str | None:
    """Why a real containerd cannot be run here, or None."""
    absent = [name for name in ("containerd", "runc", "ctr") if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian packages containerd and runc)"
    if not BUSYBOX.exists():
        return f"{BUSYBOX} does not exist (Debian package busybox-static)"
    if os.geteuid() != 0:
        return "needs root"
    return None


class Containerd:
    """One running containerd. `endpoint` is its CRI address; containers belong under `cgroup_parent`."""

    def __init__(self, folder: Path, base_spec: Path | None = None) -> None:
        self.folder = folder
        self.base_spec = base_spec
        self.socket = folder / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"
        self.log = folder / "containerd.log"
        self.cgroup_parent = f"/kubeqos-test-{uuid.uuid4().hex[:8]}"
        self.network, self.more_config = LOOPBACK, ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, wait until it answers, import the images."""
        (self.folder / "cni").mkdir(parents=True)
        (self.folder / "cni" / "10-network.conflist").write_text(self.network)
        config = self.folder / "config.toml"
        base_spec = self.base_spec or ""
        text = CONFIG.format(folder=self.folder, socket=self.socket, pause=PAUSE_IMAGE, base_spec=base_spec)
        config.write_text(text + self.more_config)
        self.start_again()
        self.add_image(PAUSE_IMAGE, ["sleep", "1000000000"])
        self.add_image(BUSYBOX_IMAGE, ["sh"])

    def start_again(self) -> None:
        """Start the process on what is there, and wait until it answers."""
        config = self.folder / "config.toml"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["containerd", "-c", str(config)], stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_ready()

    def cgroup_value(self, meaning: str, container_id: str) -> str:
        """What the kernel says of a container, by the meaning that `tests.shared.cgroups` knows on both versions."""
        return cgroups.value(f"{self.cgroup_parent}/{container_id}", meaning)

    def crash(self) -> None:
        """End the process as a power failure would; its shims and containers live on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Remove every pod, end the process, and remove what is left; raise if something was left."""
        patience = 0.0
        with contextlib.suppress(grpc.RpcError):
            self.remove_pods()
            patience = STOP_SECONDS
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        leaks = [*self._end_shims(patience), *self._end_containers(), *self._unmount(), *self._remove_cgroups()]
        shutil.rmtree(self.folder, ignore_errors=True)
        if leaks:
            raise RuntimeError(f"containerd left behind: {leaks}")

    @contextlib.contextmanager
    def _stub(self) -> Iterator[RuntimeServiceStub]:
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{self.socket}", options=options) as channel:
            yield RuntimeServiceStub(channel)

    def conditions(self) -> dict[str, bool]:
        """What the runtime says of itself."""
        with self._stub() as stub:
            answer = stub.Status(cri.StatusRequest(), timeout=10)
        return {one.type: one.status for one in answer.status.conditions}

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        with self._stub() as stub:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    break
                try:
                    stub.Version(cri.VersionRequest(), timeout=1, wait_for_ready=True)
                    return
                except grpc.RpcError:
                    time.sleep(0.1)
        raise RuntimeError(f"containerd did not start; its log ends:\n{self.log.read_text()[-3000:]}")

    def add_image(self, name: str, command: list[str], ballast_bytes: int = 0) -> None:
        """Import an image made on the spot."""
        tar = self.folder / "image.tar"
        write_image_tar(tar, name=name, command=command, ballast_bytes=ballast_bytes)
        ctr = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]
        options = ["--snapshotter", "native"]
        done = subprocess.run(
            [*ctr, "images", "import", *options, str(tar)], capture_output=True, text=True, check=False
        )
        tar.unlink()
        if done.returncode != 0:
            raise RuntimeError(f"cannot import {name}: {done.stderr}")

    def remove_pods(self) -> None:
        with self._stub() as stub:
            for sandbox in stub.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=10).items:
                stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id), timeout=30)
                stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id), timeout=30)

    def _end_shims(self, patience: float) -> list[str]:
        """Shims end a moment after their last pod; those that do not are ended and reported.

        Not reported are those that containerd itself has forgotten, which happens when the caller of RunPodSandbox
        goes away while the shim starts: their bundle is gone.
        """
        deadline = time.monotonic() + patience
        while (shims := self._shims()) and time.monotonic() < deadline:
            time.sleep(0.05)
        bundles = {path.name for path in self.folder.glob("state/io.containerd.runtime.v2.task/*/*")}
        for pid in shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._remove_shim_sockets()
        return [f"process {pid}" for pid, sandbox in shims.items() if sandbox in bundles]

    def _remove_shim_sockets(self) -> None:
        """Shims listen in a folder that all containerds of a machine share; a killed one leaves its socket there."""
        for address in self.folder.glob("state/io.containerd.runtime.v2.task/*/*/address"):
            Path(address.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)

    def _end_containers(self) -> list[str]:
        """Processes that outlived their shim are found by their cgroup."""
        found: set[int] = set()
        deadline = time.monotonic() + STOP_SECONDS
        while (pids := self._contained()) and time.monotonic() < deadline:
            found |= pids
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return [f"process {pid}" for pid in sorted(found)]

    def _contained(self) -> set[int]:
        groups = [*cgroups.below(self.cgroup_parent), *cgroups.folders(self.cgroup_parent)]
        return {int(pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()}

    def _shims(self) -> dict[int, str]:
        """The sandbox of each shim of ours, by process."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"shim" in words[0] and any(str(self.folder).encode() in word for word in words):
                        found[int(entry.name)] = words[words.index(b"-id") + 1].decode()
        return found

    def _unmount(self) -> list[str]:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        ours = [point for point in mounts if point.startswith(f"{self.folder}/")]
        for point in sorted(ours, reverse=True):
            subprocess.run(["umount", "-l", point], check=False)
        return [f"mount {point}" for point in ours]

    def _remove_cgroups(self) -> list[str]:
        """Our parent group is ours to remove; a container's group below it is a leak."""
        leaks = [f"cgroup {path}" for path in cgroups.below(self.cgroup_parent)]
        cgroups.remove(self.cgroup_parent)
        return leaks


@contextlib.contextmanager
def running_containerd(folder: Path, base_spec: Path | None = None) -> Iterator[Containerd]:
    """A containerd for the duration of a block. The folder's path must be short: sockets live in it.

    `base_spec` is the OCI spec that every container starts from, where containerd's own is not wanted.
    """
    runtime = Containerd(folder, base_spec)
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.stop()
