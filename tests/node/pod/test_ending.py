"""How a pod goes: grace, hooks, sidecars last, clean-up; deletion, eviction, deadline, disappearance."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.node.pod.playbook import (
    START,
    Admit,
    CreateContainer,
    DeletePod,
    EnsureImage,
    Evict,
    Forget,
    Look,
    Observed,
    Playbook,
    PodGone,
    PodSet,
    PodsListed,
    Release,
    RemoveContainer,
    RemoveSandbox,
    RunHook,
    RunSandbox,
    SeenContainer,
    SeenPod,
    SeenSandbox,
    Stage,
    StopContainer,
    StopSandbox,
    WriteStatus,
    after,
    done,
    ended,
    event,
    failed,
    look,
    machine,
    pod,
    running,
    status,
    unless,
    wakes,
)
from tests.node.pods import container

STOP = StopContainer("web", "main", "main-0", 30)


def deleted(raw: dict[str, Any], grace: int | None = 30) -> PodSet:
    marks = {"deletionTimestamp": "2023-11-14T22:13:50Z", "deletionGracePeriodSeconds": grace}
    return PodSet({**raw, "metadata": {**raw["metadata"], **marks}})


def test_a_deleted_pod_is_stopped_removed_released_and_forgotten() -> None:
    raw = pod("web")
    assert (
        running(raw)
        >> deleted(raw)
        << [event("Killing", "Stopping container main"), STOP]
        >> done(STOP)
        << StopSandbox("web", "sandbox-0")
        >> done(StopSandbox("web", "sandbox-0"))
        << RemoveContainer("web", "main", "main-0")
        >> done(RemoveContainer("web", "main", "main-0"))
        << RemoveSandbox("web", "sandbox-0")
        >> done(RemoveSandbox("web", "sandbox-0"))
        << Release("web")
        >> done(Release("web"))
        << DeletePod("web")
        >> PodGone("web")
        << Forget("web")
    )


def test_everything_but_sidecars_stops_at_once_then_sidecars_from_the_last() -> None:
    sidecars = [container(name, restartPolicy="Always") for name in ("log", "proxy")]
    raw = pod("web", container("a"), container("b"), initContainers=sidecars)
    book = running(raw) >> deleted(raw)
    stops = [StopContainer("web", name, f"{name}-0", 30) for name in ("a", "b")]
    assert [one for one in book.outstanding if isinstance(one, StopContainer)] == stops
    book.answer = None
    assert (
        book
        >> done(stops[0])
        << []
        >> done(stops[1])
        << StopContainer("web", "proxy", "proxy-0", 30)
        >> done(StopContainer("web", "proxy", "proxy-0", 30))
        << StopContainer("web", "log", "log-0", 30)
    )


def test_grace_counts_from_the_beginning_and_never_below_two_seconds() -> None:
    sidecar = container("proxy", restartPolicy="Always")
    raw = pod("web", initContainers=[sidecar])
    book = running(raw) >> deleted(raw)
    book.answer = None
    book.now += 20
    assert book >> done(STOP) << StopContainer("web", "proxy", "proxy-0", 10)
    book = running(raw) >> deleted(raw)
    book.answer = None
    book.now += 60
    assert book >> done(STOP) << StopContainer("web", "proxy", "proxy-0", 2)


def test_a_forced_delete_gives_no_grace() -> None:
    raw = pod("web")
    book = running(raw) >> deleted(raw, 0) << [event("Killing"), StopContainer("web", "main", "main-0", 0)]
    assert book


def test_a_second_delete_can_only_make_it_sooner() -> None:
    raw = pod("web", terminationGracePeriodSeconds=60)
    book = running(raw) >> deleted(raw, 60) << [event("Killing"), StopContainer("web", "main", "main-0", 60)]
    book.now += 1
    assert book >> deleted(raw, 5) << StopContainer("web", "main", "main-0", 5)
    assert book >> deleted(raw, 50) << []


def test_a_pre_stop_hook_runs_before_the_signal_and_within_the_grace() -> None:
    hooked = container(lifecycle={"preStop": {"exec": {"command": ["drain"]}}})
    raw = pod("web", hooked)
    hook = RunHook("web", "main", "main-0", "preStop", 30.0)
    book = running(raw) >> deleted(raw) << [event("Killing"), hook]
    book.now += 12
    assert book >> done(hook) << StopContainer("web", "main", "main-0", 18)


def test_a_failed_pre_stop_hook_is_told_and_does_not_keep_the_container() -> None:
    hooked = container(lifecycle={"preStop": {"exec": {"command": ["drain"]}}})
    raw = pod("web", hooked)
    hook = RunHook("web", "main", "main-0", "preStop", 30.0)
    assert (
        running(raw)
        >> deleted(raw)
        << [event("Killing"), hook]
        >> failed(hook, "exit 1")
        << [event("FailedPreStopHook", "exit 1"), STOP]
    )


def test_a_forced_delete_skips_the_hook() -> None:
    hooked = container(lifecycle={"preStop": {"exec": {"command": ["drain"]}}})
    raw = pod("web", hooked)
    assert running(raw) >> deleted(raw, 0) << [event("Killing"), StopContainer("web", "main", "main-0", 0)]


def test_a_container_that_was_made_and_never_started_is_only_removed() -> None:
    raw = pod("web")
    book = Playbook(machine()).start(raw, lambda one: type(one).__name__ == "StartContainer")
    start = book.outstanding[0]
    assert book >> deleted(raw) << event("Killing")  # its start is under way: wait how that goes
    assert book >> failed(start) << [Look("web"), event("Failed")]
    assert book >> look("web") << RemoveContainer("web", "main", "main-0")


def test_a_stop_that_fails_is_told_and_tried_again() -> None:
    raw = pod("web")
    book = running(raw) >> deleted(raw) << [event("Killing"), STOP]
    book >> failed(STOP, "the runtime is away") << [Look("web"), event("FailedKillPod", "the runtime is away")]
    book >> look("web") << wakes(1)
    assert book >> after(1) << StopContainer("web", "main", "main-0", 29)


def test_a_clock_that_is_set_back_does_not_put_off_the_next_try() -> None:
    """What was to be tried in a second would be tried in an hour."""
    raw = pod("web")
    book = running(raw) >> deleted(raw) << [event("Killing"), STOP]
    book >> failed(STOP, "the runtime is away") << [Look("web"), event("FailedKillPod", "the runtime is away")]
    book >> look("web") << wakes(1)
    book >> after(-3600)
    assert any(isinstance(effect, StopContainer) for effect in book.answer or ())


def test_what_the_runtime_refuses_to_remove_does_not_keep_back_the_pod() -> None:
    raw = pod("web")
    book = running(raw) >> deleted(raw)
    book.answer = None
    book.succeed(unless(RemoveContainer))
    remove = RemoveContainer("web", "main", "main-0")
    assert book >> failed(remove, "task not found") << Look("web")
    book >> look("web") << [Release("web"), wakes(1)]
    assert book >> done(Release("web")) << [DeletePod("web"), wakes(1)]


def test_a_pod_that_vanished_from_the_api_leaves_nothing_behind() -> None:
    book = running(pod("web")) >> PodGone("web") << [event("Killing"), STOP]
    book.succeed()
    assert "web" not in book.core.pods
    assert book.core.story("web")[-1].endswith("Terminating → Gone")


def test_a_pod_that_vanished_before_it_was_admitted_is_released_when_the_answer_is_there() -> None:
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web") >> PodGone("web") << []
    assert book >> done(Admit("web")) << Release("web") >> done(Release("web")) << Forget("web")


def test_gone_pods_that_nobody_knew_are_no_news() -> None:
    assert Playbook(machine()) >> PodGone("never-heard") << [] >> Observed(SeenPod("x", "default", "x"), 0) << []


# ---- Ending for other reasons


def test_an_evicted_pod_fails_when_its_last_container_has_ended_and_keeps_its_logs() -> None:
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "short"}
    book = running(pod("web")) >> Evict("web", "Evicted", "The node was low on memory.", 5, why, {"of": "memory"})
    killing, told, stop = [one for one in book.answer or () if type(one).__name__ != "WriteStatus"]
    assert (killing.reason, told.reason, told.annotations) == ("Killing", "Evicted", {"of": "memory"})  # type: ignore[union-attr]
    assert stop == StopContainer("web", "main", "main-0", 5)
    assert book.status("web")["phase"] == "Running"  # as in Kubernetes: nobody may take its place yet
    book.answer = None
    book.succeed()
    assert book.status("web")["phase"] == "Failed"
    assert (book.status("web")["reason"], book.status("web")["message"]) == ("Evicted", "The node was low on memory.")
    assert book.condition("web", "DisruptionTarget")["reason"] == "TerminationByKubelet"
    record = book.core.pods["web"]
    assert record.released and [one.id for one in record.seen.containers] == ["main-0"]


def test_a_pod_that_ends_already_is_not_evicted() -> None:
    raw = pod("web")
    book = running(raw) >> deleted(raw) << [event("Killing"), STOP]
    assert book >> Evict("web", "Evicted", "late") << [] >> Evict("nobody", "Evicted", "none") << []


def test_the_active_deadline_counts_from_the_start_of_the_pod() -> None:
    raw = pod("job", activeDeadlineSeconds=100, restartPolicy="Never")
    book = running(raw)
    assert book >> after(99) << wakes(1)
    stop = StopContainer("job", "main", "main-0", 30)
    assert book >> after(1) << [event("Killing"), event("DeadlineExceeded"), stop]
    book.succeed()
    assert (book.status("job")["phase"], book.status("job")["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_pod_that_completed_is_wound_down_by_itself() -> None:
    sidecar = container("proxy", restartPolicy="Always")
    book = running(pod("job", restartPolicy="Never", initContainers=[sidecar]))
    assert book >> ended("job") << StopContainer("job", "proxy", "proxy-0", 30)
    book.succeed()
    assert book.status("job")["phase"] == "Succeeded" and book.core.pods["job"].released
    assert book.core.pods["job"].state == "Finished"


def test_a_finished_pod_is_cleaned_up_when_it_is_deleted() -> None:
    raw = pod("job", restartPolicy="Never")
    book = running(raw) >> ended("job")
    book.succeed()
    assert (
        book
        >> deleted(raw)
        << RemoveContainer("job", "main", "main-0")
        >> done(RemoveContainer("job", "main", "main-0"))
        << RemoveSandbox("job", "sandbox-0")
        >> done(RemoveSandbox("job", "sandbox-0"))
        << DeletePod("job")
    )


def test_a_static_pod_is_never_deleted_in_the_api_by_us() -> None:
    book = Playbook(machine(listed=False))
    book >> PodSet(pod("static"), "file")
    book.succeed()
    assert book.status("static")["phase"] == "Running"
    book >> PodGone("static")
    book.succeed()
    assert "static" not in book.core.pods


def test_a_mirror_pod_is_none_of_the_machines() -> None:
    mirror = pod("mirror", annotations={"kubernetes.io/config.mirror": "x"})
    assert Playbook(machine()) >> PodSet(mirror) << []


# ---- Taking over


def seen(*stages: Stage, ready: bool = True) -> SeenPod:
    containers = tuple(
        SeenContainer(
            f"main-{number}", "main", number, stage, START - 50, START - 49, START - 9 if stage == "exited" else 0
        )
        for number, stage in enumerate(stages)
    )
    return SeenPod(
        "web", "default", "web", (SeenSandbox("sandbox-0", 0, ready, START - 60, ("10.0.0.1",)),), containers
    )


def test_what_runs_is_taken_over_without_touching_it() -> None:
    core = machine(listed=False)
    assert (
        Playbook(core)
        >> Observed(seen(Stage.RUNNING), 0)
        << []
        >> PodSet(pod("web"))
        << []
        >> PodsListed()
        << Admit("web")
        >> done(Admit("web"))
        << [status(phase="Running")]
    )


def test_nothing_is_started_before_all_pods_are_known() -> None:
    assert Playbook(machine(listed=False)) >> PodSet(pod("web")) << [] >> PodsListed() << Admit("web")


def test_who_runs_is_admitted_again_before_who_is_new() -> None:
    book = Playbook(machine(listed=False)) >> Observed(seen(Stage.RUNNING), 0) << [] >> PodSet(pod("a-new")) << []
    assert book >> PodSet(pod("web")) << [] >> PodsListed() << [Admit("web"), Admit("a-new")]


def test_what_ended_while_nobody_looked_is_restarted() -> None:
    book = Playbook(machine(listed=False)) >> Observed(seen(Stage.EXITED), 0) << [] >> PodSet(pod("web")) << []
    book >> PodsListed() << Admit("web")
    book.succeed()
    assert book.container("web")["restartCount"] == 1 and book.status("web")["phase"] == "Running"


def test_a_dead_sandbox_of_an_earlier_life_is_replaced() -> None:
    book = (
        Playbook(machine(listed=False))
        >> Observed(seen(Stage.EXITED, ready=False), 0)
        << []
        >> PodSet(pod("web"))
        << []
    )
    book >> PodsListed() << Admit("web")
    assert book >> done(Admit("web")) << RunSandbox("web", 1)


def test_orphans_go() -> None:
    stop = StopContainer("web", "main", "main-0", 30)
    book = Playbook(machine(listed=False)) >> Observed(seen(Stage.RUNNING), 0) << [] >> PodsListed() << stop
    book.succeed()
    assert not book.core.pods
    book = Playbook(machine()) >> Observed(seen(Stage.RUNNING), 0) << stop
    book.succeed()
    assert not book.core.pods


def test_a_pod_that_had_ended_before_the_restart_stays_as_it_was_told() -> None:
    told = {"phase": "Succeeded", "startTime": "2023-11-14T22:00:00Z", "containerStatuses": [{"name": "main"}]}
    raw = {**pod("web", restartPolicy="Never"), "status": told}
    book = Playbook(machine(listed=False)) >> Observed(seen(Stage.EXITED), 0) << [] >> PodSet(raw)
    assert book.answer == [StopSandbox("web", "sandbox-0")]
    book.succeed()
    assert book.core.pods["web"].status == told and book.core.pods["web"].state == "Finished"


def test_a_look_from_before_our_own_change_is_repeated() -> None:
    book = running(pod("web"))
    old = Observed(seen(), 0)
    assert book >> old << Look("web")
    assert book.core.pods["web"].containers["main"].live


def test_conditions_keep_their_times_over_a_restart() -> None:
    since = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:00:00Z"}
    raw = {**pod("web"), "status": {"phase": "Running", "conditions": [since]}}
    book = Playbook(machine(listed=False)) >> Observed(seen(Stage.RUNNING), 0) << [] >> PodSet(raw) << []
    book >> PodsListed() << Admit("web")
    book.succeed()
    assert book.condition("web", "Ready")["lastTransitionTime"] == "2023-11-14T22:00:00Z"


# ---- What has ended stays so


def told(book: Playbook) -> list[str]:
    """How every status that is written shows the container, from here to the end."""
    found, book.answer = [], None
    while ready := list(book.outstanding):
        book >> done(ready[0])
        found += [next(iter(_state(one))) for one in book.answer or () if isinstance(one, WriteStatus)]
        book.answer = None
    return found


def _state(written: WriteStatus) -> Any:
    return written.status["containerStatuses"][0]["state"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
def test_a_container_that_was_removed_is_never_called_one_that_is_still_to_come(policy: str) -> None:
    raw = pod("web", restartPolicy=policy)
    book = running(raw) >> deleted(raw)
    assert set(told(book)) == {"terminated"}
    assert book.container("web")["state"]["terminated"]["containerID"] == "containerd://main-0"
    assert book.container("web")["containerID"] == "containerd://main-0"


def test_a_container_that_only_the_api_remembers_has_ended_all_the_same() -> None:
    """The agent is new, and the last one had removed everything but not seen the pod go."""
    raw = pod("web", restartPolicy="Never")
    before = running(raw) >> deleted(raw)
    before.succeed()
    marked = deleted({**raw, "status": {**before.status("web"), "phase": "Running"}})
    book = Playbook(machine()) >> marked << Release("web")
    book >> done(Release("web")) << DeletePod("web")
    assert book.container("web") == before.container("web")


def test_what_has_ended_for_good_is_not_run_again_when_the_runtime_forgets_it() -> None:
    raw = pod("web", container("one"), container("two"), restartPolicy="Never")
    book = running(raw) >> ended("web", "one", code=3) << []
    book >> look("web", lambda seen: replace(seen, containers=tuple(c for c in seen.containers if c.name == "two")))
    assert book << []  # nothing is made in its place
    assert book.container("web", "one")["state"]["terminated"]["exitCode"] == 3


def test_what_runs_again_goes_on_counting_when_the_runtime_forgets_it() -> None:
    book = running(pod("web")) >> ended("web", code=3) << EnsureImage("web", "main")
    book >> look("web", lambda seen: replace(seen, containers=())) << []
    assert book >> done(EnsureImage("web", "main")) << [event("Pulled"), CreateContainer("web", "main", 1, "sandbox-0")]
    assert book.container("web")["state"]["terminated"]["exitCode"] == 3
