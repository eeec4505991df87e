"""The one checkpoint writer: small state files that survive crashes and tell when they were damaged.

A checkpoint is a JSON envelope `{"format", "version", "checksum", "data"}`. Saving writes a temporary file, syncs it,
keeps the previous good file as `<name>.previous`, renames and syncs the directory. Loading verifies the checksum;
a torn or foreign file is set aside as `<name>.damaged-<n>` and the previous good one is used, so the owner can always
start and rebuild the rest from the runtime and the plugins (DESIGN §5).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeqos.codec import JsonError, decode_json, encode_json, encode_json_sorted
from kubeqos.errors import StateError


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load found: the data (None when nothing usable was there) and what was set aside."""

    data: Any | None
    version: int | None = None
    set_aside: tuple[str, ...] = ()
    from_previous: bool = False


class Checkpoint:
    """One named state file with atomic, checksummed saves.

    Without `sync` a save survives the death of the process, but not a power cut: for state that means nothing once the
    machine has restarted, such as which running container has which CPUs.
    """

    def __init__(
        self,
        path: Path,
        *,
        format: str,
        version: int,
        sync: bool = True,
        before_step: Callable[[str], None] | None = None,
    ):
        self.path = path
        self.format = format
        self.version = version
        self.sync = sync
        self._before_step = before_step or (lambda _step: None)
        self._previous = path.with_name(path.name + ".previous")

    def save(self, data: Any) -> None:
        """Replace the stored state; when this returns, the new state survives a power cut (with `sync`)."""
        self.save_text(encode_json_sorted(data))

    def save_text(self, text: bytes) -> None:
        """`save` for a state that is text with sorted keys already: encoded once, and safe for another thread."""
        head = {"format": self.format, "version": self.version, "checksum": _digest(text)}
        envelope = b'%b,"data":%b}' % (encode_json(head)[:-1], text)
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            self._before_step("write")
            with open(temporary, "wb") as file:
                file.write(envelope)
                file.flush()
                if self.sync:
                    os.fsync(file.fileno())
            if self.sync and self.path.exists():
                self._before_step("keep-previous")
                self._previous.unlink(missing_ok=True)
                os.link(self.path, self._previous)
            self._before_step("rename")
            os.replace(temporary, self.path)
            if self.sync:
                self._before_step("sync-directory")
                sync_directory(self.path.parent)
        except OSError as error:
            raise StateError(
                f"cannot save checkpoint: {error.strerror}",
                where=str(self.path),
                remedy="free space or fix the permissions of the state directory",
            ) from error

    def load(self) -> Loaded:
        """The newest good state; never raises for damaged content, which is set aside by name."""
        set_aside: list[str] = []
        for candidate in (self.path, self._previous):
            if not candidate.exists():
                continue
            envelope = self._read(candidate)
            if envelope is not None:
                return Loaded(envelope["data"], envelope["version"], tuple(set_aside), candidate == self._previous)
            set_aside.append(self._put_aside(candidate))
        return Loaded(None, None, tuple(set_aside))

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            envelope = decode_json(path.read_bytes())
        except (OSError, JsonError, UnicodeDecodeError):
            return None
        if not isinstance(envelope, dict) or envelope.get("format") != self.format:
            return None
        version = envelope.get("version")
        if not isinstance(version, int) or version > self.version or "data" not in envelope:
            return None
        return envelope if envelope.get("checksum") == checksum(envelope["data"]) else None

    def _put_aside(self, path: Path) -> str:
        number = 1
        while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
            number += 1
        os.replace(path, target)
        return target.name


def checksum(data: Any) -> str:
    """Digest of the content, independent of key order and of the language that wrote it."""
    return _digest(encode_json_sorted(data))


def _digest(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


def sync_directory(directory: Path) -> None:
    """Make a rename in this directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
