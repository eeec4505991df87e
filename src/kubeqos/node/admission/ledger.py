"""The node's one ledger: which pods are admitted, with which resources, and the state of every manager.

Saved before the first container of a pod starts, so that a restart gives the same answer to every pod. A damaged file
never stops the agent: it is set aside and the state is rebuilt from what runs (DESIGN §5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kubeqos.checkpoint import Checkpoint
from kubeqos.codec import encode_json_sorted
from kubeqos.plugins.managers import AdmittedPod

FORMAT, VERSION = "kubeqos-node-ledger", 1


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One admitted pod: who it is and the resources that it has, by container (see `node.pod.resize`)."""

    namespace: str
    name: str
    resources: Mapping[str, Any]
    untold: tuple[str, ...] = ()
    """Containers, and perhaps the sandbox, that run with what they had before a resize."""

    def shadow(self, uid: str) -> AdmittedPod:
        """A pod of which only the ledger is left, until it is known to be gone."""
        containers = [{"name": name, "resources": resources} for name, resources in self.resources.items() if name]
        raw = {
            "metadata": {"uid": uid, "namespace": self.namespace, "name": self.name},
            "spec": {"containers": containers, **self.resources.get("", {})},
        }
        return AdmittedPod.of(raw)


@dataclass(slots=True)
class Loaded:
    """What a start found. `damaged` names files that were set aside."""

    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    managers: dict[str, Any] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    found: bool = False
    reserved: tuple[str, ...] = ()
    """Pods whose admission was cut short: managers may hold something for them, and no container was started."""


@dataclass(slots=True)
class Restored:
    """What a restart did to the ledger: repairs in words, and files that were set aside."""

    repairs: list[str] = field(default_factory=list)
    damaged: tuple[str, ...] = ()


class NodeLedger(Protocol):
    """Where admission keeps what must survive it."""

    async def save(
        self, entries: Mapping[str, LedgerEntry], managers: Mapping[str, Any], reserved: Collection[str] = ()
    ) -> None:
        """When this returns, the state survives a power cut."""

    def load(self) -> Loaded: ...


class LocalLedger:
    """A ledger that lives as long as the process: for fleets of simulated nodes, which have no power to be cut."""

    async def save(
        self, entries: Mapping[str, LedgerEntry], managers: Mapping[str, Any], reserved: Collection[str] = ()
    ) -> None:
        """Nothing to do: whoever saves has it all."""

    def load(self) -> Loaded:
        return Loaded()


class FileLedger:
    """A ledger on disk. Synced in a thread where others must not wait for the disk, at once in virtual time."""

    def __init__(self, folder: Path, *, threaded: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = Checkpoint(folder / "ledger.json", format=FORMAT, version=VERSION)
        self._threaded = threaded

    async def save(
        self, entries: Mapping[str, LedgerEntry], managers: Mapping[str, Any], reserved: Collection[str] = ()
    ) -> None:
        pods = {uid: [one.namespace, one.name, one.resources, one.untold] for uid, one in entries.items()}
        # As text at once: what the managers gave us may change while the disk is busy.
        text = encode_json_sorted({"pods": pods, "managers": dict(managers), "reserved": sorted(reserved)})
        if self._threaded:
            await asyncio.to_thread(self._file.save_text, text)
        else:
            self._file.save_text(text)

    def load(self) -> Loaded:
        loaded = self._file.load()
        if loaded.data is None:
            return Loaded(damaged=loaded.set_aside)
        try:
            entries = {
                uid: LedgerEntry(row[0], row[1], row[2], tuple(row[3])) for uid, row in loaded.data["pods"].items()
            }
            reserved = tuple(loaded.data.get("reserved", ()))
            return Loaded(entries, dict(loaded.data["managers"]), loaded.set_aside, True, reserved)
        except (KeyError, TypeError, AttributeError, IndexError):
            # A good checksum over content that is not ours: treat it as damaged, keep the file for the curious.
            return Loaded(damaged=(*loaded.set_aside, "ledger.json (content)"))
