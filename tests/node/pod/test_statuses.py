"""What the status of a pod says: phase, conditions, container states, addresses, classes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.pod.playbook import (
    Admit,
    Playbook,
    PodSet,
    RunProbe,
    SeenContainer,
    SeenPod,
    SeenSandbox,
    Stage,
    StatusFacts,
    WriteStatus,
    done,
    ended,
    look,
    machine,
    pod,
    running,
    unless,
)
from tests.node.pods import container, resources

KINDS = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]


def test_a_running_pod_in_full() -> None:
    facts = StatusFacts(("192.0.2.1", "2001:db8::1"), "kubeqos")
    book = running(pod("web", container(resources=resources(cpu="1", memory="1Gi"))), machine(facts=facts))
    told = book.status("web")
    assert [one["type"] for one in told["conditions"]] == KINDS
    assert {one["status"] for one in told["conditions"]} == {"True"}
    assert {key: told[key] for key in ("phase", "qosClass", "hostIP", "podIP", "startTime", "observedGeneration")} == {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "hostIP": "192.0.2.1",
        "podIP": "10.0.0.1",
        "startTime": "2023-11-14T22:13:20Z",
        "observedGeneration": 1,
    }
    assert told["hostIPs"] == [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]
    assert told["containerStatuses"] == [
        {
            "name": "main",
            "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": "example.org/app:1",
            "imageID": "",
            "started": True,
            "containerID": "kubeqos://main-0",
            "allocatedResources": {"cpu": "1", "memory": "1Gi"},
            "resources": resources(cpu="1", memory="1Gi"),
        }
    ]


def test_nothing_new_is_not_written() -> None:
    book = running(pod("web"))
    written = [one for one in (book >> look("web")).answer or () if isinstance(one, WriteStatus)]
    assert not written


def test_with_the_hosts_network_the_addresses_are_the_nodes() -> None:
    book = running(pod("web", hostNetwork=True), machine(facts=StatusFacts(("192.0.2.1",))))
    assert book.status("web")["podIPs"] == [{"ip": "192.0.2.1"}]


@pytest.mark.parametrize(("gate", "shown"), [(True, [{"name": "rdt", "class": "gold"}]), (False, None)])
def test_classes_are_shown_where_the_gate_is_on(gate: bool, shown: Any) -> None:
    classes = (("rdt", "gold"),)
    seen = SeenPod(
        "web",
        "default",
        "web",
        (SeenSandbox("s", 0, True, 1.0, (), classes),),
        (SeenContainer("c", "main", 0, Stage.RUNNING, 1.0, 2.0, classes=classes),),
    )
    book = running(pod("web"), machine(facts=StatusFacts(classes=gate)))
    book >> look("web", lambda _: seen)
    assert book.status("web").get("qosResources") == shown
    assert book.container("web").get("qosResources") == shown


# ---- Phases


@pytest.mark.parametrize(
    ("ends", "policy", "phase"),
    [
        ({"a": 0, "b": 0}, "Never", "Succeeded"),
        ({"a": 0, "b": 1}, "Never", "Failed"),
        ({"a": 1}, "Never", "Running"),
        ({"a": 0, "b": 0}, "OnFailure", "Succeeded"),
        ({"a": 0}, "OnFailure", "Running"),
    ],
)
def test_the_phase_of_a_pod_with_two_containers(ends: dict[str, int], policy: str, phase: str) -> None:
    book = running(pod("web", container("a"), container("b"), restartPolicy=policy))
    for name, code in ends.items():
        book.answer = None
        book >> ended("web", name, code)
    assert book.status("web")["phase"] == phase


def test_a_completed_pod_says_so_in_its_conditions() -> None:
    book = running(pod("job", restartPolicy="Never")) >> ended("job")
    book.succeed()
    assert book.condition("job", "Ready") | {"lastTransitionTime": 0} == {
        "type": "Ready",
        "status": "False",
        "reason": "PodCompleted",
        "lastProbeTime": None,
        "lastTransitionTime": 0,
    }
    assert book.condition("job", "Initialized")["reason"] == "PodCompleted"
    assert book.condition("job", "PodReadyToStartContainers")["status"] == "False"


def test_a_failed_pod_is_not_ready_because_it_failed() -> None:
    book = running(pod("job", restartPolicy="Never")) >> ended("job", code=1)
    book.succeed()
    assert book.condition("job", "ContainersReady")["reason"] == "PodFailed"


def test_the_end_that_was_told_stays_when_containers_are_gone() -> None:
    book = running(pod("job", restartPolicy="Never")) >> ended("job", code=4)
    book.succeed()
    told = book.status("job")
    book >> look("job", lambda seen: SeenPod(seen.uid, seen.namespace, seen.name))
    assert book.status("job") is told and book.container("job")["state"]["terminated"]["exitCode"] == 4


# ---- Conditions


def test_what_is_not_initialized_is_named() -> None:
    raw = pod("web", initContainers=[container("first"), container("proxy", restartPolicy="Always")])
    book = Playbook(machine()).start(raw)
    found = book.condition("web", "Initialized")
    assert (found["status"], found["reason"]) == ("False", "ContainersNotInitialized")
    assert found["message"] == "containers with incomplete status: [first proxy]"


def test_readiness_gates_hold_back_ready_alone() -> None:
    raw = pod("web", readinessGates=[{"conditionType": "example.org/up"}])
    book = running(raw)
    found = book.condition("web", "Ready")
    text = 'corresponding condition of pod readiness gate "example.org/up" does not exist.'
    assert (found["reason"], found["message"]) == ("ReadinessGatesNotReady", text)
    assert book.condition("web", "ContainersReady")["status"] == "True"
    told = {"conditions": [{"type": "example.org/up", "status": "False"}]}
    book >> PodSet({**raw, "status": told})
    assert 'is not "True", but False' in book.condition("web", "Ready")["message"]
    book.answer = None
    book >> PodSet({**raw, "status": {"conditions": [{"type": "example.org/up", "status": "True"}]}})
    assert book.condition("web", "Ready")["status"] == "True"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    book = running(pod("web", container(readinessProbe={"exec": {}})))
    began = book.condition("web", "Ready")["lastTransitionTime"]
    scheduled = book.condition("web", "PodScheduled")["lastTransitionTime"]
    book.now += 100
    book >> done(RunProbe("web", "main", "main-0", "readiness"))
    assert book.condition("web", "Ready")["lastTransitionTime"] > began
    assert book.condition("web", "PodScheduled")["lastTransitionTime"] == scheduled


# ---- Containers


def test_a_created_container_waits_without_a_reason() -> None:
    book = Playbook(machine()).start(pod("web"), lambda one: type(one).__name__ == "StartContainer")
    assert book.container("web")["state"] == {"waiting": {}} and book.container("web")["started"] is False


def test_how_a_container_ended_is_told_in_full() -> None:
    book = running(pod("web"))
    book.now += 5
    book >> ended("web", code=137, reason="OOMKilled", message="too much", image_id="sha256:1", image="app:2")
    assert book.container("web")["state"] == {
        "terminated": {
            "exitCode": 137,
            "reason": "OOMKilled",
            "startedAt": "2023-11-14T22:13:20Z",
            "finishedAt": "2023-11-14T22:13:25Z",
            "containerID": "containerd://main-0",
            "message": "too much",
        }
    }
    assert (book.container("web")["image"], book.container("web")["imageID"]) == ("app:2", "sha256:1")


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (2, "Error")])
def test_a_reason_is_made_up_where_the_runtime_gives_none(code: int, reason: str) -> None:
    book = running(pod("job", restartPolicy="Never")) >> ended("job", code=code)
    assert book.container("job")["state"]["terminated"]["reason"] == reason


def test_after_a_restart_the_last_state_tells_of_the_one_before() -> None:
    book = running(pod("web")) >> ended("web", code=9)
    book.succeed(unless(RunProbe))
    assert book.container("web")["lastState"]["terminated"]["exitCode"] == 9
    assert book.container("web")["state"].keys() == {"running"}


def debugged(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "spec": {**raw["spec"], "ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}


def test_an_ephemeral_container_runs_once_and_the_pod_does_not_live_by_it() -> None:
    raw = pod("web")
    book = running(raw)
    book >> PodSet(debugged(raw))
    book.succeed(unless(RunProbe))
    [told] = book.status("web")["ephemeralContainerStatuses"]
    assert told["state"].keys() == {"running"} and told["ready"] is False and "started" not in told
    book >> ended("web", "debug", 3)
    book.answer = None
    book.succeed(unless(RunProbe))
    [told] = book.status("web")["ephemeralContainerStatuses"]
    assert told["state"]["terminated"]["exitCode"] == 3 and told["restartCount"] == 0
    assert book.status("web")["phase"] == "Running" and book.condition("web", "Ready")["status"] == "True"


def test_a_pod_that_is_over_ends_whoever_debugs_it() -> None:
    raw = pod("job", restartPolicy="Never")
    book = running(raw)
    book >> PodSet(debugged(raw))
    book.succeed(unless(RunProbe))
    book >> ended("job")
    book.answer = None
    book.succeed()
    assert book.status("job")["phase"] == "Succeeded"
    assert not book.core.pods["job"].live


def test_a_pod_that_is_not_admitted_has_no_status() -> None:
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web")
    assert book.core.pods["web"].status is None
