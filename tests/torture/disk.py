"""The disk under SQLite: what was not synced may be lost or torn when the power goes, and writes may fail.

A VFS of SQLite's own kind: files lie in a folder of memory, every write that was not synced yet is remembered with what
it replaced. The folder of a dead server is never touched again: the next one gets a copy of what a disk would have.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

import kubeqos.store.database

NAME = "torture"
BASE = apsw.vfs_names()[0]
SECTOR = 512


class Disk:
    """All files below one folder. `fail` is asked before every write: 'full', 'broken' or nothing."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.fail: Callable[[], str] = lambda: ""
        self.before_write: Callable[[], None] = lambda: None
        self.writes = 0
        self.unsynced: dict[str, list[tuple[int, bytes, bytes]]] = {}

    def written(self, path: str, offset: int, old: bytes, new: bytes) -> None:
        self.unsynced.setdefault(path, []).append((offset, old, new))

    def synced(self, path: str) -> None:
        self.unsynced.pop(path, None)

    def copy(self, target: Path, *, power_cut: bool) -> None:
        """What the next server finds: everything that was written, or what of it a power cut left."""
        target.mkdir(parents=True)
        for file in sorted(self.folder.iterdir()):
            if file.is_file() and not file.name.endswith(("-shm", ".lock")):
                shutil.copyfile(file, target / file.name)
        for path, writes in self.unsynced.items() if power_cut else ():
            if (copied := target / Path(path).name).exists():
                self._lose(copied, writes)

    def _lose(self, file: Path, writes: list[tuple[int, bytes, bytes]]) -> None:
        """Undo some sectors of what was not synced, newest first."""
        with open(file, "r+b") as copy:
            for offset, old, new in reversed(writes):
                for at in range(0, len(new), SECTOR):
                    if self.chance.random() < 0.5:
                        piece = (old + b"\0" * len(new))[at : at + min(SECTOR, len(new) - at)]
                        copy.seek(offset + at)
                        copy.write(piece)

    def left(self) -> dict[str, list[tuple[int, bytes, bytes]]]:
        """By file: what a process that dies now has written and not synced. That is not lost until the power is."""
        return {Path(path).name: list(writes) for path, writes in self.unsynced.items()}

    def inherit(self, left: dict[str, list[tuple[int, bytes, bytes]]]) -> None:
        self.unsynced = {str(self.folder / name): writes for name, writes in left.items()}


DISKS: list[Disk] = []


def disk_of(path: str) -> Disk | None:
    return next((disk for disk in DISKS if path.startswith(f"{disk.folder}/")), None)


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.path = (name.filename() if isinstance(name, apsw.URIFilename) else name) or ""
        self.disk = disk_of(self.path)
        super().__init__(BASE, name, flags)  # type: ignore[arg-type]

    def xWrite(self, data: bytes, offset: int) -> None:
        disk = self.disk
        if disk is not None:
            disk.writes += 1
            disk.before_write()
            self._fail(disk)
            size = super().xFileSize()
            old = super().xRead(min(len(data), size - offset), offset) if size > offset else b""
            disk.written(self.path, offset, old, bytes(data))
        super().xWrite(data, offset)

    def _fail(self, disk: Disk) -> None:
        how = disk.fail()
        if how == "full":
            raise apsw.FullError(os.strerror(errno.ENOSPC))
        if how == "broken":
            raise apsw.IOError(os.strerror(errno.EIO))

    def xSync(self, flags: int) -> None:
        if self.disk is not None:
            self.disk.before_write()
            if self.disk.fail() == "broken":
                raise apsw.IOError(os.strerror(errno.EIO))
            self.disk.synced(self.path)
        # The folder is in memory: there is nothing to wait for.


class _Files(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(NAME, BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(name, flags)


_installed: list[_Files] = []


def install() -> None:
    """From now on SQLite's files of this process lie on `DISKS`, where one of them has them."""
    if not _installed:
        _installed.append(_Files())
        kubeqos.store.database.sync_file = _sync_file


def _sync_file(path: Path) -> None:
    disk = disk_of(str(path))
    if disk is not None:
        disk.synced(str(path))
