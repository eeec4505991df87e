"""The disks of a guest, as ext4 images made without a loop mount (`mkfs.ext4 -d`).

The root is made by debootstrap, minutes once, and kept in the user's cache under the hash of its recipe. The wheels
(this Python's own packages) are kept under the hash of the locks, Kubernetes' own programs, where they are built, under
theirs. The project is copied for each run, in a second.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.stock import find

TREE = Path(__file__).parents[2]
SUITE = "bookworm"
PYTHON = (3, 11)
"""Debian's own Python in that suite: packages compiled for another do not load in the guest."""
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "python3",
    "python3-yaml",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "numactl",
    "util-linux",
    "busybox-static",
    "iproute2",
    "procps",
)
GUEST_ENVIRONMENT = "PYTHONPATH=/kubeqos/project/src:/kubeqos/project:/kubeqos/wheels"
FILES = {
    "etc/hostname": "numa\n",
    "etc/hosts": "127.0.0.1 localhost numa\n",
    "etc/fstab": "/dev/vdb /kubeqos/wheels ext4 ro 0 0\n/dev/vdc /kubeqos/project ext4 ro 0 0\n",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/modules-load.d/kubeqos.conf": "overlay\nbfq\nvirtio_console\n",
    "etc/systemd/system/kubeqos-guest.service": f"""\
[Unit]
RequiresMountsFor=/kubeqos/project /kubeqos/wheels
After=dbus.service systemd-modules-load.service
Wants=dbus.service
[Service]
Environment={GUEST_ENVIRONMENT}
ExecStart=/usr/bin/python3 /kubeqos/project/tools/vm/guest.py
Restart=on-failure
TimeoutStopSec=2
[Install]
WantedBy=multi-user.target
""",
    "usr/local/bin/kubeqos": f"""\
#!/bin/sh
export {GUEST_ENVIRONMENT}
exec /usr/bin/python3 -m kubeqos.cli.main "$@"
""",
}
EXECUTABLE = ("usr/local/bin/kubeqos",)
ENABLED = ("kubeqos-guest.service",)
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "containerd.service",  # tests start their own, each with its own settings
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "modprobe@dm_mod.service",  # seconds each, for nothing that is used
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "modprobe@loop.service",
    "serial-getty@ttyS0.service",
    "systemd-binfmt.service",
    "systemd-logind.service",
    "systemd-timesyncd.service",
)
ROOM_MIB = 1536
"""Free space of the root: images of containers, logs, the API server's store."""
STOCK = ("kubelet", "containerd", "containerd-shim-runc-v2")
NOT_FOR_GUESTS = ("mypy", "mypyc", "*__mypyc*", "mkdocs", "pip", "setuptools", "grpc_tools", "kubernetes", "ruff*")
"""Test tools that are large and that no test in a guest uses."""


def missing() -> str | None:
    """Why no machine can be booted here, or None."""
    if os.geteuid() != 0:
        return "needs root (debootstrap makes device nodes and owners)"
    programs = {"qemu-system-x86_64": "qemu-system-x86", "debootstrap": "debootstrap", "mkfs.ext4": "e2fsprogs"}
    absent = [package for program, package in programs.items() if shutil.which(program) is None]
    if kernel() is None:
        absent.append(KERNEL_PACKAGE)
    if absent:
        return f"not installed: {', '.join(absent)} (Debian packages)"
    if sys.version_info[:2] != PYTHON:
        return f"the guest's Python is {'.'.join(map(str, PYTHON))}, and this one's packages are compiled for another"
    return None


KERNEL_PACKAGE = "linux-image-6.1.0-50-cloud-amd64"
BROKEN = {"6.1.0-55-cloud-amd64"}
"""Kernels that fall over in our guests: 6.1.192 follows a null pointer in ext4 (`ext4_mb_load_buddy_gfp`) once caches
were dropped."""


def kernel() -> str | None:
    """The newest cloud kernel whose image, initrd and modules are all here, and which is sound."""
    found = [
        path.name.removeprefix("vmlinuz-")
        for path in Path("/boot").glob("vmlinuz-*-cloud-amd64")
        if Path("/boot", path.name.replace("vmlinuz", "initrd.img")).exists()
    ]
    usable = [version for version in found if Path("/lib/modules", version).is_dir() and version not in BROKEN]
    return max(usable, key=_numbers, default=None)


