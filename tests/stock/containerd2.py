"""A containerd 2 of the test's own, with NRI: the same harness as Debian's, another program and its configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.stock import find

from tests.cri.containerd import Containerd
from tests.cri.images import BUSYBOX_IMAGE, PAUSE_IMAGE

PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
_CONFIG = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "runc"
        Root = "{folder}/runc"
        SystemdCgroup = {systemd}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  plugin_request_timeout = "{patience}"
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri-plugins"
  plugin_config_path = "{folder}/nri-conf"
  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
"""


def configuration(folder: Path, socket: Path, *, systemd: bool = False, patience: str = "2s") -> str:
    """`patience` is how long plugins may take for an answer."""
    driver = str(systemd).lower()
    return _CONFIG.format(folder=folder, socket=socket, pause=PAUSE_IMAGE, systemd=driver, patience=patience)


class Containerd2(Containerd):
    """One running containerd 2; plugins join at `nri`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        paths = find(*PROGRAMS)
        assert paths is not None, "the test is marked with what it needs"
        self._programs = paths[0].parent
        self.nri = folder / "nri.sock"

    def start(self) -> None:
        (self.folder / "cni").mkdir(parents=True)
        (self.folder / "cni" / "10-network.conflist").write_text(self.network)
        (self.folder / "config.toml").write_text(self.configured() + self.more_config)
        self.start_again()
        self.add_image(PAUSE_IMAGE, ["sleep", "1000000000"])
        self.add_image(BUSYBOX_IMAGE, ["sh"])

    def configured(self) -> str:
        return configuration(self.folder, self.socket)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self) -> None:
        """Wait until the process, which somebody has told to, ends."""
        assert self._process is not None
        self._process.wait(30)

    def start_again(self) -> None:
        # Its own shim comes first: Debian's is of another version.
        environment = {**os.environ, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}"}
        program = [str(self._programs / "containerd"), "-c", str(self.folder / "config.toml")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(program, stdout=log, stderr=log, start_new_session=True, env=environment)
        self._wait_until_ready()


@contextmanager
def running_containerd2(folder: Path) -> Iterator[Containerd2]:
    runtime = Containerd2(folder)
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.stop()
