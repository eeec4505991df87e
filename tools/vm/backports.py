"""A kernel for guests that is newer than Debian's stable one: from its backports, fetched by apt, installed nowhere.

apt works in a folder of its own, so this machine's sources and packages stay as they are. The package brings no initrd:
a small one is made here, of busybox and the few modules that a guest needs, which are therefore loaded before its root
file system is. Both are kept in the cache beside the images.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.vm import images

SUITE = f"{images.SUITE}-backports"
PACKAGE = "linux-image-cloud-amd64"
SOURCE = f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {images.MIRROR} {SUITE} main\n"
MODULES = ("virtio_blk", "virtio_console", "ext4", "overlay", "bfq")
"""Those of them that are not part of the kernel itself are loaded, with what they need."""
INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /dev /root
/bin/busybox mount -t devtmpfs dev /dev
while read module; do /bin/busybox insmod /modules/$module; done < /modules/order
until /bin/busybox mount -t ext4 /dev/vda /root; do /bin/busybox sleep 0.1; done
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""


def boot() -> images.Boot:
    """The kernel of backports and its initrd, from the cache; fetched and made now if there is none."""
    recipe = hashlib.sha256(json.dumps([SOURCE, PACKAGE, MODULES, INIT]).encode()).hexdigest()[:16]
    folder = images.cache() / f"backports-{recipe}"
    found = images.Boot(folder / "vmlinuz", folder / "initrd.img")
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="making-", dir=_there(images.cache())) as name:
            half = _there(Path(name, "half"))
            _make(Path(name), half)
            half.rename(folder)  # nobody ever sees half of it
        for older in images.cache().glob("backports-*"):
            if older != folder:
                shutil.rmtree(older)
    return found


@functools.cache
def missing() -> str | None:
    """Why there is no such kernel, or None: found out once, by getting it."""
    absent = [name for name in ("apt-get", "cpio", "depmod", "busybox") if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    try:
        boot()
    except RuntimeError as error:
        return f"no kernel of {SUITE}: {error}"
    return None


def _make(work: Path, target: Path) -> None:
    package = _fetched(_there(work / "apt"))
    tree = _there(work / "tree")
    _run("dpkg-deb", "-x", str(package), str(tree))
    [image] = (tree / "boot").glob("vmlinuz-*")
    version = image.name.removeprefix("vmlinuz-")
    _run("depmod", "-b", str(tree), version)
    initrd = _there(work / "initrd")
    _fill(initrd, tree / "lib/modules" / version)
    names = "\n".join(str(path.relative_to(initrd)) for path in sorted(initrd.rglob("*")))
    archive = _run("cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0", "-D", str(initrd), text=names)
    (target / "initrd.img").write_bytes(gzip.compress(archive, 1))
    shutil.copy(image, target / "vmlinuz")


def _fetched(work: Path) -> Path:
    """The package of the newest kernel in backports."""
    (work / "sources.list").write_text(SOURCE)
    (work / "status").touch()
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    places = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for key, value in places.items() for word in ("-o", f"{key}={value}")]
    _run("apt-get", *options, "-q", "update", "--error-on=any")
    said = _run("apt-cache", *options, "depends", PACKAGE).decode()
    newest = next(line.split()[1] for line in said.splitlines() if "Depends: linux-image-" in line)
    _run("apt-get", *options, "-q", "download", newest, folder=work)
    return next(work.glob("*.deb"))


def _fill(initrd: Path, modules: Path) -> None:
    for name in ("bin", "modules"):
        _there(initrd / name)
    shutil.copy(shutil.which("busybox") or "", initrd / "bin/busybox")
    (initrd / "init").write_text(INIT)
    (initrd / "init").chmod(0o755)
    order = []
    for path in _in_order((modules / "modules.dep").read_text()):
        packed = (modules / path).read_bytes()
        name = Path(path).name.removesuffix(".xz")
        (initrd / "modules" / name).write_bytes(lzma.decompress(packed) if path.endswith(".xz") else packed)
        order.append(f"{name}\n")
    (initrd / "modules/order").write_text("".join(order))


def _in_order(dependencies: str) -> Iterator[str]:
    """The files of the modules and of those that they need, each after what it needs. Built-in ones have no file."""
    needs = {}
    for line in dependencies.splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).name.partition(".")[0]] = [*reversed(others.split()), path]
    yield from dict.fromkeys(path for name in MODULES for path in needs.get(name, ()))


def _there(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(*words: str, text: str = "", folder: Path | None = None) -> bytes:
    done = subprocess.run(words, input=text.encode(), capture_output=True, cwd=folder, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return done.stdout
