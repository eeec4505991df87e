"""How a pod comes up: sandbox, init containers, sidecars, app containers; and what a failure on the way does."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.node.pod.playbook import (
    START,
    Admit,
    CreateContainer,
    EnsureImage,
    Failed,
    Look,
    Playbook,
    PodSet,
    RemoveContainer,
    RunHook,
    RunSandbox,
    SeenPod,
    SeenSandbox,
    Stage,
    StartContainer,
    StopContainer,
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


def test_a_pod_from_first_to_last_step() -> None:
    assert (
        Playbook(machine())
        >> PodSet(pod("web"))
        << Admit("web")
        >> done(Admit("web"))
        << [RunSandbox("web", 0), status(phase="Pending")]
        >> done(RunSandbox("web", 0))
        << [EnsureImage("web", "main"), status(podIP="10.0.0.1")]
        >> done(EnsureImage("web", "main"))
        << [event("Pulled", "already present"), CreateContainer("web", "main", 0, "sandbox-0")]
        >> done(CreateContainer("web", "main", 0, "sandbox-0"))
        << [event("Created"), StartContainer("web", "main", "main-0")]
        >> done(StartContainer("web", "main", "main-0"))
        << [event("Started"), status(phase="Running")]
    )


def test_an_image_that_had_to_be_pulled_is_told_so() -> None:
    assert (
        Playbook(machine()).start(pod("web"), unless(EnsureImage))
        >> done(EnsureImage("web", "main"), "pulled")
        << [event("Pulled", "Successfully pulled"), CreateContainer("web", "main", 0, "sandbox-0")]
    )


def test_containers_start_one_after_the_other_in_order() -> None:
    book = Playbook(machine()).start(pod("web", container("a"), container("b")), unless(StartContainer))
    assert (
        book
        >> done(StartContainer("web", "a", "a-0"))
        << [event("Started"), EnsureImage("web", "b")]
        >> done(EnsureImage("web", "b"))
        << [event("Pulled"), CreateContainer("web", "b", 0, "sandbox-0")]
    )


STAGED = pod(
    "web",
    container("app"),
    initContainers=[container("first"), container("proxy", restartPolicy="Always"), container("second")],
)


def test_init_containers_come_one_by_one_and_sidecars_stay() -> None:
    book = Playbook(machine()).start(STAGED)
    assert book.status("web")["phase"] == "Pending" and book.container("web", "app")["state"] == {
        "waiting": {"reason": "PodInitializing"}
    }
    assert book >> ended("web", "first") << EnsureImage("web", "proxy")
    book.succeed()
    assert book.container("web", "proxy")["started"] is True
    assert book.container("web", "second")["state"].keys() == {"running"}
    assert book >> ended("web", "second") << EnsureImage("web", "app")
    book.succeed()
    assert book.status("web")["phase"] == "Running" and book.condition("web", "Initialized")["status"] == "True"


def test_a_sidecar_that_has_not_started_holds_up_who_comes_after_it() -> None:
    probed = container("proxy", restartPolicy="Always", startupProbe={"exec": {"command": ["true"]}})
    raw = pod("web", container("app"), initContainers=[probed])
    book = Playbook(machine()).start(raw, lambda one: type(one).__name__ == "RunProbe")
    assert book.container("web", "proxy")["started"] is False
    assert book.container("web", "app")["state"]["waiting"]["reason"] == "PodInitializing"
    book.succeed()
    assert book.container("web", "app")["state"].keys() == {"running"}


def test_a_failed_init_container_is_tried_again_after_a_while() -> None:
    book = Playbook(machine()).start(STAGED)
    assert book >> ended("web", "first", 1) << EnsureImage("web", "first")  # the first restart is immediate
    book.succeed()
    assert book >> ended("web", "first", 1) << [event("BackOff"), status(phase="Pending"), wakes(10)]
    assert book.container("web", "first")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert book.container("web", "first")["restartCount"] == 1


def test_a_sidecar_that_ends_during_initialization_comes_back_without_holding_it_up() -> None:
    book = Playbook(machine()).start(STAGED)
    book >> ended("web", "first")
    book.succeed()
    assert book >> ended("web", "proxy", 1) << EnsureImage("web", "proxy")
    book.succeed()
    assert book.container("web", "proxy")["restartCount"] == 1
    assert book.container("web", "second")["state"].keys() == {"running"}


def test_a_sidecar_beside_the_app_is_restarted_whatever_its_exit_code() -> None:
    raw = pod(
        "job", container("app"), initContainers=[container("proxy", restartPolicy="Always")], restartPolicy="Never"
    )
    book = running(raw)
    assert book >> ended("job", "proxy", 0) << EnsureImage("job", "proxy")


def test_once_an_app_container_ran_initialization_is_over() -> None:
    book = Playbook(machine()).start(pod("web", initContainers=[container("first")]))
    book >> ended("web", "first")
    book.succeed()
    gone = book.core.pods["web"].seen

    def forgotten(seen: SeenPod) -> SeenPod:
        left = tuple(one for one in seen.containers if one.name != "first")
        return SeenPod(seen.uid, seen.namespace, seen.name, seen.sandboxes, left)

    assert gone.newest("first") is not None
    assert book >> look("web", forgotten) << []
    assert book.condition("web", "Initialized")["status"] == "True"


# ---- Failures


@pytest.mark.parametrize("attempts", [1, 2, 3, 6])
def test_a_sandbox_that_cannot_be_made_is_tried_again_later_each_time(attempts: int) -> None:
    book = Playbook(machine()).start(pod("web"), unless(RunSandbox))
    for failures in range(attempts):
        delay = min(2**failures, 30)
        (
            book
            >> failed(RunSandbox("web", 0), "no network")
            << [Look("web"), event("FailedCreatePodSandBox", "no network")]
        )
        book >> look("web") << wakes(delay)
        book >> after(delay) << RunSandbox("web", 0)
    assert book.status("web")["phase"] == "Pending"


def test_a_reason_of_its_own_is_told_as_it_is() -> None:
    assert (
        Playbook(machine()).start(pod("web"), unless(RunSandbox))
        >> failed(RunSandbox("web", 0), "configmap missing", "FailedMount")
        << [Look("web"), event("FailedMount", "configmap missing")]
    )


def test_success_forgets_earlier_failures() -> None:
    book = Playbook(machine()).start(pod("web"), unless(RunSandbox))
    book >> failed(RunSandbox("web", 0)) << [Look("web"), event("FailedCreatePodSandBox")]
    book >> look("web") << wakes(1)
    book >> after(1) << RunSandbox("web", 0)
    book >> done(RunSandbox("web", 0)) << EnsureImage("web", "main")
    assert "sandbox" not in book.core.pods["web"].backoffs and "sandbox" not in book.core.pods["web"].retry_at


def test_nothing_is_done_between_a_failed_call_and_a_look_at_what_it_did() -> None:
    """The runtime may have carried it out all the same."""
    book = Playbook(machine()).start(pod("web"), unless(RunSandbox))
    book >> failed(RunSandbox("web", 0), "deadline exceeded") << [Look("web"), event("FailedCreatePodSandBox")]
    assert book >> after(60) << []

    def made(seen: SeenPod) -> SeenPod:
        return SeenPod("web", "default", "web", (SeenSandbox("sandbox-0", 0, True, START),))

    assert book >> look("web", made) << EnsureImage("web", "main")


def test_an_image_that_cannot_be_pulled_backs_off_and_says_so() -> None:
    book = Playbook(machine()).start(pod("web"), unless(EnsureImage))
    (
        book
        >> failed(EnsureImage("web", "main"), "not found", "ErrImagePull")
        << [
            event("Failed", 'Failed to pull image "example.org/app:1": not found'),
            event("BackOff", 'Back-off pulling image "example.org/app:1"'),
            event("Failed", "Error: ImagePullBackOff"),
            status(containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
            wakes(1),
        ]
    )
    assert book >> after(1) << EnsureImage("web", "main")
    assert (
        book
        >> failed(EnsureImage("web", "main"), "not found", "ErrImagePull")
        << [event("Failed"), event("BackOff"), event("Failed"), wakes(2)]
        >> after(2)
        << EnsureImage("web", "main")
        >> done(EnsureImage("web", "main"))
        << [event("Pulled"), CreateContainer("web", "main", 0, "sandbox-0")]
    )


CREATE, STARTS = CreateContainer("web", "main", 0, "sandbox-0"), StartContainer("web", "main", "main-0")


def test_a_container_that_cannot_be_created_looks_for_its_image_again() -> None:
    book = Playbook(machine()).start(pod("web"), unless(CreateContainer))
    book >> failed(CREATE, "no such image") << [Look("web"), event("Failed", "no such image")]
    assert book.container("web")["state"] == {"waiting": {"reason": "CreateContainerError", "message": "no such image"}}
    book >> look("web") << wakes(1)
    assert book >> after(1) << EnsureImage("web", "main")


def test_a_container_that_can_never_be_created_is_tried_ever_less_often() -> None:
    """The image is there each time, which says nothing about the container."""
    book = Playbook(machine()).start(pod("web"), unless(CreateContainer))
    for seconds in (1, 2, 4, 8):
        book >> failed(CREATE, "no such device") << [Look("web"), event("Failed")]
        book >> look("web") << wakes(seconds)
        book >> after(seconds) << EnsureImage("web", "main")
        assert book >> done(EnsureImage("web", "main")) << [event("Pulled"), CREATE]


def test_a_container_that_cannot_be_started_is_removed_and_made_anew() -> None:
    book = Playbook(machine()).start(pod("web"), unless(StartContainer))
    book >> failed(STARTS, "no such file") << [Look("web"), event("Failed", "no such file")]
    assert book.container("web")["state"]["waiting"]["reason"] == "RunContainerError"
    remove = RemoveContainer("web", "main", "main-0")
    book >> look("web") << [remove]
    book >> done(remove) << wakes(1)
    book >> after(1) << EnsureImage("web", "main")
    assert book >> done(EnsureImage("web", "main")) << [event("Pulled"), CREATE]


def test_a_start_that_a_manager_holds_back_keeps_its_container() -> None:
    book = Playbook(machine()).start(pod("web"), unless(StartContainer))
    book >> failed(STARTS, "the plugin is away", "PreStartHookError") << [Look("web"), event("Failed")]
    assert book >> look("web") << wakes(1)
    assert book >> after(1) << STARTS


def test_the_count_of_attempts_goes_on_when_the_runtime_has_forgotten() -> None:
    told = {"name": "main", "containerID": "containerd://x", "restartCount": 4}
    raw = {**pod("web"), "status": {"phase": "Running", "containerStatuses": [told]}}
    book = Playbook(machine()).start(raw, unless(CreateContainer))
    assert book.outstanding == [CreateContainer("web", "main", 5, "sandbox-0")]


# ---- Sandboxes that die


def dead(seen: SeenPod) -> SeenPod:
    sandboxes = tuple(SeenSandbox(one.id, one.attempt, False, one.created) for one in seen.sandboxes)
    return SeenPod(seen.uid, seen.namespace, seen.name, sandboxes, seen.containers)


def test_a_pod_whose_sandbox_died_gets_a_new_one_when_its_containers_are_down() -> None:
    book = running(pod("web"))
    stop = StopContainer("web", "main", "main-0", 2)
    assert book >> look("web", dead) << stop
    assert book.status("web").get("podIP") is None
    assert book >> done(stop) << RunSandbox("web", 1)
    book.now += 1
    assert book >> done(RunSandbox("web", 1)) << EnsureImage("web", "main")
    book.succeed()
    assert book.container("web")["restartCount"] == 1 and book.status("web")["phase"] == "Running"


def test_a_container_that_never_started_is_taken_away_with_its_sandbox() -> None:
    """A runtime has nothing to stop there and says that it is done: asked to stop it, it is asked for ever."""
    book = running(pod("web"))

    def rebooted(seen: SeenPod) -> SeenPod:
        made = tuple(structs.replace(one, stage=Stage.CREATED, started=0.0) for one in dead(seen).containers)
        return structs.replace(dead(seen), containers=made)

    remove = RemoveContainer("web", "main", "main-0")
    assert book >> look("web", rebooted) << remove
    assert book >> done(remove) << RunSandbox("web", 1)


def test_with_a_new_sandbox_initialization_begins_anew() -> None:
    book = Playbook(machine()).start(pod("web", initContainers=[container("first")]))
    book >> ended("web", "first")
    book.succeed()
    book >> look("web", dead)
    book.succeed(unless(RunSandbox))
    book.now += 1
    assert book >> done(RunSandbox("web", 1)) << EnsureImage("web", "first")


def test_the_old_sandbox_goes_when_its_last_container_has_gone() -> None:
    book = running(pod("web"))
    book >> look("web", dead)
    book.succeed(unless(RunSandbox))
    book.now += 1
    book.answer = None
    book >> done(RunSandbox("web", 1))
    book.succeed()
    kept = {one.id for one in book.core.pods["web"].seen.sandboxes}
    assert kept == {"sandbox-0", "sandbox-1"}  # main-0 still shows how it ended
    for _ in range(2):
        book.now += 700
        book.answer = None
        book >> ended("web", code=1)
        book.succeed()
    assert [one.id for one in book.core.pods["web"].seen.sandboxes] == ["sandbox-1"]
    assert [one.attempt for one in book.core.pods["web"].containers["main"].instances] == [3, 2]


def test_of_each_container_the_present_and_the_last_instance_are_kept() -> None:
    book = running(pod("web"))
    for _ in range(3):
        book.now += 700  # a good long life: no back-off
        book.answer = None
        book >> ended("web", code=1)
        book.succeed()
    kept = [one.id for one in book.core.pods["web"].containers["main"].instances]
    assert kept == ["main-3", "main-2"]


# ---- Hooks


def test_a_post_start_hook_runs_once_and_its_failure_kills_the_container() -> None:
    hooked = container(lifecycle={"postStart": {"exec": {"command": ["warm-up"]}}})
    book = Playbook(machine()).start(pod("web", hooked), unless(RunHook))
    hook = RunHook("web", "main", "main-0", "postStart", 600.0)
    assert book.outstanding == [hook]
    stop = StopContainer("web", "main", "main-0", 30)
    assert book >> failed(hook, "exit 1") << [event("FailedPostStartHook", "exit 1"), stop]
    assert book.container("web")["ready"] is False
    assert book >> done(stop) << EnsureImage("web", "main")


def test_a_post_start_hook_that_succeeds_is_not_run_again() -> None:
    hooked = container(lifecycle={"postStart": {"exec": {"command": ["warm-up"]}}})
    book = Playbook(machine()).start(pod("web", hooked))
    assert book.container("web")["state"].keys() == {"running"} and not book.core.pods["web"].hooks
    assert book >> look("web") << []


def test_a_failed_effect_is_a_value() -> None:
    assert Failed(CREATE, "m") == failed(CREATE, "m") and Stage.CREATED == "created"