@dataclass(frozen=True, slots=True)
class Boot:
    """What qemu boots."""

    kernel: Path
    initrd: Path


def boot() -> Boot:
    """The installed kernel."""
    return Boot(Path(f"/boot/vmlinuz-{kernel()}"), Path(f"/boot/initrd.img-{kernel()}"))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.replace("-", ".").split(".") if part.isdigit()]


def cache() -> Path:
    """Where images are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubeqos" / "vm"


def root() -> Path:
    """The root file system; made now if its recipe changed or there is none."""
    recipe = [SUITE, kernel(), PACKAGES, FILES, EXECUTABLE, ENABLED, MASKED, ROOM_MIB]
    return _kept("root", json.dumps(recipe), _make_root)


def wheels() -> Path:
    """The packages that are installed beside this Python; made now if they changed."""
    packages = Path(sysconfig.get_path("purelib"))
    installed = sorted(path.name for path in packages.glob("*.dist-info"))
    recipe = json.dumps([installed, NOT_FOR_GUESTS])
    return _kept("wheels", recipe, functools.partial(_copy, [packages], NOT_FOR_GUESTS))


def stock() -> Path | None:
    """Kubernetes' own programs that a guest runs (tools/stock builds them); None where they are not built."""
    programs = find(*STOCK)
    if programs is None:
        return None
    recipe = json.dumps([[str(path), path.stat().st_mtime_ns] for path in programs])
    return _kept("stock", recipe, functools.partial(_copy, programs, ()))


def project(image: Path) -> None:
    """Write the tree as it is now."""
    with tempfile.TemporaryDirectory(prefix="kq-project-") as name:
        parts = [TREE / part for part in ("src", "tests", "tools", "examples", "pyproject.toml")]
        _copy(parts, ("*.pyc.*",), Path(name))  # compiled files that are being written go away under another name
        _make_image(Path(name), image, room_mib=8)


def _copy(sources: list[Path], leave_out: tuple[str, ...], folder: Path) -> None:
    ignored = shutil.ignore_patterns(*leave_out)
    for source in sources:
        if source.is_file():
            shutil.copy2(source, folder)
        else:
            target = folder if len(sources) == 1 else folder / source.name
            shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def _kept(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """The image of this recipe from the cache, where only the newest of its name stays."""
    image = cache() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.img"
    if image.exists():
        return image
    image.parent.mkdir(parents=True, exist_ok=True)
    half = image.with_suffix(f".half-{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=image.parent) as folder:
        try:
            make(Path(folder))
            _make_image(Path(folder), half, room_mib=ROOM_MIB if name == "root" else 16)
            half.rename(image)  # nobody ever sees half an image
        finally:
            half.unlink(missing_ok=True)
    for older in image.parent.glob(f"{name}-*.img"):
        if older != image:
            older.unlink(missing_ok=True)
    return image


def _make_root(folder: Path) -> None:
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(folder), MIRROR]
    done = subprocess.run(["nice", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"debootstrap failed: {done.stdout[-2000:]}")
    for path, text in FILES.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(text)
    for path in EXECUTABLE:
        (folder / path).chmod(0o755)
    units = folder / "etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    for unit in ENABLED:
        (units / "multi-user.target.wants" / unit).symlink_to(f"/etc/systemd/system/{unit}")
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    for mount in ("wheels", "project"):
        (folder / "kubeqos" / mount).mkdir(parents=True)
    modules = Path("lib/modules", str(kernel()))
    shutil.copytree("/" / modules, folder / "usr" / modules, symlinks=True)  # with its version: modprobe looks there
    shutil.rmtree(folder / "var/cache/apt", ignore_errors=True)


def _make_image(folder: Path, image: Path, *, room_mib: int) -> None:
    files = [path for path in folder.rglob("*") if not path.is_symlink()]
    # Every file ends in half an empty block on average, and inodes and the journal take a little of everything.
    used_mib = sum(path.lstat().st_size + 2048 for path in files) >> 20
    size_mib = int(used_mib * 1.1) + 24 + room_mib
    inodes = len(files) + max(4096, room_mib * 32)
    words = ["mkfs.ext4", "-q", "-F", "-N", str(inodes), "-d", str(folder), str(image), f"{size_mib}M"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
