"""A registry on loopback with the images that critest asks for, made on the spot from the system's static busybox.

containerd is told to ask it for everything of the real registries, so that images keep the names that critest knows.
What cannot be made here: the image that critest names by its digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.cri.images import BUSYBOX, image_config

HOSTS = ("registry.k8s.io", "gcr.io", "k8s.gcr.io")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
FOLDERS = ("bin", "dev", "etc", "home", "lib64", "proc", "root", "sys", "tmp", "var/run", "www")
Files = dict[str, tuple[int, bytes]]

SERVES = b"#!/bin/sh\necho $$ >/var/run/nginx.pid\necho httpd starts\nexec httpd -f -p ${2:-80} -h /www\n"
# A process is found by the name of the script that it began with, so this one may not become another program.
NGINX = SERVES.replace(b"exec ", b"")
PGREP = b'#!/bin/sh\nfor one in /proc/[0-9]*; do grep -q "$1" $one/comm && echo ${one#/proc/}; done\n'
USERS = b"root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/www:/bin/sh\nnobody:x:65534:65534::/home:/bin/sh\n"
GROUPS = b"root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n"
DEFAULT_USER = b"default-user:x:1000:1000::/home:/bin/sh\n"
IN_IMAGE = b"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"


def _layer(files: Files) -> bytes:
    """A root file system with every applet of busybox, and these files."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:

        def add(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, data: bytes = b"", link: str = "") -> None:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.size, info.linkname = kind, mode, len(data), link
            layer.addfile(info, io.BytesIO(data))

        for folder in FOLDERS:
            add(folder, tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "var/run") else 0o755)
        add("bin/busybox", data=BUSYBOX.read_bytes())
        for applet in applets:
            if applet == "ls":  # which critest masks, and nothing else with it; a copy of all would take minutes
                add("bin/ls", tarfile.LNKTYPE, link="bin/busybox")
            elif applet != "busybox" and f"bin/{applet}" not in files:
                add(f"bin/{applet}", tarfile.SYMTYPE, link="busybox")
        for name, (mode, data) in files.items():
            add(name, mode=mode, data=data)
    return buffer.getvalue()


def _program(path: str, mode: int = 0o755) -> Files:
    """A program of this machine with what it is linked with, for what busybox does not do."""
    words = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split()
    libraries = {word for word in words if word.startswith("/")}
    return {
        f"bin/{Path(path).name}": (mode, Path(path).read_bytes()),
        **{one.lstrip("/"): (0o755, Path(one).read_bytes()) for one in sorted(libraries)},
    }


def _privileged_id() -> Files:
    """`id` as root's with the set-uid bit: busybox gives such a right away."""
    script = b'#!/bin/sh\necho "Effective uid: $(/bin/id -u)"\n'
    return {**_program("/usr/bin/id", 0o4755), "bin/nnp": (0o755, script)}


def _images() -> Iterator[tuple[str, Files, dict[str, object]]]:
    """The images, with what is in them beside busybox and how they run."""
    tests, tools = "e2e-test-images", "k8s-staging-cri-tools"
    shell = {"Cmd": ["sh"]}
    # A containerd that removes a container which ends in that very moment may say that it still runs.
    stays = {"Cmd": ["sleep", "1000000"]}
    yield f"{tests}/busybox:1.29-2", _program("/usr/bin/ipcs"), shell
    yield f"{tests}/nginx:1.14-2", {"bin/nginx": (0o755, NGINX)}, {"Cmd": ["nginx", "master process"]}
    yield f"{tests}/httpd:2.4.39-4", {"bin/serves": (0o755, SERVES)}, {"Cmd": ["serves"]}
    yield f"{tools}/hostnet-nginx-amd64:latest", {"bin/serves": (0o755, SERVES)}, {"Cmd": ["serves", "on", "12003"]}
    yield f"{tests}/nonewprivs:1.3", _privileged_id(), {"Cmd": ["nnp"]}
    yield "pause:3.9", {}, stays
    for name, user in (
        ("uid", "1002"),
        ("username", "www-data"),
        ("uid-group", "1003:users"),
        ("username-group", "www-data:100"),
    ):
        yield f"{tools}/test-image-user-{name}:latest", {}, {**shell, "User": user}
    members: Files = {"etc/passwd": (0o644, USERS + DEFAULT_USER), "etc/group": (0o644, GROUPS + IN_IMAGE)}
    yield f"{tools}/test-image-predefined-group:latest", members, {**shell, "User": "1000"}
    for name in ("latest:latest", "tag:test", "tag:all", "1:latest", "2:latest", "3:latest"):
        yield f"{tools}/test-image-{name}", {f"is-{name}": (0o644, b"")}, stays
    for tag in "123":
        yield f"{tools}/test-image-tags:{tag}", {"is-tags": (0o644, b"")}, stays


class Registry(ThreadingHTTPServer):
    """Manifests by name and by digest, and the parts that they name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        for name, files, runs in _images():
            common: Files = {
                "etc/passwd": (0o644, USERS), "etc/group": (0o644, GROUPS), "bin/pgrep": (0o755, PGREP),
                "www/index.html": (0o644, b"welcome\n"),
            }  # fmt: skip
            self._add(name, _layer({**common, **files}), runs)

    def _add(self, name: str, layer: bytes, runs: dict[str, object]) -> None:
        config = image_config(layer, runs)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._blob(config, "application/vnd.docker.container.image.v1+json"),
            "layers": [self._blob(layer, "application/vnd.docker.image.rootfs.diff.tar")],
        }
        data = json.dumps(manifest).encode()
        repository = name.rpartition(":")[0]
        self.manifests[name] = self.manifests[f"{repository}:{_digest(data)}"] = data

    def _blob(self, data: bytes, kind: str) -> dict[str, object]:
        self.blobs[_digest(data)] = data
        return {"mediaType": kind, "digest": _digest(data), "size": len(data)}

    def write_hosts(self, folder: Path) -> None:
        """Tell containerd that this is the registry for all the names that critest uses."""
        here = f"http://127.0.0.1:{self.server_address[1]}"
        for host in HOSTS:
            (folder / host).mkdir(parents=True)
            (folder / host / "hosts.toml").write_text(
                f'server = "{here}"\n[host."{here}"]\n  capabilities = ["pull", "resolve"]\n'
            )


class _Handler(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/?]+)(\?.*)?", self.path)
        data: bytes | None = b"{}" if found is None and self.path.startswith("/v2/") else None
        kind = "application/json"
        if found and found[2] == "manifests":
            data, kind = self.server.manifests.get(f"{found[1]}:{found[3]}"), MANIFEST
        elif found:
            data, kind = self.server.blobs.get(found[3]), "application/octet-stream"
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data or b"")))
        if data is not None:
            self.send_header("Docker-Content-Digest", _digest(data))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data or b"")

    do_HEAD = do_GET

    def log_message(self, *_words: object) -> None:
        """Nobody reads what was asked for."""


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def running_registry() -> Iterator[Registry]:
    with Registry() as registry:
        thread = threading.Thread(target=registry.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.shutdown()
            thread.join()
