"""Whether and when a container runs again: policies, CrashLoopBackOff and its times."""

from __future__ import annotations

import pytest

from kubeqos.node.pod.restarts import duration_text
from tests.node.pod.playbook import (
    CreateContainer,
    EnsureImage,
    Playbook,
    StopSandbox,
    after,
    ended,
    event,
    machine,
    pod,
    running,
    status,
    wakes,
)
from tests.node.pods import container

AGAIN, OVER = [EnsureImage("web", "main")], [StopSandbox("web", "sandbox-0")]


@pytest.mark.parametrize(
    ("policy", "code", "answer", "phase"),
    [
        ("Always", 0, AGAIN, "Running"),
        ("Always", 1, AGAIN, "Running"),
        ("OnFailure", 0, OVER, "Succeeded"),
        ("OnFailure", 1, AGAIN, "Running"),
        ("Never", 0, OVER, "Succeeded"),
        ("Never", 1, OVER, "Failed"),
    ],
)
def test_restart_policies(policy: str, code: int, answer: list[object], phase: str) -> None:
    book = running(pod("web", restartPolicy=policy)) >> ended("web", code=code)
    assert book << answer  # type: ignore[operator]
    assert book.status("web")["phase"] == phase


@pytest.mark.parametrize(
    ("of_container", "of_pod", "code", "again"),
    [("Never", "Always", 1, False), ("OnFailure", "Never", 1, True), ("OnFailure", "Always", 0, False)],
)
def test_a_container_may_have_a_policy_of_its_own(of_container: str, of_pod: str, code: int, again: bool) -> None:
    raw = pod("web", container(restartPolicy=of_container), container("other"), restartPolicy=of_pod)
    assert running(raw) >> ended("web", code=code) << (AGAIN if again else [])


def test_a_pod_lives_as_long_as_one_of_its_containers_does() -> None:
    book = running(pod("web", container(), container("second"), restartPolicy="Never"))
    assert book >> ended("web", "main", 1) << [] and book.status("web")["phase"] == "Running"
    assert book >> ended("web", "second", 0) << OVER and book.status("web")["phase"] == "Failed"


def test_a_failed_init_container_fails_a_pod_that_never_restarts() -> None:
    raw = pod("web", initContainers=[container("setup")], restartPolicy="Never")
    book = Playbook(machine()).start(raw)
    assert book >> ended("web", "setup", 3) << OVER
    assert book.status("web")["phase"] == "Failed"
    assert book.container("web", "setup")["state"]["terminated"]["exitCode"] == 3


BACK_OFF = event("BackOff", "Back-off restarting failed container main in pod web_default(web)")


def crash(book: Playbook) -> None:
    book.answer = None
    book >> ended("web", code=1)
    book.answer = None


def test_the_back_off_doubles_up_to_five_minutes() -> None:
    book = running(pod("web"))
    waits = []
    for _ in range(8):
        crash(book)
        due = book.core.due
        waits.append(0.0 if due is None else due - book.now)
        if due is not None:
            book >> after(due - book.now)
        book.succeed()
    assert waits == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert book.container("web")["restartCount"] == 8


def test_the_back_off_counts_from_the_end_of_the_last_attempt() -> None:
    book = running(pod("web"))
    crash(book)
    book.succeed()
    book.now += 7  # it lives for a while
    crash(book)
    assert book.core.due == book.now + 10
    assert book >> after(9.5) << wakes(0.5) >> after(0.5) << AGAIN


def test_while_it_waits_the_status_says_why_and_how_it_ended() -> None:
    book = running(pod("web"))
    crash(book)
    book.succeed()
    book >> ended("web", code=3, reason="Error", message="out of ideas")
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=main pod=web_default(web)",
    }
    last = {"terminated": {"exitCode": 3, "reason": "Error", "message": "out of ideas"}}
    assert book << [BACK_OFF, status(containerStatuses=[{"state": {"waiting": waiting}, "lastState": last}])]
    assert book.status("web")["phase"] == "Running" and book.condition("web", "Ready")["status"] == "False"


def test_people_hear_once_of_every_back_off() -> None:
    book = running(pod("web"))
    crash(book)
    book.succeed()
    assert book >> ended("web", code=1) << BACK_OFF
    assert book >> after(4) << wakes(6)
    book >> after(6)
    book.succeed()
    assert book >> ended("web", code=1) << BACK_OFF


def test_ten_good_minutes_clear_the_record() -> None:
    book = running(pod("web"))
    crash(book)
    book.succeed()
    book.now += 601
    assert book >> ended("web", code=1) << AGAIN
    book.succeed()
    crash(book)
    assert book.core.due == book.now + 10  # begins anew


def test_one_container_restarts_alone() -> None:
    book = running(pod("web", container(), container("calm")))
    book >> ended("web", code=1)
    book.succeed()
    assert book.container("web", "calm")["restartCount"] == 0 and book.container("web", "main")["restartCount"] == 1
    assert book.container("web", "calm")["containerID"] == "containerd://calm-0"


def test_the_next_attempt_is_numbered_and_made_in_the_same_sandbox() -> None:
    book = running(pod("web")) >> ended("web", code=1) << AGAIN
    book.succeed(lambda one: isinstance(one, CreateContainer))
    assert book.outstanding == [CreateContainer("web", "main", 1, "sandbox-0")]


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_durations_as_go_prints_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
