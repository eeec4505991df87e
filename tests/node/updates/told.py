"""What the agent does with updates, without an agent: whoever tests a manager alone sees what containers are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeqos.model.cpuset import CpuSet
from kubeqos.node.updates.pending import PendingUpdate, PendingUpdates
from kubeqos.plugins.managers import ContainerKey, Grant
from kubeqos.topology.answers import Unsatisfiable


class Told:
    """The containers of one node, each told one thing after the other."""

    def __init__(self, online: CpuSet) -> None:
        self.pending = PendingUpdates(online)
        self.refused: Unsatisfiable | None = None
        self.has: dict[ContainerKey, Grant] = {}

    def created(self, key: ContainerKey, grant: Grant) -> None:
        self.has[key] = grant
        self.pending.has(key, grant)

    def found(self, has: Mapping[ContainerKey, Grant], wanted: Mapping[ContainerKey, Grant]) -> None:
        """An agent starts where containers run."""
        for key, grant in has.items():
            self.has[key] = grant
            text = str(grant.properties.get("cpuset_cpus", ""))
            now = wanted.get(key)
            same = now is not None and (now.properties, now.unified) == (grant.properties, grant.unified)
            self.pending.found(key, CpuSet.parse(text) or None, now, same=same)

    def removed(self, pod_uid: str) -> None:
        self.has = {key: grant for key, grant in self.has.items() if key[0] != pod_uid}
        self.pending.removed(pod_uid)

    def updates(self, wanted: Mapping[ContainerKey, Grant]) -> Iterator[PendingUpdate]:
        """What is sent until everybody has what he should have, in a safe order; each is made when the next is due."""
        self.refused = self.pending.require(wanted)
        while self.pending:
            self.pending.record(self.pending.unrecorded())
            sent = [one for one in [self.pending.next(each.key) for each in list(self.pending)] if one is not None]
            assert sent, "somebody waits for nobody"
            for one in sent:
                yield one
                self.has[one.key] = one.grant
                self.pending.made(one)
            assert self.pending.validate() == []
