"""Jobs: what their controller decides, on objects that are values and in a time that stands still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.client.resources import JOBS, PODS
from kubeqos.controllers.actions import Create, Delete, Patch, Tell
from kubeqos.controllers.batch.jobpods import FINALIZER, INDEX, INDEX_FAILURES, format_indexes, parse_indexes
from kubeqos.controllers.batch.jobs import JobPlan, desired, is_finished
from kubeqos.model.timestamps import timestamp
from tests.controllers.world import merge

NOW = 1_800_000_000.0
Object = dict[str, Any]


class JobWorld:
    """One job and its pods; plans are carried out as the controller does it, and can be cut short."""

    def __init__(self, **spec: Any) -> None:
        self.now = NOW
        template = {
            "metadata": {"labels": {"job": "j"}},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"},
        }
        body = {"completions": 1, "parallelism": 1, "backoffLimit": 6, "template": template, **spec}
        metadata = {"name": "j", "namespace": "ns", "uid": "uid-j"}
        self.job: Object | None = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}
        self.pods: dict[str, Object] = {}
        self.made = 0
        self.told: list[str] = []

    @property
    def status(self) -> Object:
        assert self.job is not None
        return self.job.get("status") or {}

    def plan(self) -> JobPlan:
        assert self.job is not None
        return desired(self.job, list(self.pods.values()), self.now)

    def step(self, stop_after: int = 99) -> JobPlan:
        """Carry out one plan, or its first actions: a controller may be killed between any two."""
        plan = self.plan()
        actions: list[Any] = [plan.status] if plan.status else []
        actions += [*plan.tell, *plan.release, *plan.delete, *plan.create]
        for action in actions[:stop_after]:
            self.perform(action)
        return plan

    def settle(self) -> None:
        for _ in range(40):
            before = (self.job, dict(self.pods))
            self.step()
            if (self.job, self.pods) == before or self.job is None:
                return
        raise AssertionError("the controller never comes to rest")

    def perform(self, action: Any) -> None:
        match action:
            case Create():
                self.made += 1
                name = f"{action.body['metadata']['generateName']}{self.made}"
                metadata = {**action.body["metadata"], "name": name, "uid": f"uid-{name}"}
                metadata["creationTimestamp"] = timestamp(self.now)
                self.pods[name] = {**action.body, "metadata": metadata, "status": {"phase": "Pending"}}
            case Patch(resource=resource) if resource is PODS:
                self.pods[action.name] = merge(self.pods[action.name], action.patch)
                self.sweep(action.name)
            case Patch():
                assert self.job is not None
                self.job = merge(self.job, action.patch)
            case Delete(resource=resource) if resource is JOBS:
                self.job = None
            case Delete():
                if action.name in self.pods:
                    self.delete(action.name)
            case Tell():
                self.told.append(action.reason)

    def delete(self, name: str) -> None:
        self.pods[name] = merge(self.pods[name], {"metadata": {"deletionTimestamp": timestamp(self.now)}})
        self.sweep(name)

    def sweep(self, name: str) -> None:
        metadata = self.pods[name]["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.pods[name]

    def active(self) -> list[str]:
        ended = ("Succeeded", "Failed")
        return sorted(name for name, pod in self.pods.items() if pod["status"]["phase"] not in ended)

    def finish(self, name: str, phase: str = "Succeeded", code: int = 1, **status: Any) -> None:
        state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else code, "finishedAt": timestamp(self.now)}}
        statuses = [{"name": "c", "state": state}]
        self.pods[name] = {**self.pods[name], "status": {"phase": phase, "containerStatuses": statuses, **status}}

    def conditions(self) -> list[str]:
        return [one["type"] for one in self.status.get("conditions") or () if one["status"] == "True"]

    def reason(self) -> str:
        return str((self.status.get("conditions") or [{}])[-1].get("reason"))


def test_a_job_runs_its_pod_and_is_complete() -> None:
    world = JobWorld()
    world.settle()
    [name] = world.active()
    assert world.pods[name]["metadata"]["finalizers"] == [FINALIZER]
    assert world.status["startTime"] == timestamp(NOW)
    world.settle()
    assert world.status["active"] == 1
    world.finish(name)
    world.settle()
    assert world.conditions() == ["SuccessCriteriaMet", "Complete"]
    assert (world.status["succeeded"], world.status.get("active")) == (1, None)
    assert world.status["completionTime"] == timestamp(NOW)
    assert "finalizers" not in world.pods[name]["metadata"]
    assert world.told == ["Completed"]


def test_a_clock_that_is_set_back_does_not_keep_a_failed_pod_from_its_successor() -> None:
    world = JobWorld()
    world.settle()
    world.finish(world.active()[0], "Failed")
    plan = world.step()
    assert not world.active() and plan.look_again == 10.0
    world.now -= 3600
    world.settle()
    assert len(world.active()) == 1


def test_so_many_at_once_and_so_many_in_all() -> None:
    world = JobWorld(completions=5, parallelism=2)
    world.settle()
    seen = 0
    while not is_finished(world.job or {}):
        assert len(world.active()) <= min(2, 5 - seen)
        world.finish(world.active()[0])
        seen += 1
        world.settle()
    assert (seen, world.status["succeeded"]) == (5, 5)


def test_a_queue_of_work_is_done_when_one_has_succeeded_and_none_is_left() -> None:
    world = JobWorld(completions=None, parallelism=3)
    world.settle()
    first, second, third = world.active()
    world.finish(first)
    world.settle()
    assert world.active() == [second, third]  # nobody is replaced any longer
    world.finish(second)
    world.finish(third)
    world.settle()
    assert "Complete" in world.conditions()


def test_failures_are_replaced_later_and_later_until_the_limit() -> None:
    world = JobWorld(backoffLimit=2)
    world.settle()
    for delay in (10, 20):
        world.finish(world.active()[0], "Failed")
        world.settle()
        assert world.active() == []
        assert world.plan().look_again == delay
        world.now += delay
        world.settle()
        assert len(world.active()) == 1
    world.finish(world.active()[0], "Failed")
    world.settle()
    assert world.conditions() == ["FailureTarget", "Failed"]
    assert (world.reason(), world.status["failed"]) == ("BackoffLimitExceeded", 3)


def test_containers_that_are_started_again_count_against_the_limit() -> None:
    template = {"spec": {"containers": [{"name": "c"}], "restartPolicy": "OnFailure"}}
    world = JobWorld(backoffLimit=2, template=template)
    world.settle()
    [name] = world.active()
    status = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2}]}
    world.pods[name] = {**world.pods[name], "status": status}
    world.settle()
    assert (world.conditions()[-1], world.reason()) == ("Failed", "BackoffLimitExceeded")
    assert world.active() == []


def test_a_deadline_ends_the_job_and_its_pods() -> None:
    world = JobWorld(activeDeadlineSeconds=30)
    world.settle()
    assert world.plan().look_again == 30
    world.now += 30
    world.settle()
    assert (world.conditions()[-1], world.reason(), world.pods) == ("Failed", "DeadlineExceeded", {})
    assert world.status["failed"] == 1  # it never ended by itself


@pytest.mark.parametrize("stop_after", [1, 2, 3, 99])
def test_who_has_not_ended_when_the_job_fails_counts_as_failed(stop_after: int) -> None:
    world = JobWorld(completions=3, parallelism=3, backoffLimit=0, podReplacementPolicy="Failed")
    world.settle()
    world.finish(world.active()[0], "Failed")
    world.step(stop_after)  # killed after so many actions, and again
    world.step(stop_after)
    world.settle()
    assert (world.reason(), world.status["failed"]) == ("BackoffLimitExceeded", 3)


def test_a_finished_job_leaves_when_its_time_is_over() -> None:
    world = JobWorld(ttlSecondsAfterFinished=60)
    world.settle()
    world.finish(world.active()[0])
    world.settle()
    assert world.plan().look_again == 60
    world.now += 60
    world.step()
    assert world.job is None


def test_a_suspended_job_has_no_pods_and_begins_anew() -> None:
    world = JobWorld(parallelism=2, completions=4)
    world.settle()
    assert world.job is not None
    world.job["spec"]["suspend"] = True
    world.settle()
    assert (world.pods, world.conditions(), world.status.get("startTime")) == ({}, ["Suspended"], None)
    assert world.status.get("failed") is None  # we ended them ourselves
    world.now += 100
    world.job["spec"]["suspend"] = False
    world.settle()
    assert (len(world.active()), world.conditions()) == (2, [])
    assert world.status["startTime"] == timestamp(NOW + 100)
    assert world.told == ["Suspended", "Resumed"]


def test_an_indexed_job_gives_every_index_its_pod() -> None:
    world = JobWorld(completions=3, parallelism=2, completionMode="Indexed")
    world.settle()
    pod = world.pods[world.active()[0]]
    assert pod["metadata"]["annotations"][INDEX] == pod["metadata"]["labels"][INDEX] == "0"
    assert pod["spec"]["hostname"] == "j-0"
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    for name in world.active():
        world.finish(name)
    world.settle()
    assert world.status["completedIndexes"] == "0,1"
    assert [world.pods[name]["metadata"]["labels"][INDEX] for name in world.active()] == ["2"]
    world.finish(world.active()[0])
    world.settle()
    assert (world.status["completedIndexes"], world.status["succeeded"]) == ("0-2", 3)
    assert "Complete" in world.conditions()


def test_an_index_fails_alone() -> None:
    world = JobWorld(
        completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1, backoffLimit=(1 << 31) - 1
    )
    world.settle()
    zero, one = world.active()
    world.finish(zero, "Failed")
    world.finish(one)
    world.settle()
    world.now += 10
    world.settle()
    [again] = world.active()
    assert world.pods[again]["metadata"]["annotations"] == {INDEX: "0", INDEX_FAILURES: "1"}
    world.finish(again, "Failed")
    world.settle()
    assert (world.status["failedIndexes"], world.status["completedIndexes"]) == ("0", "1")
    assert (world.conditions()[-1], world.reason()) == ("Failed", "FailedIndexes")


def policy(action: str, **rule: Any) -> Object:
    return {"rules": [{"action": action, **rule}]}


def test_a_failure_policy_fails_the_job_at_once() -> None:
    codes = {"operator": "In", "values": [42]}
    world = JobWorld(podFailurePolicy=policy("FailJob", onExitCodes=codes), podReplacementPolicy="Failed")
    world.settle()
    [name] = world.active()
    world.finish(name, "Failed", code=42)
    world.settle()
    assert (world.conditions(), world.reason()) == (["FailureTarget", "Failed"], "PodFailurePolicy")
    message = world.status["conditions"][-1]["message"]
    assert message == f"Container c for pod ns/{name} failed with exit code 42 matching FailJob rule at index 0"


def test_a_disruption_that_is_ignored_costs_nothing() -> None:
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    world = JobWorld(backoffLimit=0, podFailurePolicy=policy("Ignore", onPodConditions=disrupted))
    world.settle()
    world.finish(world.active()[0], "Failed", conditions=disrupted)
    world.settle()
    assert len(world.active()) == 1  # at once, and not counted
    assert world.status.get("failed") is None


def test_a_success_policy_ends_the_job_early() -> None:
    rules = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    world = JobWorld(completions=3, parallelism=3, completionMode="Indexed", successPolicy=rules)
    world.settle()
    world.finish(world.active()[0])
    world.settle()
    assert (world.conditions(), world.active()) == (["SuccessCriteriaMet", "Complete"], [])
    assert world.status["conditions"][-1]["message"] == "Matched rules at index 0"


def test_a_terminating_pod_is_replaced_when_it_has_stopped() -> None:
    world = JobWorld(podReplacementPolicy="Failed")
    world.settle()
    [name] = world.active()
    world.delete(name)
    world.settle()
    assert world.active() == [name]
    assert world.status["terminating"] == 1
    world.finish(name, "Failed")
    world.settle()
    world.now += 10
    world.settle()
    assert len(world.active()) == 1
    assert world.status["failed"] == 1


def test_a_job_of_somebody_else_is_left_alone() -> None:
    assert JobWorld(managedBy="example.com/queue").plan() == JobPlan()


@given(st.data())
def test_every_finished_pod_is_counted_once(data: st.DataObject) -> None:
    """Whenever the controller stops between two actions, it goes on as if it had not."""
    world = JobWorld(completions=3, parallelism=2, backoffLimit=100)
    succeeded = failed = 0
    for _ in range(60):
        world.step(stop_after=data.draw(st.integers(0, 6)))
        running = [n for n in world.active() if FINALIZER in world.pods[n]["metadata"].get("finalizers", ())]
        if running and succeeded < 3 and data.draw(st.booleans()):
            good = data.draw(st.booleans())
            world.finish(running[0], "Succeeded" if good else "Failed")
            succeeded, failed = succeeded + good, failed + (not good)
        world.now += 700
        if succeeded == 3:
            break
    world.settle()
    if succeeded == 3:
        assert (world.status["succeeded"], world.status.get("failed", 0)) == (3, failed)
        assert "Complete" in world.conditions()
        assert world.active() == []


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_read_as_they_are_written(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes), 41) == indexes
