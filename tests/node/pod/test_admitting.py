"""Whether a pod may run here: granted, refused, tried again; and pods that make room for a critical one."""

from __future__ import annotations

from tests.node.pod.playbook import (
    Admit,
    Evict,
    Forget,
    Observed,
    Playbook,
    PodGone,
    PodSet,
    PodsListed,
    Refusal,
    Release,
    RunSandbox,
    Shortage,
    StopContainer,
    after,
    done,
    ended,
    event,
    failed,
    machine,
    pod,
    running,
    status,
    wakes,
)
from tests.node.pods import container, resources

NO_ROOM = Shortage("OutOfcpu", "Node didn't have enough resource: cpu", missing={"cpu": 1000})


def test_a_refused_pod_fails_for_good_and_gives_back_what_it_may_hold() -> None:
    refusal = Refusal("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web") >> done(Admit("web"), refusal)
    assert (
        book
        << [
            event("TopologyAffinityError", "Topology locality"),
            Release("web"),
            status(phase="Failed", reason="TopologyAffinityError"),
        ]
        >> done(Release("web"))
        << []
    )
    text = "Pod was rejected: Resources cannot be allocated with Topology locality"
    assert book.status("web")["message"] == text and "containerStatuses" not in book.status("web")
    assert book.core.pods["web"].state == "Rejected"


def test_a_refusal_that_may_pass_is_asked_again_every_second() -> None:
    later = Refusal("UnexpectedAdmissionError", "the plugin is away", retry=True)
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web")
    for _ in range(3):
        book >> done(Admit("web"), later) << [event("UnexpectedAdmissionError", "trying again in 1 s"), wakes(1)]
        book >> after(1) << Admit("web")
    assert book >> done(Admit("web")) << RunSandbox("web", 0)


def test_an_admission_that_fails_is_tried_again() -> None:
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web") >> failed(Admit("web"), "disk full") << wakes(1)
    assert book >> after(1) << Admit("web")


def test_nothing_is_said_about_a_pod_that_is_not_admitted_yet() -> None:
    book = Playbook(machine(), exact=True) >> PodSet(pod("web")) << Admit("web")
    assert book.core.pods["web"].status is None


def test_a_pod_that_ran_before_and_is_refused_now_is_stopped_like_any_other() -> None:
    book = running(pod("web"))
    again = Playbook(machine(listed=False))
    again >> Observed(book.core.pods["web"].seen, 0) << [] >> PodSet(pod("web")) << [] >> PodsListed() << Admit("web")
    stop = StopContainer("web", "main", "main-0", 30)
    assert again >> done(Admit("web"), Refusal("OutOfcpu", "no room any more")) << [event("OutOfcpu"), stop]
    again.succeed()
    assert again.status("web")["phase"] == "Failed" and again.core.pods["web"].released


def test_a_pod_that_changes_while_it_is_being_admitted_is_admitted_once() -> None:
    raw = pod("web")
    changed = {**raw, "metadata": {**raw["metadata"], "labels": {"a": "b"}}}
    assert Playbook(machine()) >> PodSet(raw) << Admit("web") >> PodSet(changed) << []


# ---- Room for critical pods


def critical(name: str = "hero") -> dict[str, object]:
    return pod(name, container(resources=resources(cpu="1", memory="1Gi")), priority=2_000_000_000)


def victim(name: str) -> dict[str, object]:
    return pod(name, container(resources=resources(cpu="1", memory="1Gi")))


def test_others_go_for_a_critical_pod_which_waits_until_they_have_left() -> None:
    book = running(victim("web"))
    stop = StopContainer("web", "main", "main-0", 30)
    book >> PodSet(critical()) << Admit("hero")
    book >> done(Admit("hero"), NO_ROOM) << [event("Killing"), event("Preempting"), stop]
    assert book.core.pods["hero"].room_from == {"web"} and book.core.preemptions == {"cpu": 1}
    assert book >> after(5) << []  # it does not ask again before they are gone
    book.succeed(lambda one: isinstance(one, Admit))
    assert book.outstanding == [Admit("hero")]
    assert book.condition("web", "DisruptionTarget")["reason"] == "TerminationByKubelet"
    book.answer = None
    assert book >> done(Admit("hero")) << RunSandbox("hero", 0)


def test_a_critical_pod_that_nobody_can_make_room_for_is_refused() -> None:
    book = Playbook(machine()) >> PodSet(critical()) << Admit("hero") >> done(Admit("hero"), NO_ROOM)
    assert book << [event("UnexpectedAdmissionError", "no set of running pods found"), Release("hero")]


def test_those_who_leave_anyway_are_waited_for_before_anybody_is_chosen() -> None:
    book = running(victim("web"))
    book >> Evict("web", "Evicted", "pressure")
    book.answer = None
    book >> PodSet(critical()) << Admit("hero") >> done(Admit("hero"), NO_ROOM) << []
    assert book.core.pods["hero"].room_from == {"web"} and not book.core.preemptions


def test_an_ordinary_pod_that_does_not_fit_is_refused() -> None:
    book = running(victim("web"))
    assert (
        book
        >> PodSet(pod("late"))
        << Admit("late")
        >> done(Admit("late"), NO_ROOM)
        << [
            event("OutOfcpu"),
            Release("late"),
        ]
    )


def test_a_waiting_critical_pod_that_is_deleted_goes() -> None:
    book = running(victim("web"))
    book >> PodSet(critical()) << Admit("hero") >> done(Admit("hero"), NO_ROOM)
    book.answer = None
    assert book >> PodGone("hero") << Release("hero") >> done(Release("hero")) << Forget("hero")
    assert "hero" not in book.core.pods


def test_completed_jobs_hold_nothing_that_could_be_taken() -> None:
    book = running(pod("job", restartPolicy="Never")) >> ended("job")
    book.succeed()
    book >> PodSet(critical()) << Admit("hero") >> done(Admit("hero"), NO_ROOM)
    assert book << [event("UnexpectedAdmissionError"), Release("hero")]
