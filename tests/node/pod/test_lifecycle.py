"""Pods from their first to their last moment, in virtual time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from kubeqos.node.pod import effects as fx
from tests.node.pods import container, pod
from tests.node.world import World

SHORT = ["sh", "-c", "sleep 3"]


async def test_a_pod_starts_runs_and_ends_on_request(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("web", container(), container("helper")))
        assert node.status(uid)["phase"] == "Running"
        assert set(node.running(uid)) == {"main", "helper"}
        await node.end(uid)
        await node.advance(5)
        assert uid not in node.pods.pods and not node.runtime.core.sandboxes
        assert [line.split(" ", 1)[1] for line in node.agent.core.story(uid) if "→" in line] == [
            "Waiting → Admitted",
            "Admitted → Starting",
            "Starting → Running",
            "Running → Terminating: deleted",
            "Terminating → Finished: waits to be forgotten",
            "Finished → Gone",
        ]


async def test_init_containers_run_one_after_the_other(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        init = [container("first", command=SHORT), container("second", command=SHORT)]
        uid = await node.start(pod("web", initContainers=init))
        assert node.status(uid)["phase"] == "Pending" and set(node.running(uid)) == {"first"}
        assert node.container(uid)["state"] == {"waiting": {"reason": "PodInitializing"}}
        incomplete = next(one for one in node.status(uid)["conditions"] if one["type"] == "Initialized")
        assert incomplete["message"] == "containers with incomplete status: [first second]"
        await node.advance(4)
        assert set(node.running(uid)) == {"second"}
        await node.advance(4)
        assert set(node.running(uid)) == {"main"} and node.status(uid)["phase"] == "Running"
        assert node.container(uid, "first")["state"]["terminated"]["exitCode"] == 0


async def test_a_failing_init_container_is_tried_again_or_fails_the_pod(tmp_path: Path) -> None:
    failing = container("setup", command=["sh", "-c", "exit 3"])
    async with World(tmp_path) as node:
        again = await node.start(pod("again", initContainers=[failing]))
        never = await node.start(pod("never", initContainers=[failing], restartPolicy="Never"))
        await node.advance(5)
        assert node.status(again)["phase"] == "Pending"
        assert node.container(again, "setup")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert node.status(never)["phase"] == "Failed"
        assert node.container(never, "setup")["state"]["terminated"]["exitCode"] == 3


async def test_sidecars_start_before_and_stop_after_the_app(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        sidecar = container("proxy", restartPolicy="Always")
        raw = pod("job", container(command=SHORT), initContainers=[sidecar], restartPolicy="Never")
        uid = await node.start(raw)
        assert set(node.running(uid)) == {"proxy", "main"}
        assert node.running(uid)["proxy"].started_ns <= node.running(uid)["main"].started_ns
        await node.advance(5)
        assert node.status(uid)["phase"] == "Succeeded" and not node.running(uid)
        ended = [node.container(uid, name)["state"]["terminated"] for name in ("main", "proxy")]
        assert all(one["exitCode"] == 0 for one in ended)


async def test_crash_back_off_doubles_and_is_forgotten_after_ten_good_minutes(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("crash", annotations={"simulate.kubeqos.io/exit": "after=1s code=1 times=4"}))
        restarts = []
        for _ in range(120):
            restarts.append(node.container(uid)["restartCount"])
            await node.advance(1)
        # 1 s of life each; then at once, after 10 s, after 20 s, after 40 s.
        when = [restarts.index(count) for count in range(1, 5)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(when)]
        assert gaps == pytest.approx([11, 21, 41], abs=2)
        await node.advance(620)
        assert node.container(uid)["restartCount"] == 4 and node.conditions(uid)["Ready"] == "True"


async def test_crash_loop_is_told_in_kubernetes_words(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("crash", container(command=["sh", "-c", "exit 1"])))
        await node.advance(3)
        state = node.container(uid)
        assert state["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        text = f"back-off 10s restarting failed container=main pod=crash_default({uid})"
        assert state["state"]["waiting"]["message"] == text
        assert state["lastState"]["terminated"]["exitCode"] == 1
        assert node.status(uid)["phase"] == "Running"
        unready = next(one for one in node.status(uid)["conditions"] if one["type"] == "Ready")
        assert unready["message"] == "containers with unready status: [main]"


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        ("Never", 0, "Succeeded", 0),
        ("Never", 1, "Failed", 0),
        ("OnFailure", 0, "Succeeded", 0),
        ("OnFailure", 1, "Running", 1),
        ("Always", 0, "Running", 1),
    ],
)
async def test_restart_policies(tmp_path: Path, policy: str, code: int, phase: str, restarts: int) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("job", container(command=["sh", "-c", f"exit {code}"]), restartPolicy=policy))
        await node.advance(2)
        assert node.status(uid)["phase"] == phase
        assert node.container(uid)["restartCount"] == restarts


async def test_a_container_that_runs_out_of_memory_restarts_alone(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        limits = {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}
        load = {"simulate.kubeqos.io/load.hog": "memory=1Mi growth=32Mi/s"}
        uid = await node.start(pod("mixed", container("hog", resources=limits), container("calm"), annotations=load))
        before = node.running(uid)["calm"].id
        await node.advance(3)
        hog = node.container(uid, "hog")
        assert hog["restartCount"] >= 1
        ended = (hog["lastState"] or hog["state"])["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
        assert node.running(uid)["calm"].id == before


async def test_the_active_deadline_ends_a_pod(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("job", activeDeadlineSeconds=20, restartPolicy="Never"))
        await node.advance(25)
        status = node.status(uid)
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
        assert status["message"] == "Pod was active on the node longer than the specified deadline"
        assert not node.running(uid)


async def test_a_pod_that_ignores_the_signal_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("stubborn", annotations={"simulate.kubeqos.io/stop": "ignore"}, terminationGracePeriodSeconds=20)
        uid = await node.start(raw)
        await node.end(uid)
        await node.advance(18)
        assert node.running(uid)
        await node.advance(4)
        assert uid not in node.pods.pods


async def test_an_evicted_pod_has_failed_when_its_last_container_has_ended(tmp_path: Path) -> None:
    """Until then it runs, and nobody may take its place; an agent that comes later does not take it back."""
    async with World(tmp_path) as node:
        deaf = container(command=["sh", "-c", "sleep 1000"])
        uid = await node.start(pod("web", deaf, container("quick")))
        target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        node.agent.feed(fx.Evict(uid, "Evicted", "The node was low on resource: memory. ", 10, target))
        await node.advance(5)
        assert node.status(uid)["phase"] == "Running" and not {"reason", "message"} & set(node.status(uid))
        assert "DisruptionTarget" not in node.conditions(uid) and set(node.running(uid)) == {"main"}
        await node.advance(6)
        assert (node.status(uid)["phase"], node.status(uid)["reason"]) == ("Failed", "Evicted")
        assert node.conditions(uid)["DisruptionTarget"] == "True" and not node.running(uid)
        await node.halt()
        await node.boot()
        assert (node.status(uid)["phase"], node.status(uid)["reason"]) == ("Failed", "Evicted")


async def test_a_second_delete_may_shorten_the_grace(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        raw = pod("stubborn", annotations={"simulate.kubeqos.io/stop": "ignore"}, terminationGracePeriodSeconds=300)
        uid = await node.start(raw)
        await node.end(uid)
        await node.advance(2)
        await node.end(uid, grace=1)
        await node.advance(4)
        assert uid not in node.pods.pods


async def test_hooks_run_after_the_start_and_before_the_stop(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        hooks = {"postStart": {"exec": {"command": ["sleep", "2"]}}, "preStop": {"sleep": {"seconds": 5}}}
        uid = await node.start(pod("web", container(lifecycle=hooks), container("later")))
        assert set(node.running(uid)) == {"main"}  # the next container waits for the hook
        await node.advance(3)
        assert set(node.running(uid)) == {"main", "later"}
        await node.end(uid)
        await node.advance(3)
        assert set(node.running(uid)) == {"main"}
        await node.advance(4)
        assert uid not in node.pods.pods


async def test_a_failed_start_hook_restarts_the_container(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        hook = {"postStart": {"exec": {"command": ["sh", "-c", "exit 1"]}}}
        uid = await node.start(pod("web", container(lifecycle=hook)))
        await node.advance(3)
        assert "FailedPostStartHook" in node.reasons()
        assert node.container(uid)["restartCount"] == 1


async def test_images_that_cannot_be_pulled_back_off(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        fault = {"simulate.kubeqos.io/fail": "PullImage code=NOT_FOUND message='no such image'"}
        uid = await node.start(pod("web", container(imagePullPolicy="Always"), annotations=fault))
        assert node.container(uid)["state"]["waiting"] == {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example.org/app:1"'}  # fmt: skip  # noqa: E501
        assert node.status(uid)["phase"] == "Pending"
        assert ("Failed", 'Error: Failed to pull image "example.org/app:1": no such image') in node.events
        assert node.events.count(("BackOff", 'Back-off pulling image "example.org/app:1"')) == 1
        assert ("Failed", "Error: ImagePullBackOff") in node.events


async def test_a_refused_container_says_so_and_is_tried_again(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        fault = {"simulate.kubeqos.io/fail.main": "CreateContainer code=UNKNOWN message='disk on fire' times=2"}
        uid = await node.start(pod("web", annotations=fault))
        assert node.container(uid)["state"]["waiting"] == {"reason": "CreateContainerError", "message": "disk on fire"}
        assert ("Failed", "Error: disk on fire") in node.events
        assert 'kubeqos_node_effect_failures_total{kind="CreateContainer"} 1.0' in await node.metrics()
        await node.advance(10)
        assert node.status(uid)["phase"] == "Running"


async def test_a_container_that_is_refused_again_and_again_backs_off(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        fault = {"simulate.kubeqos.io/fail.main": "CreateContainer code=UNKNOWN message='disk on fire'"}
        await node.start(pod("web", annotations=fault))
        tries = []
        for _ in range(4):
            await node.advance(60)
            tries.append(node.events.count(("Failed", "Error: disk on fire")))
        assert tries[0] <= 8 and [b - a for a, b in itertools.pairwise(tries)] == [2, 2, 2]  # every 30 s


async def test_a_dead_sandbox_is_replaced(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uid = await node.start(pod("web", initContainers=[container("setup", command=["true"])]))
        await node.advance(1)
        sandbox = next(iter(node.runtime.core.sandboxes))
        await node.runtime.stop_pod_sandbox(sandbox)
        await node.advance(3)
        assert node.status(uid)["phase"] == "Running" and set(node.running(uid)) == {"main"}
        assert node.container(uid, "setup")["restartCount"] == 1
        assert {one.config.metadata.attempt for one in node.runtime.core.sandboxes.values() if one.ready} == {1}


async def test_a_stuck_pod_delays_nobody(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        stuck = await node.start(pod("stuck", annotations={"simulate.kubeqos.io/stop": "ignore"}))
        await node.end(stuck, grace=100_000)
        others = [await node.start(pod(f"web-{number}")) for number in range(5)]
        assert [node.status(uid)["phase"] for uid in others] == ["Running"] * 5


async def test_a_container_that_cannot_start_is_made_anew_and_holds_nothing_meanwhile(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        fault = {"simulate.kubeqos.io/fail.main": "StartContainer code=UNKNOWN message='no shell' times=2"}
        uid = await node.start(pod("web", annotations=fault))
        assert node.container(uid)["state"]["waiting"] == {"reason": "RunContainerError", "message": "no shell"}
        assert not node.runtime.core.containers
        await node.advance(10)
        assert node.status(uid)["phase"] == "Running" and node.container(uid)["restartCount"] == 0
