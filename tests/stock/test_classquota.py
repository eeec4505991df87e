"""Class quota kept by many hands: whatever they interleave, a quota is never overrun, and nothing leaks."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kubeqos.stock.classquota import RESERVED_SECONDS, NotCounted, Refused, Unknown, Write, recount, reserve

LEVEL = {"rdt"}


def quota(gold: int = 2, generation: int = 1) -> dict[str, Any]:
    classes = [{"name": "gold", "capacity": gold}, {"name": "bronze"}]
    spec = {"qosResources": {"container": [{"name": "rdt", "classes": classes}]}}
    metadata = {"name": "q", "namespace": "a", "generation": generation, "resourceVersion": "1"}
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": metadata, "spec": spec}


def pod(uid: str, cls: str = "gold", containers: int = 1, phase: str = "Running") -> dict[str, Any]:
    names = [f"c{place}" for place in range(containers)]
    annotations = {f"qos.kubeqos.io/container.{name}": f"rdt={cls}" for name in names}
    return {
        "kind": "Pod",
        "metadata": {"name": uid, "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": name} for name in names]},
        "status": {"phase": phase},
    }


def counted(raw: dict[str, Any]) -> dict[str, int]:
    [one] = raw["status"]["qosResourcesUsage"]["container"]
    return {cls["name"]: cls.get("capacity", 0) for cls in one["classes"]}


def written(raw: dict[str, Any], answer: object) -> dict[str, Any]:
    assert isinstance(answer, Write)
    return {**raw, "status": answer.status}


def fresh(gold: int = 2) -> dict[str, Any]:
    return written(quota(gold), recount(quota(gold), [], 0.0))


def test_a_quota_that_was_never_counted_says_so() -> None:
    assert isinstance(reserve(quota(), pod("1"), LEVEL, 0.0), Unknown)
    assert isinstance(reserve({**fresh(), "metadata": quota(generation=2)["metadata"]}, pod("1"), LEVEL, 0.0), Unknown)


def test_reserved_until_it_is_stored_then_counted_once() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    assert counted(held) == {"gold": 1, "bronze": 0}
    assert isinstance(reserve(held, pod("1"), LEVEL, 0.0), NotCounted), "asked again, it is not counted again"
    stored = written(held, recount(held, [pod("1")], 1.0))
    assert counted(stored) == {"gold": 1, "bronze": 0}
    assert stored["status"]["reserved"] == {}
    assert isinstance(recount(stored, [pod("1")], 2.0), NotCounted)


def test_what_is_over_or_not_listed_is_refused_with_the_numbers() -> None:
    full = written(fresh(), reserve(fresh(), pod("1", containers=2), LEVEL, 0.0))
    over = reserve(full, pod("2"), LEVEL, 0.0)
    assert isinstance(over, Refused)
    assert over.message == (
        "exceeded quota: q, requested: container.rdt/gold=1, used: container.rdt/gold=2, limited: container.rdt/gold=2"
    )
    other = reserve(full, pod("2", "silver"), LEVEL, 0.0)
    assert isinstance(other, Refused)
    assert "not allowed (allowed: gold, bronze)" in other.message
    assert isinstance(reserve(full, pod("3", "bronze"), LEVEL, 0.0), Write), "without a capacity there is no end"


def test_who_never_came_and_who_ended_give_back() -> None:
    held = written(fresh(), reserve(fresh(), pod("1"), LEVEL, 0.0))
    early = recount(held, [], RESERVED_SECONDS - 1)
    assert isinstance(early, NotCounted), "its create may still be under way"
    assert counted(written(held, recount(held, [], RESERVED_SECONDS))) == {"gold": 0, "bronze": 0}
    stored = written(held, recount(held, [pod("1")], 1.0))
    ended = recount(stored, [pod("1", phase="Succeeded")], 2.0)
    assert counted(written(stored, ended)) == {"gold": 0, "bronze": 0}


CAPACITY = 3
REQUEST_SECONDS = RESERVED_SECONDS / 2
"""How long an API server works on a request: less than a reservation lasts."""


class ManyHands(RuleBasedStateMachine):
    """Webhooks and counters that stop between reading and writing, an API server that takes some and refuses others."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 1
        self.quota = quota(CAPACITY)
        self.pods: dict[str, dict[str, Any]] = {}
        self.number = 0

    asking = Bundle("asking")
    counting = Bundle("counting")
    admitted = Bundle("admitted")

    def write(self, read: dict[str, Any], status: dict[str, Any]) -> bool:
        """The API server's condition: the object is still the one that was read."""
        if read["metadata"]["resourceVersion"] != self.quota["metadata"]["resourceVersion"]:
            return False
        self.version += 1
        metadata = {**self.quota["metadata"], "resourceVersion": str(self.version)}
        self.quota = {**self.quota, "metadata": metadata, "status": copy.deepcopy(status)}
        return True

    @rule(target=asking, containers=st.integers(1, 2))
    def webhook_reads(self, containers: int) -> Any:
        self.number += 1
        return pod(str(self.number), containers=containers), copy.deepcopy(self.quota)

    @rule(target=admitted, asked=consumes(asking))
    def webhook_writes(self, asked: Any) -> Any:
        wanted, read = asked
        answer = reserve(read, wanted, LEVEL, self.now)
        if isinstance(answer, Write) and self.write(read, answer.status):
            return wanted, self.now
        return multiple()

    @rule(entry=consumes(admitted), stores=st.booleans())
    def server_stores_or_refuses(self, entry: Any, stores: bool) -> None:
        wanted, since = entry
        if stores and self.now - since < REQUEST_SECONDS:
            self.pods[wanted["metadata"]["uid"]] = wanted

    @rule(target=counting)
    def counter_reads(self) -> Any:
        return copy.deepcopy(self.quota)

    @rule(target=counting, read=consumes(counting))
    def counter_lists(self, read: Any) -> Any:
        """The list comes after the quota was read, and the write may come much later."""
        return read if isinstance(read, tuple) else (read, list(copy.deepcopy(self.pods).values()))

    @rule(entry=consumes(counting))
    def counter_writes(self, entry: Any) -> None:
        if isinstance(entry, tuple):
            read, listed = entry
            answer = recount(read, listed, self.now)
            if isinstance(answer, Write):
                self.write(read, answer.status)

    @rule(share=st.integers(0, 10))
    def somebody_deletes(self, share: int) -> None:
        if self.pods:
            del self.pods[sorted(self.pods)[share % len(self.pods)]]

    @rule(seconds=st.sampled_from([1.0, REQUEST_SECONDS, RESERVED_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def never_over(self) -> None:
        assert sum(len(one["spec"]["containers"]) for one in self.pods.values()) <= CAPACITY

    def teardown(self) -> None:
        """Everything comes to rest: after the last reservation has ended, the count is what is stored."""
        self.now += RESERVED_SECONDS
        answer = recount(self.quota, self.pods.values(), self.now)
        if isinstance(answer, Write):
            self.write(self.quota, answer.status)
        if self.quota.get("status"):
            assert counted(self.quota)["gold"] == sum(len(one["spec"]["containers"]) for one in self.pods.values())


TestManyHands = ManyHands.TestCase
TestManyHands.settings = settings(max_examples=200, stateful_step_count=40)
