"""The test driver: the reference driver, with answers and faults from a script that may change while it runs.

The script is a JSON list of rules; the first that matches a call is used, `times` times (then for ever no more):

    [{"method": "CCIAdmit", "do": "hang", "seconds": 60, "times": 1},
     {"method": "CCIAddContainerResource", "do": "die"}]
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.sdk import Ask, End, Refuse, Start
from kubeqos.codec import decode_json, encode_json
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine

ADMIT, ADD, REMOVE = "CCIAdmit", "CCIAddContainerResource", "CCIRemoveContainerResource"


def _answer(cpus: CpuSet, exclusive: bool = True) -> pb.AdmitResponse:
    return pb.AdmitResponse(rSet=pb.ResourceSet(cpuset=str(cpus), exclusive=exclusive))


def _malformed(_driver: Scripted, _ask: Ask) -> pb.AdmitResponse:
    return pb.AdmitResponse(rSet=pb.ResourceSet(cpuset="0-,x", exclusive=True))


def _outside(driver: Scripted, ask: Ask) -> pb.AdmitResponse:
    """As many CPUs as asked for, from those that are not available (or do not exist)."""
    beyond = driver.machine.online.mask.bit_length()
    others = driver.machine.online - CpuSet.from_ids(ask.available)
    return _answer((others | CpuSet.from_ids(range(beyond, beyond + ask.least))).lowest(ask.least))


def _count(_driver: Scripted, ask: Ask) -> pb.AdmitResponse:
    return _answer(CpuSet.from_ids(ask.available).lowest(ask.least + 1))


def _shared(_driver: Scripted, ask: Ask) -> pb.AdmitResponse:
    return _answer(CpuSet.from_ids(ask.available).lowest(ask.least), exclusive=not ask.groups[0].exclusive)


LIES: Mapping[str, Callable[[Scripted, Ask], pb.AdmitResponse]] = {
    "malformed": _malformed,
    "outside": _outside,
    "count": _count,
    "shared": _shared,
    "nothing": lambda _driver, _ask: pb.AdmitResponse(),
}
FAULTS = ("refuse", "hang", "die", "fail", *LIES)


class Scripted(Reference):
    """Does what its script says, and otherwise what the reference driver does."""

    def __init__(self, machine: Machine, script: Path, name: str = "test.cci.kubeqos.io") -> None:
        super().__init__(machine, name)
        self.script = script

    async def admit(self, ask: Ask) -> Any:  # type: ignore[override]
        rule = await self._misbehave(ADMIT, ask.claim_name)
        if rule and rule["do"] in LIES:
            return LIES[rule["do"]](self, ask)
        return super().admit(ask)

    async def add(self, start: Start) -> None:
        await self._misbehave(ADD, start.container)

    async def remove(self, end: End) -> None:
        await self._misbehave(REMOVE, end.claim_name)

    async def _misbehave(self, method: str, subject: str) -> Mapping[str, Any] | None:
        rule = self._take(method, subject)
        if rule is None:
            return None
        match rule["do"]:
            case "refuse":
                raise Refuse(rule.get("text", "the script says no"))
            case "fail":
                raise RuntimeError(rule.get("text", "the script breaks the driver"))
            case "hang":
                await asyncio.sleep(rule.get("seconds", 3600))
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return rule

    def _take(self, method: str, subject: str) -> dict[str, Any] | None:
        """The rule for a call; one that is used up leaves the file first, so that a death is not repeated."""
        rules = decode_json(self.script.read_bytes()) if self.script.exists() else []
        for rule in rules:
            if rule.get("do") not in FAULTS:
                known = ", ".join(FAULTS)
                raise InputError(f"unknown fault {rule.get('do')!r}", where=str(self.script), remedy=f"known: {known}")
            if rule.get("method", method) != method or not fnmatch.fnmatch(subject, rule.get("match", "*")):
                continue
            if "times" in rule:
                rule["times"] -= 1
                kept = [one for one in rules if one.get("times", 1) > 0]
                scratch = self.script.with_name(self.script.name + ".new")
                scratch.write_bytes(encode_json(kept))
                os.replace(scratch, self.script)
            return dict(rule)
        return None
