"""CPUs that containers own by a manager that this node no longer has, since its gate was turned off.

They were promised, and run on: whoever hands out CPUs now leaves them alone until the pod has gone, and where nobody
does, all others are kept off them here. Kept by admission, which fills it when it takes over from an earlier life.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeqos.cci.manager import CciManager
from kubeqos.cci.store import owned_by_claims
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.node.admission.managers import Withholds
from kubeqos.plugins.managers import ContainerKey, ContainerRef, Grant, LiveContainer, Refusal, ResourceManager
from kubeqos.qrm.allocations import owned_by_plugins
from kubeqos.qrm.manager import QosResourceManager

CPUS, MEMS = "cpuset_cpus", "cpuset_mems"


class Strangers:
    """The containers that own CPUs of which no manager knows, and what these managers knew."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._owned: dict[ContainerKey, CpuSet] = {}
        self._runs: dict[ContainerKey, LiveContainer] = {}
        self._told: dict[ContainerKey, tuple[Grant, CpuSet, Grant]] = {}
        self.states: dict[str, Any] = {}
        """What managers of an earlier life knew, kept until they are back."""

    def take_over(
        self, managers: Sequence[ResourceManager], states: Mapping[str, Any], live: Mapping[ContainerRef, LiveContainer]
    ) -> None:
        """Let nobody have the CPUs that managers gave whose gate is off."""
        names = {manager.name for manager in managers}
        self.states = {name: state for name, state in states.items() if name not in names}
        for ref, found in live.items():
            if cpus := owned_by_strangers(ref, found, names) & self._machine.online:
                self._owned[ref.pod_uid, ref.name], self._runs[ref.pod_uid, ref.name] = cpus, found
                for manager in managers:
                    if isinstance(manager, Withholds):
                        manager.withhold(ref, cpus)

    def forget(self, uid: str) -> None:
        """The pod has gone, and its CPUs are free."""
        for table in (self._owned, self._runs, self._told):
            for key in [key for key in table if key[0] == uid]:
                del table[key]

    def apart(self, key: ContainerKey, grant: Grant) -> Grant:
        """What a container should have beside them: nothing of theirs; and they have what they were promised."""
        others = self._others(key)
        if not others and key not in self._owned:
            return grant
        known = self._told.get(key)
        if known is None or known[0] is not grant or known[1] != others:
            known = self._told[key] = grant, others, replace(grant, properties=self._properties(key, grant, others))
        return known[2]

    def _properties(self, key: ContainerKey, grant: Grant, others: CpuSet) -> dict[str, str | int]:
        if (mine := self._runs.get(key)) is not None:
            promised = {CPUS: mine.cpus or str(self._owned[key]), MEMS: mine.mems}
            return {**grant.properties, **{name: value for name, value in promised.items() if value}}
        given = str(grant.properties.get(CPUS, ""))
        left = (CpuSet.parse(given) if given else self._machine.online) - others
        return {**grant.properties, CPUS: str(left)} if left else dict(grant.properties)

    def refuses(self, key: ContainerKey, grant: Grant) -> Refusal | None:
        """Why a container cannot have what managers chose who do not know of these CPUs; it is tried again."""
        given, others = str(grant.properties.get(CPUS, "")), self._others(key)
        alone = others and given and not CpuSet.parse(given) - others
        if not alone and not grant.exclusive & others:
            return None
        what = f"CPUs {others} are still owned by pods of a manager that is turned off"
        return Refusal("UnexpectedAdmissionError", f"container {key[1]}: {what}", retry=True)

    def _others(self, key: ContainerKey) -> CpuSet:
        """What containers of other pods own."""
        found = NO_CPUS
        for (uid, _), cpus in self._owned.items():
            if uid != key[0]:
                found |= cpus
        return found


def owned_by_strangers(ref: ContainerRef, live: LiveContainer, managers: Collection[str]) -> CpuSet:
    """What a running container keeps from others, if none of these managers knows of it."""
    cpus = NO_CPUS
    if CciManager.name not in managers:
        cpus |= owned_by_claims(live.annotations)
    if QosResourceManager.name not in managers:
        cpus |= owned_by_plugins(ref, live)
    return cpus
