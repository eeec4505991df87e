"""Container images made on the spot from the system's static busybox, so that no registry is needed."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
PAUSE_IMAGE = "localhost/kubeqos/pause:1"
BUSYBOX_IMAGE = "localhost/kubeqos/busybox:1"
APPLETS = (
    "sh",
    "sleep",
    "echo",
    "cat",
    "true",
    "false",
    "head",
    "tail",
    "dd",
    "kill",
    "env",
    "id",
    "ls",
    "yes",
    "seq",
)


def write_image_tar(path: Path, *, name: str, command: list[str], ballast_bytes: int = 0) -> None:
    """Write one image in docker-archive layout: a root file system with busybox, a default command, and ballast."""
    layer = _layer(ballast_bytes)
    config = image_config(layer, {"Cmd": command})
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as archive:
        for member, data in ((config_name, config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def image_config(layer: bytes, runs: dict[str, object]) -> bytes:
    """What an image of this layer says of itself: its default command, user and so on."""
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "WorkingDir": "/", **runs},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created_by": "kubeqos tests"}],
        }
    ).encode()


def _layer(ballast_bytes: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in ("bin", "proc", "sys", "dev", "tmp", "etc"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(info)
        binary = BUSYBOX.read_bytes()
        info = tarfile.TarInfo("bin/busybox")
        info.size, info.mode = len(binary), 0o755
        layer.addfile(info, io.BytesIO(binary))
        for applet in APPLETS:
            info = tarfile.TarInfo(f"bin/{applet}")
            info.type, info.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(info)
        if ballast_bytes:
            info = tarfile.TarInfo("ballast")
            info.size = ballast_bytes
            layer.addfile(info, io.BytesIO(random.Random(7).randbytes(ballast_bytes)))
    return buffer.getvalue()
