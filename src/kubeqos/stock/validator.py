"""containerd's validator of required NRI plugins, in its own files: whether it is on, and turning it on and off.

containerd reads its file, then those that the file imports; the later one holds. What we write is a file of our own
that it imports, and where it imports none, one marked line more. Only what is written here is ever taken away. Called
by the agent, where the administrator asked for it, and by `kubeqos doctor`, which only reads.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import socket
import struct
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from kubeqos.checkpoint import sync_directory
from kubeqos.document import parse_document
from kubeqos.errors import ConfigurationError, StateError
from kubeqos.stock.names import CONTAINERD_CONFIG

OLDEST = (2, 2)
"""The first containerd that has the validator."""
_PLUGIN, _SECTION = "io.containerd.nri.v1.nri", "default_validator"
_NAME = "kubeqos.toml"
_IMPORT = f'imports = ["conf.d/{_NAME}"] # written by kubeqos, which takes it away again\n'
_TEXT = f"""\
# Written by kubeqos, which takes it away again: who asks for something does not start while its agent is away.
# {{note}}
version = 3
[plugins."{_PLUGIN}".{_SECTION}]
  enable = true
"""
_NOTE = re.compile(r"Runtime (\S+), folder (made|found)\.")
_OURS = re.compile(re.escape(_TEXT).replace(re.escape("{note}"), _NOTE.pattern))


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What an administrator lets agents do to the runtimes of their nodes."""

    config: Path
    restart: str = ""
    """A command; without one somebody has to restart the runtime."""


def parse_settings(text: str, source: str) -> RuntimeSettings | None:
    """The file `runtime.yaml` of the installation; None where it is empty."""
    doc = parse_document(text, source)
    fields = doc.fields(("config", "restart"))
    if not fields:
        return None
    config = Path(doc.required(fields, "config").text())
    if not config.is_absolute():
        fields["config"].fail(f"{str(config)!r} is not an absolute path", f"such as {CONTAINERD_CONFIG}")
    return RuntimeSettings(config, fields["restart"].text() if "restart" in fields else "")


def has_validator(runtime: str, version: str) -> str:
    """Why a runtime has no validator that can be turned on here; empty where it has."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if runtime != "containerd":
        return f"{runtime} {version}: its validator is turned on in its own settings, not by kubeqos"
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        return f"containerd {version} has no validator of required plugins: 2.2 and newer have"
    return ""


def is_on(config: Path, root: Path = Path("/")) -> bool | None:
    """Whether containerd's files turn the validator on; None where they cannot be read."""
    found = None
    for raw in _read(config, root):
        plugin = (raw.get("plugins") or {}).get(_PLUGIN) or {}
        said = (plugin.get(_SECTION) or {}).get("enable")
        found = bool(said) if said is not None else bool(found)
    return found


def waits_for(config: Path, root: Path, runtime: str) -> bool:
    """Whether our file was written while this very runtime ran, which has not read it."""
    for path in _places(config, root):
        if (match := _OURS.fullmatch(_text_of(path))) is not None and match[1] == runtime:
            return True
    return False


def write(config: Path, root: Path, runtime: str) -> Path | None:
    """Turn the validator on; answers our file, or None where others have turned it on."""
    if is_on(config, root):
        return next((path for path in _places(config, root) if _OURS.fullmatch(_text_of(path))), None)
    main = _inside(config, root)
    if main.is_symlink():
        raise StateError(f"{config} is a link: kubeqos does not change where it leads", remedy=_by_hand(config))
    text = _text_of(main)
    if not main.exists():
        target = main
    elif (named := _named(config, root, text)) is not None:
        target = named
    elif "imports" in _parsed(text, config):
        raise StateError(f"{config} imports other files, and no folder for {_NAME}", remedy=_by_hand(config))
    else:
        target = main.parent / "conf.d" / _NAME
    folder = _folder_of(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _replace(target, _TEXT.format(note=f"Runtime {runtime}, folder {folder}."))
    if target != main and _named(config, root, text) is None:
        _replace(main, _IMPORT + text)
    if not is_on(config, root):
        remove(config, root)
        raise StateError(f"another file that {config} imports turns the validator off", remedy="remove that setting")
    return target


def remove(config: Path, root: Path) -> list[Path]:
    """Take away what was written here, and answer what that was. Whatever others have changed stays."""
    gone = []
    main = _inside(config, root)
    for path in _places(config, root):
        if (match := _OURS.fullmatch(_text_of(path))) is None:
            continue
        if path != main and (text := _text_of(main)).startswith(_IMPORT):
            _replace(main, text.removeprefix(_IMPORT))
            gone.append(main)
        path.unlink()
        gone.append(path)
        if match[2] == "made" and not any(path.parent.iterdir()):
            path.parent.rmdir()
    return gone


def _folder_of(target: Path) -> str:
    """Whether our file's folder is ours too; a file of that name that is not ours stays as it is."""
    had = _OURS.fullmatch(_text_of(target))
    if had is None and target.exists():
        raise StateError(f"{target} is not what kubeqos wrote", remedy="remove it, or turn the validator on there")
    return had[2] if had is not None else "found" if target.parent.is_dir() else "made"


def running(link: socket.socket) -> str:
    """Who is at the other end of a local socket: a process, and when it started, on which boot."""
    pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    try:
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
    return f"{pid}/{started}/{boot}"


def _read(config: Path, root: Path) -> Iterator[dict[str, Any]]:
    """containerd's files in the order in which it reads them."""
    pending, seen = [config], set()
    while pending:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            raw = tomllib.loads(_inside(path, root).read_text())
        except (OSError, ValueError):
            if path == config:
                return
            continue  # one that this process cannot see; the runtime says what is wrong with it
        yield raw
        for pattern in map(str, raw.get("imports") or ()):
            absolute = os.path.normpath(path.parent / pattern)
            if "*" in absolute:
                matches = sorted(glob.glob(str(_inside(Path(absolute), root))))
                pending += [Path("/") / Path(one).relative_to(root) for one in matches]
            else:
                pending.append(Path(absolute))


def _places(config: Path, root: Path) -> list[Path]:
    """Where a file of ours may be."""
    main = _inside(config, root)
    try:
        named = _named(config, root, _text_of(main))
    except ConfigurationError:
        named = None
    return list(dict.fromkeys(path for path in (main, named, main.parent / "conf.d" / _NAME) if path is not None))


def _named(config: Path, root: Path, text: str) -> Path | None:
    """Where containerd's file lets us put one of our own."""
    for pattern in map(str, _parsed(text, config).get("imports") or ()):
        folder, name = os.path.split(os.path.normpath(config.parent / pattern))
        if "*" not in folder and fnmatch(_NAME, name):
            return _inside(Path(folder), root) / _NAME
    return None


def _parsed(text: str, config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"cannot read the runtime's settings: {error}", where=str(config)) from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the runtime's settings: {error}", where=str(path)) from error


def _replace(path: Path, text: str) -> None:
    """The file whole or not at all, with the rights that it had."""
    fresh = path.with_name(f".{path.name}.kubeqos")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        shutil.copymode(path, fresh)
        had = path.stat()
        os.chown(fresh, had.st_uid, had.st_gid)
    os.replace(fresh, path)
    sync_directory(path.parent)


def _inside(path: Path, root: Path) -> Path:
    return root / path.relative_to("/")


def _by_hand(config: Path) -> str:
    return f'let {config} have: imports = ["/etc/containerd/conf.d/*.toml"], or turn {_SECTION} on there yourself'
