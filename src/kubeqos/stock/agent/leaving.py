"""Takes an agent's folders away when kubeqos is uninstalled, from the host too. Called by both shells as they end.

In the DaemonSet the folder is a mount point: here it can be emptied, but only on the host can it be removed, whose
files are at `Settings.host_root` (the same way by which the runtime's settings are written).
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from kubeqos.errors import StateError
from kubeqos.logs import logger

TRIES, PAUSE_SECONDS = 20, 0.1
log = logger("kubeqos.agent")


async def remove_folders(folders: Iterable[Path], host_root: Path) -> None:
    """Remove each; what stays, and why, is told."""
    for folder in sorted(set(folders), key=lambda one: len(one.parts), reverse=True):  # inner ones first
        try:
            await _removed(folder, host_root)
        except (OSError, StateError) as error:
            why = error.what if isinstance(error, StateError) else str(error)
            log.error("a folder stays on this node", folder=str(folder), reason=why, remedy="remove it by hand")


async def _removed(folder: Path, host_root: Path) -> None:
    """A ledger is written by a thread, which ends a moment after whoever waited for it was cancelled."""
    for left in reversed(range(TRIES)):
        try:
            remove_folder(folder, host_root)
            return
        except OSError as error:
            if not left or error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        await asyncio.sleep(PAUSE_SECONDS)


def remove_folder(folder: Path, host_root: Path) -> None:
    """Remove a folder and what is in it; one that is mounted here, where it is on the host."""
    if not folder.exists():
        return
    on_host = host_root / folder.absolute().relative_to("/")
    is_the_hosts = _is_same(folder, on_host)  # asked while both are there
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        if not is_the_hosts:
            what = f"{folder} is mounted here, and {on_host} is not where it comes from"
            raise StateError(what) from error
        on_host.rmdir()


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
