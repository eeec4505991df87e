"""Startup, liveness and readiness probes: when they run, and what their results do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.pod.playbook import (
    EnsureImage,
    Playbook,
    PodSet,
    RunProbe,
    StopContainer,
    after,
    done,
    ended,
    event,
    failed,
    machine,
    pod,
    running,
    unless,
    wakes,
)
from tests.node.pods import container

EXEC: dict[str, Any] = {"exec": {"command": ["true"]}}
READY, LIVE, UP = (RunProbe("web", "main", "main-0", kind) for kind in ("readiness", "liveness", "startup"))  # type: ignore[arg-type]
STOP = StopContainer("web", "main", "main-0", 30)


def probed(**probes: dict[str, Any]) -> dict[str, Any]:
    return pod("web", container(**{f"{kind}Probe": {**EXEC, **probe} for kind, probe in probes.items()}))


def test_a_container_without_probes_is_ready_when_it_runs() -> None:
    book = running(pod("web"))
    assert book.container("web")["ready"] is True and book.condition("web", "Ready")["status"] == "True"


def test_a_container_is_not_ready_before_its_probe_says_so() -> None:
    book = running(probed(readiness={}))
    assert book.container("web")["ready"] is False and book.container("web")["started"] is True
    assert book.condition("web", "ContainersReady")["message"] == "containers with unready status: [main]"
    assert book.outstanding == [READY]
    assert book >> done(READY) << wakes(10)
    assert book.container("web")["ready"] is True


def test_an_unready_container_is_not_restarted() -> None:
    book = running(probed(readiness={"failureThreshold": 2}))
    book >> done(READY) << wakes(10)
    for _ in range(5):
        (
            book
            >> after(10)
            << READY
            >> failed(READY, "503")
            << [event("Unhealthy", "Readiness probe failed: 503"), wakes(10)]
        )
    assert book.container("web")["ready"] is False and book.container("web")["state"].keys() == {"running"}


def test_a_ready_container_stays_so_until_the_threshold() -> None:
    book = running(probed(readiness={"failureThreshold": 2}))
    book >> done(READY) << wakes(10)
    book >> after(10) << READY >> failed(READY) << [event("Unhealthy"), wakes(10)]
    assert book.container("web")["ready"] is True
    book >> after(10) << READY >> failed(READY) << [event("Unhealthy"), wakes(10)]
    assert book.container("web")["ready"] is False


def test_readiness_may_need_several_successes() -> None:
    book = running(probed(readiness={"successThreshold": 2, "periodSeconds": 3}))
    book >> done(READY) << wakes(3)
    assert book.container("web")["ready"] is False
    book >> after(3) << READY >> done(READY) << wakes(3)
    assert book.container("web")["ready"] is True


@pytest.mark.proves("probes-and-hooks")
def test_a_failed_liveness_probe_restarts_the_container() -> None:
    book = running(probed(liveness={"failureThreshold": 2, "periodSeconds": 5}))
    book >> failed(LIVE, "hung") << [event("Unhealthy", "Liveness probe failed: hung"), wakes(5)]
    book >> after(5) << LIVE
    (
        book
        >> failed(LIVE, "hung")
        << [event("Unhealthy"), event("Killing", "failed liveness probe, will be restarted"), STOP]
    )
    assert book.container("web")["ready"] is False
    assert book >> done(STOP) << EnsureImage("web", "main")
    book.succeed(unless(RunProbe))
    assert book.container("web")["restartCount"] == 1
    assert book.outstanding == [RunProbe("web", "main", "main-1", "liveness")]


def test_a_success_in_between_starts_the_count_anew() -> None:
    book = running(probed(liveness={"failureThreshold": 2}))
    for answer in (failed(LIVE), done(LIVE), failed(LIVE), done(LIVE)):
        book >> answer
        book.answer = None
        book >> after(10) << LIVE
    assert not book.core.pods["web"].kill


def test_a_probe_may_give_its_container_less_time_to_end() -> None:
    book = running(probed(liveness={"failureThreshold": 1, "terminationGracePeriodSeconds": 3}))
    assert book >> failed(LIVE) << [event("Unhealthy"), event("Killing"), StopContainer("web", "main", "main-0", 3)]


def test_the_first_probe_waits_for_its_initial_delay() -> None:
    book = running(probed(liveness={"initialDelaySeconds": 15}))
    assert not book.outstanding and book.core.due == book.now + 15
    assert book >> after(15) << LIVE


@pytest.mark.proves("probes-and-hooks")
def test_the_startup_probe_holds_the_others_back() -> None:
    book = running(probed(startup={"periodSeconds": 2}, liveness={}, readiness={"initialDelaySeconds": 4}))
    assert book.outstanding == [UP] and book.container("web")["started"] is False
    book >> failed(UP, "not yet") << [event("Unhealthy", "Startup probe failed"), wakes(2)]
    book >> after(2) << UP
    # The delay of the others counts from here, not from the start of the container.
    assert book >> done(UP) << [LIVE, wakes(4)]
    assert book.container("web")["started"] is True
    assert book >> after(4) << READY


def test_a_container_that_never_starts_up_is_restarted() -> None:
    book = running(probed(startup={"failureThreshold": 1}))
    assert book >> failed(UP) << [event("Unhealthy"), event("Killing", "failed startup probe"), STOP]


def test_once_started_up_the_startup_probe_is_not_run_again() -> None:
    book = running(probed(startup={}))
    assert book >> done(UP) << wakes(None)


def test_results_of_an_instance_that_is_gone_count_for_nothing() -> None:
    book = running(probed(liveness={"failureThreshold": 1}))
    book >> ended("web", code=1) << EnsureImage("web", "main")
    book.succeed(unless(RunProbe))
    again = RunProbe("web", "main", "main-1", "liveness")
    assert book >> failed(LIVE, "late") << [event("Unhealthy"), again] and not book.core.pods["web"].kill


def test_a_dying_container_is_not_probed() -> None:
    book = running(probed(liveness={"failureThreshold": 1}, readiness={}))
    book >> failed(LIVE) << [event("Unhealthy"), event("Killing"), STOP]
    book >> done(READY) << []
    assert book >> after(100) << []


@pytest.mark.parametrize("kind", ["liveness", "readiness"])
def test_a_new_instance_begins_without_a_verdict(kind: str) -> None:
    book = running(probed(**{kind: {}})).succeed()
    assert book.container("web")["ready"] is True
    book >> ended("web", code=1)
    book.succeed(unless(RunProbe))
    assert book.container("web")["ready"] is (kind == "liveness")
    assert [one.id for one in book.outstanding if isinstance(one, RunProbe)] == ["main-1"]


def test_probes_of_a_pod_that_ends_are_over() -> None:
    raw = probed(readiness={})
    book = running(raw).succeed()
    marks = {"deletionTimestamp": "2023-11-14T22:13:50Z", "deletionGracePeriodSeconds": 30}
    book >> PodSet({**raw, "metadata": {**raw["metadata"], **marks}}) << [event("Killing"), STOP]
    assert book >> after(20) << []


def test_a_probe_that_is_taken_out_of_the_pod_cannot_fail_it() -> None:
    book = running(probed(readiness={}))
    assert book.container("web")["ready"] is False
    assert book >> PodSet(pod("web")) << [] and book.container("web")["ready"] is True


def test_sidecars_are_probed_like_app_containers() -> None:
    sidecar = container("proxy", restartPolicy="Always", readinessProbe=EXEC)
    book = Playbook(machine()).start(pod("web", initContainers=[sidecar]), unless(RunProbe))
    assert book.outstanding == [RunProbe("web", "proxy", "proxy-0", "readiness")]
    assert book.container("web", "proxy")["ready"] is False
