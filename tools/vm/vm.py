"""One booted machine: its process, and a line to the program inside (`guest`). `booted(name)` is the way in."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.vm import backports, images
from tools.vm.machines import MACHINES, Machine

PATIENCE = float(os.environ.get("KUBEQOS_VM_PATIENCE") or 1)
"""Factor of every wait: emulation is ten to thirty times slower than this machine, more where that is busy."""
BOOT_SECONDS = 240.0
SCRATCH_MIB = 512
SCRATCH_RATE = 8 << 20
"""Bytes that may be read from the scratch disk each second: readers are to wait for it, not for the processor."""


class VmError(Exception):
    """The machine did not boot, or the program inside failed."""


class Vm:
    """A machine that runs."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.console = folder / "console.log"
        self.boot_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._heard = b""

    def start(self) -> None:
        """Boot, and wait until the program inside answers."""
        scratch, project = self.folder / "scratch.img", self.folder / "project.img"
        images.project(project)
        with scratch.open("wb") as file:
            file.truncate(SCRATCH_MIB << 20)
        disks = [(images.root(), "snapshot=on"), (images.wheels(), "readonly=on"), (project, "readonly=on")]
        disks.append((scratch, f"cache=none,throttling.bps-read={SCRATCH_RATE}"))
        if (stock := images.stock()) is not None:
            disks.append((stock, "readonly=on"))
        words = self._words(disks)
        with (self.folder / "qemu.log").open("wb") as log:
            began = time.monotonic()
            # It goes with its parent, however that ends: an emulator left alone eats every processor there is.
            before = ["setpriv", "--pdeathsig", "KILL", "nice"]
            self._process = subprocess.Popen([*before, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._connect(began + BOOT_SECONDS * PATIENCE)
        self.boot_seconds = time.monotonic() - began

    def _words(self, disks: list[tuple[Path, str]]) -> list[str]:
        boot = backports.boot() if self.machine.backports else images.boot()
        append = ["root=/dev/vda", "rw", "console=ttyS0", "quiet", "panic=-1", "mitigations=off", *self.machine.kernel]
        append += ["no_timer_check"]  # on a busy machine the timer's first ticks are late, and the kernel would give up
        words = [
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-display",
            "none",
            "-no-reboot",
        ]
        words += [*self.machine.hardware(), "-nic", "none", "-serial", f"file:{self.console}"]
        words += ["-kernel", str(boot.kernel), "-initrd", str(boot.initrd)]
        words += ["-append", " ".join(append)]
        for number, (path, option) in enumerate(disks):
            words += ["-drive", f"file={path},if=none,id=disk{number},format=raw,{option}"]
            words += ["-device", f"virtio-blk-pci,drive=disk{number},bus=pcie.0"]
        words += [
            "-chardev",
            f"socket,id=line,path={self.folder}/line,server=on,wait=off",
            "-device",
            "virtio-serial-pci,bus=pcie.0",
        ]
        return [*words, "-device", "virtserialport,chardev=line,name=kubeqos"]

    def _connect(self, deadline: float) -> None:
        """What is said before the program inside listens waits in the port: one question is enough."""
        self._line = socket.socket(socket.AF_UNIX)
        while time.monotonic() < deadline:
            self._alive()
            try:
                self._line.connect(f"{self.folder}/line")
                break
            except OSError:
                time.sleep(0.1)
        try:
            self._ask(deadline - time.monotonic(), do="run", words=["true"], text=None, seconds=30)
        except (OSError, VmError) as error:
            raise VmError(f"{self.machine.name} did not boot; its console ends:\n{self._last_words()}") from error

    def _alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            log = (self.folder / "qemu.log").read_text(errors="replace")
            raise RuntimeError(f"qemu ended: {log[-2000:]}\n{self._last_words()}")

    def _last_words(self) -> str:
        return self.console.read_text(errors="replace")[-2000:] if self.console.exists() else "(nothing)"

    def _hear(self, deadline: float) -> dict[str, Any]:
        assert self._line is not None
        while b"\n" not in self._heard:
            if time.monotonic() > deadline:
                raise VmError("the guest does not answer")
            self._alive()
            with contextlib.suppress(TimeoutError):
                some = self._line.recv(1 << 16)
                if not some:
                    raise VmError("the guest went away")
                self._heard += some
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, patience: float, **request: Any) -> dict[str, Any]:
        assert self._line is not None
        self._line.settimeout(patience)  # of sending all of it; listening looks around every second
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self._line.settimeout(1)
        answer = self._hear(time.monotonic() + patience)
        if "failed" in answer:
            raise VmError(answer["failed"])
        return answer

    def attempt(self, *words: str, text: str | None = None, seconds: float = 60) -> tuple[int, str]:
        """Run a command inside: its exit code, and what it said."""
        patience = seconds * PATIENCE
        answer = self._ask(patience + 60, do="run", words=words, text=text, seconds=patience)
        return answer["code"], answer["out"]

    def run(self, *words: str, text: str | None = None, seconds: float = 60) -> str:
        """Run a command inside that has to succeed; what it said."""
        code, said = self.attempt(*words, text=text, seconds=seconds)
        if code != 0:
            raise VmError(f"{' '.join(words)}: exit code {code}: {said[-4000:]}")
        return said

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        self._ask(60 * PATIENCE, do="write", path=path, text=text)

    def api(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Ask the API server inside: status code and answer."""
        answer = self._ask(120 * PATIENCE, do="api", method=method, path=path, body=body, kind=kind)
        return answer["code"], answer["body"]

    def stop(self) -> None:
        """Take the power away: nothing in there is kept."""
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def booted(name: str) -> Iterator[Vm]:
    """The machine of this name, for the duration of a block."""
    with tempfile.TemporaryDirectory(prefix="kq-vm-") as folder:
        vm = Vm(MACHINES[name], Path(folder))
        try:
            vm.start()
            yield vm
        finally:
            vm.stop()
