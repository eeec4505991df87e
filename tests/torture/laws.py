"""What must hold, whatever goes wrong. Each law looks when what it is about changes; a violation ends the run.

- What was acknowledged is there after every restart, and was durable before it was acknowledged.
- Quotas and class quotas are never overrun, nor the capacity of a class on a node.
- Nobody runs on a CPU that another owns. No container runs twice, and one that may start once starts once.
- No component ends by itself.
- When faults have stopped, everything settles (`unsettled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kubeqos.client import Answer, Call
from kubeqos.codec import decode_json
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import Container, State
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.quantity import Quantity
from kubeqos.node.admission.managers.cpu import EXCLUSIVE_ANNOTATION
from kubeqos.store import Store
from kubeqos.store.database import Row
from tests.torture.users import GOLD_QUOTA, OWNS, QUOTA, TIGHT

PODS = "/pods/"


class Violation(AssertionError):
    """A law was broken."""


class Books:
    """What the store has promised: the state that every restart must find, kept beside it."""

    def __init__(self) -> None:
        self.durable: dict[str, tuple[bytes, int]] = {}
        self.uncertain: list[tuple[Row, ...]] = []
        """Writes of which nobody knows whether the disk has them: cut short, or failed in an unknown way."""
        self.revision = 0
        self.acknowledged = 0
        self._read: dict[str, tuple[bytes, Any]] = {}
        """Objects as they were read last: laws look at all pods again and again, and few of them have changed."""

    def trying(self, rows: Sequence[Row]) -> None:
        self.uncertain.append(tuple(rows))

    def written(self) -> None:
        self._apply(self.durable, self.uncertain.pop())

    def refused(self) -> None:
        """A full disk leaves the file as it was."""
        self.uncertain.pop()

    def opened(self, store: Store) -> None:
        """After a restart: what was durable is there, and of the rest whole writes only."""
        found = {item.key: (item.value, item.revision) for item in store.range("").items}
        candidate = dict(self.durable)
        if found != candidate:
            for rows in self.uncertain:
                self._apply(candidate, rows)
                if found == candidate:
                    break
            else:
                lost = [key for key in self.durable if found.get(key) != self.durable[key]]
                more = [key for key in found if key not in self.durable]
                raise Violation(f"the store came back with another state: differs in {lost[:5]}, new {more[:5]}")
        self.durable, self.uncertain = candidate, []
        if store.revision < self.revision:
            raise Violation(f"the store came back at revision {store.revision}, {self.revision} was durable")
        self.revision = store.revision  # of a write that was cut short, and is there

    def answered(self, call: Call, answer: Answer) -> None:
        """A write that succeeds was durable before that is said."""
        if call.method == "GET" or answer.status >= 300:
            return
        said = decode_json(answer.body)
        version = str((said.get("metadata") or {}).get("resourceVersion") or "") if isinstance(said, dict) else ""
        if version.isdigit():
            self.acknowledged += 1
            if int(version) > self.revision:
                raise Violation(f"{call.method} {call.path} was acknowledged at {version}, durable is {self.revision}")

    def _apply(self, state: dict[str, tuple[bytes, int]], rows: Iterable[Row]) -> None:
        for row in rows:
            if row.deleted:
                state.pop(row.key, None)
            else:
                state[row.key] = row.value, row.revision
            if state is self.durable:
                self.revision = max(self.revision, row.revision)

    def objects(self, part: str) -> Iterator[dict[str, Any]]:
        for key, (value, _) in self.durable.items():
            if part in key:
                known, found = self._read.get(key, (b"", None))
                if known is not value:
                    found = decode_json(value)
                    self._read[key] = value, found
                if isinstance(found, dict):
                    yield found

    def pods(self) -> Iterator[dict[str, Any]]:
        return self.objects(PODS)


def check_quota(books: Books, rows: Sequence[Row]) -> None:
    """Counted from the pods themselves, by arithmetic of our own."""
    if not any(PODS in row.key and f"/{TIGHT}/" in row.key for row in rows):
        return
    pods = [pod for pod in books.pods() if pod["metadata"].get("namespace") == TIGHT and not _ended(pod)]
    cpu = sum(
        (
            Quantity.parse(one["resources"]["requests"]["cpu"]).milli()
            for pod in pods
            for one in pod["spec"]["containers"]
        ),
        0,
    )
    golds = sum("qosResources" in one["resources"] for pod in pods for one in pod["spec"]["containers"])
    names = sorted(f"{pod['metadata']['name']} {(pod.get('status') or {}).get('phase')}" for pod in pods)
    if len(pods) > int(QUOTA["pods"]):
        raise Violation(f"the quota of {QUOTA['pods']} pods is overrun: {names}")
    if cpu > int(Decimal(QUOTA["requests.cpu"]) * 1000):
        raise Violation(f"the quota of {QUOTA['requests.cpu']} CPUs is overrun: {cpu}m by {names}")
    if golds > GOLD_QUOTA:
        raise Violation(f"the quota of {GOLD_QUOTA} gold containers is overrun: {golds} by {names}")


def _ended(pod: Mapping[str, Any]) -> bool:
    """As Kubernetes counts: not those that have ended, nor those that should have by now, for which clocks may jump."""
    return bool(pod["metadata"].get("deletionTimestamp")) or (pod.get("status") or {}).get("phase") in (
        "Succeeded",
        "Failed",
    )


class Starts:
    """Every container that was ever started, on all nodes."""

    def __init__(self) -> None:
        self.starts: Counter[tuple[str, str]] = Counter()
        self.forgotten: set[str] = set()
        """Pods of which a runtime has lost every record: that they ran before nobody there can know."""

    def started(self, runtimes: Mapping[str, SimulatedRuntime], uid: str, name: str, *, once: bool) -> None:
        self.starts[uid, name] += 1
        running = [
            node
            for node, runtime in runtimes.items()
            for one in _running(runtime)
            if one.name == name and _uid(runtime, one) == uid
        ]
        if len(running) > 1:
            raise Violation(f"container {name} of pod {uid} runs {len(running)} times, on {running}")
        if once and uid not in self.forgotten and self.starts[uid, name] > 1:
            raise Violation(f"container {name} of pod {uid} may start once and started {self.starts[uid, name]} times")


def _running(runtime: SimulatedRuntime) -> list[Container]:
    return [one for one in runtime.core.containers.values() if one.state is State.RUNNING]


def _uid(runtime: SimulatedRuntime, one: Container) -> str:
    return runtime.core.sandboxes[one.sandbox_id].config.metadata.uid


def check_runtime(node: str, runtime: SimulatedRuntime, capacity: Mapping[tuple[str, str], int]) -> None:
    """Who owns CPUs owns them alone; a class has no more containers than it has room for."""
    running = _running(runtime)
    for owner in running:
        promised = runtime.core.sandboxes[owner.sandbox_id].config.annotations.get(OWNS, "")
        if EXCLUSIVE_ANNOTATION not in owner.config.annotations and not promised:
            continue
        owned, uid = CpuSet.parse(owner.resources.cpuset_cpus), _uid(runtime, owner)
        if not owned:
            raise Violation(
                f"on {node}, {uid} owns CPUs{f' by {promised}' if promised else ''} and runs on all of them"
            )
        for other in running:
            theirs = CpuSet.parse(other.resources.cpuset_cpus) or runtime.core.machine.online
            if _uid(runtime, other) != uid and owned & theirs:
                raise Violation(f"on {node}, {_uid(runtime, other)} runs on CPUs {owned & theirs} of {uid}")
    held = Counter((name, cls) for one in running for name, cls in one.classes.items())
    for (name, cls), count in held.items():
        room = capacity.get((name, cls), 0)
        if room and count > room:
            raise Violation(f"on {node}, {count} containers have class {cls} of {name}, which has room for {room}")
