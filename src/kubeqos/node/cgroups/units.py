"""The node's slices as units of systemd: made with their values, changed through it, stopped with their pod.

Between the plan (`node.cgroups.plan`) and the files (`node.cgroups.files`): what systemd has a property for is set
there first, so that it neither starts a slice with its defaults nor goes back to them later. Called by
`node.cgroups.keeper`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kubeqos.cri.enforcing.systemd import Systemd, SystemdError, is_systemds, kept_tree
from kubeqos.node.cgroups.classes import Files
from kubeqos.rules.qos.unitproperties import (
    V1_PERIOD,
    V1_QUOTA,
    Properties,
    quota_as_kept,
    translated,
    unit_of,
    v1_quota_as_kept,
)


class SystemdUnits:
    """The slices of one node. `root` is where the cgroups are mounted."""

    def __init__(self, systemd: Systemd, root: Path) -> None:
        self._systemd = systemd
        self._tree = kept_tree(root)
        self._told: dict[str, Properties] = {}

    async def tell(self, contents: Mapping[str, Files]) -> tuple[dict[str, Files], list[str]]:
        """Tell systemd what is new; what is left to be in the files, and what it would not take.

        A systemd that does not answer is asked nothing more this time: the values are then in the files at least.
        """
        kept = {path: _as_kept(files) for path, files in contents.items()}
        problems: list[str] = []
        for path, files in kept.items():
            unit = unit_of(path)
            try:
                if unit:
                    await self._tell_unit(unit, path, {name: text for (_, name), text in files.items()})
            except SystemdError as error:
                self._told.pop(unit, None)
                problems.append(f"{path}: {error.what}; a reload of systemd may take these values back")
                if not error.name:
                    break
        return kept, problems

    async def _tell_unit(self, unit: str, path: str, files: Mapping[str, str]) -> None:
        wanted = translated(files, await self._systemd.version()).properties
        told = self._told.get(unit)
        if told is None or not (self._tree / path.strip("/")).is_dir():
            await self._systemd.start_slice(unit, wanted)
        else:
            await self._systemd.set_properties(
                unit, {name: one for name, one in wanted.items() if told.get(name) != one}
            )
        self._told[unit] = wanted

    async def stop(self, path: str) -> str:
        """The pod of a slice is gone; why it cannot be stopped, if so."""
        unit = unit_of(path)
        self._told.pop(unit, None)
        try:
            if unit:
                await self._systemd.stop(unit)
        except SystemdError as error:
            return error.what
        return ""

    async def reloaded(self) -> None:
        """Wait until systemd has read its configuration again."""
        await self._systemd.reloaded.wait()
        self._systemd.reloaded.clear()

    def close(self) -> None:
        self._systemd.close()


def _as_kept(files: Files) -> Files:
    kept = {key: quota_as_kept(text) if key[1] == "cpu.max" else text for key, text in files.items()}
    quota, period = ("cpu", V1_QUOTA), ("cpu", V1_PERIOD)
    if quota in kept and period in kept:
        kept[quota] = v1_quota_as_kept(kept[quota], kept[period])
    return kept


def units_of(driver: str, root: Path) -> SystemdUnits | None:
    """The units behind a node's cgroups; none where systemd does not keep them."""
    return SystemdUnits(Systemd(), root) if driver == "systemd" and is_systemds(root) else None
