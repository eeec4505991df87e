"""Stories: what the machine keeps of each pod, how much of it, and that it replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import ValidationError

from kubeqos.node.pod import journal
from kubeqos.node.pod.journal import STEPS, Recorded, decode, encode, playbook, source
from kubeqos.node.pod.machine import GONE_STORIES, Core
from tests.node.pod.playbook import (
    Admit,
    Allocation,
    Evict,
    Playbook,
    PodGone,
    PodSet,
    RoomMade,
    RunProbe,
    SeenContainer,
    Shortage,
    Stage,
    StatusFacts,
    after,
    done,
    ended,
    failed,
    machine,
    pod,
    running,
    unless,
)
from tests.node.pods import container, resources
from tests.node.world import World

ROOM = Shortage("OutOfcpu", "Node didn't have enough resource: cpu", missing={"cpu": 1000})


def recorded(core: Core, name: str = "web") -> Recorded:
    found = core.recorded("default", name)
    assert found is not None
    return decode(encode(found))  # as it travels


def replay(found: Recorded) -> None:
    """Run the printed test."""
    names: dict[str, Any] = {}
    exec(compile(playbook(found), "recorded.py", "exec"), names)
    [test] = [one for name, one in names.items() if name.startswith("test_")]
    test()


def test_every_step_is_kept_with_its_time_and_its_effects() -> None:
    book = Playbook(machine()) >> PodSet(pod("web")) << Admit("web")
    book.now += 2
    book >> done(Admit("web"))
    first, second = recorded(book.core).steps
    assert (second.at - first.at, first.effects) == (2.0, [Admit("web")])
    assert first.heard() == PodSet(pod("web"))
    assert second.heard() == done(Admit("web"), Allocation(pod("web"))).make(book)
    assert [type(one).__name__ for one in second.effects] == ["RunSandbox", "WriteStatus"]


def test_a_pods_whole_life_replays() -> None:
    hook = {"preStop": {"exec": {"command": ["drain"]}}, "postStart": {"exec": {"command": ["warm"]}}}
    probes: dict[str, Any] = {"livenessProbe": {"exec": {}, "failureThreshold": 1}, "startupProbe": {"exec": {}}}
    raw = pod("web", container(lifecycle=hook, **probes), initContainers=[container("first")])
    book = Playbook(machine(facts=StatusFacts(("192.0.2.1",), "kubeqos"))).start(raw)
    book >> ended("web", "first")
    book.succeed(unless(RunProbe))
    book >> done(RunProbe("web", "main", "main-0", "startup"))
    book.answer = None
    book >> failed(RunProbe("web", "main", "main-0", "liveness"), "hung")
    book.succeed(unless(RunProbe))
    book >> PodGone("web")
    book.succeed()
    assert "web" not in book.core.pods
    replay(recorded(book.core))


def test_a_crash_loop_replays_with_its_times() -> None:
    book = running(pod("web"))
    for _ in range(4):
        book.now += 1.125
        book.answer = None
        book >> ended("web", code=1)
        book.answer = None
        if book.core.due is not None:
            book >> after(book.core.due - book.now)
        book.succeed()
    replay(recorded(book.core))


def test_the_story_of_an_eviction_and_a_deadline_replay() -> None:
    book = running(pod("web")) >> Evict("web", "Evicted", "low", 3, {"type": "DisruptionTarget", "status": "True"})
    book.succeed()
    replay(recorded(book.core))
    book = running(pod("job", activeDeadlineSeconds=10)) >> after(10)
    book.succeed()
    replay(recorded(book.core, "job"))


def critical() -> dict[str, Any]:
    return pod("hero", container(resources=resources(cpu="1", memory="1Gi")), priority=2_000_000_000)


def test_pods_that_met_replay_each_alone() -> None:
    """What the node decided between two pods is written down as what it means to each of them."""
    book = running(pod("web", container(resources=resources(cpu="1", memory="1Gi"))))
    book >> PodSet(critical())
    book.answer = None
    book >> done(Admit("hero"), ROOM)
    book.succeed()
    assert book.status("hero")["phase"] == "Running" and book.status("web")["phase"] == "Failed"
    heard = [type(step.heard()).__name__ for step in recorded(book.core, "hero").steps]
    assert heard[:3] == ["PodSet", "Done", "RoomMade"]
    assert any(isinstance(step.heard(), Evict) for step in recorded(book.core).steps)
    replay(recorded(book.core, "hero"))
    replay(recorded(book.core))


def test_a_refusal_replays_with_what_was_missing() -> None:
    book = Playbook(machine()) >> PodSet(critical())
    book.answer = None
    book >> done(Admit("hero"), ROOM)
    book.succeed()
    replay(recorded(book.core, "hero"))
    book = Playbook(machine()) >> PodSet(pod("web"))
    book.answer = None
    book >> done(Admit("web"), ROOM)
    assert recorded(book.core).steps[1].heard() == done(Admit("web"), ROOM).make(book)
    book.succeed()
    replay(recorded(book.core))


def test_a_replay_that_differs_fails() -> None:
    found = recorded(running(pod("web")).core)
    steps = [*found.steps[:-1], journal.Step(found.steps[-1].at, found.steps[-1].stimulus, [Admit("web")])]
    with pytest.raises(AssertionError, match="wanted"):
        replay(Recorded(found.uid, found.namespace, found.name, [], found.listed, found.facts, 0, steps))


# ---- How much is kept


def test_only_the_newest_steps_are_kept_and_the_journal_says_so() -> None:
    book = running(pod("web", container(readinessProbe={"exec": {}})))
    for _ in range(STEPS):
        book.succeed()
        book >> after(10)
        book.answer = None
    found = recorded(book.core)
    assert len(found.steps) == STEPS and found.forgotten > 0
    assert f"The first {found.forgotten} steps are forgotten" in playbook(found)


def test_of_pods_that_are_gone_the_last_few_are_remembered() -> None:
    book = Playbook(machine())
    for number in range(GONE_STORIES + 1):
        book.start(pod(f"web-{number}"))
        book >> PodGone(f"web-{number}")
        book.succeed()
    assert book.core.recorded("default", "web-0") is None and book.core.story("web-0") == []
    assert recorded(book.core, "web-1").lines[-1].endswith("Gone")


def test_a_new_pod_of_an_old_name_is_the_one_that_is_meant() -> None:
    book = Playbook(machine()).start(pod("web"))
    book >> PodGone("web")
    book.succeed()
    book >> PodSet({**pod("web"), "metadata": {**pod("web")["metadata"], "uid": "second"}})
    assert recorded(book.core).uid == "second"


def test_without_a_journal_there_are_still_words() -> None:
    core = Core(journal_steps=0)
    core.listed = True
    found = recorded(running(pod("web"), core).core)
    assert not found.steps and any("Starting → Running" in line for line in found.lines)
    assert core.recorded("default", "nobody") is None


def test_what_is_no_story_is_not_read_as_one() -> None:
    with pytest.raises(ValidationError):
        decode(b'{"uid": "x"}')


# ---- As source


@pytest.mark.parametrize(
    "value",
    [
        Admit("web"),
        RoomMade("web"),
        SeenContainer("id", "main", 0, Stage.RUNNING, 1.5, annotations={"a": "b"}, classes=(("rdt", "gold"),)),
        Allocation({"spec": {"containers": [{"name": "a" * 80, "image": "b" * 80}]}}, frozenset({"main"})),
        ROOM,
        [Admit("a"), Evict("b", "Evicted", "long " * 60, condition={"type": "x"})],
        (),
        [],
        StatusFacts(("192.0.2.1",), classes=False),
    ],
)
def test_the_source_of_a_value_makes_it_again(value: object) -> None:
    from tests.node.pod import playbook as names

    assert eval(source(value), vars(names)) == value
    assert max(map(len, source(value).splitlines())) < 330


# ---- From a live node


async def test_a_story_of_a_live_agent_replays_as_a_playbook(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        sidecar = container("proxy", restartPolicy="Always")
        crash = {"simulate.kubeqos.io/exit.main": "after=1s code=1 times=2"}
        raw = pod("web", container(readinessProbe={"exec": {"command": ["true"]}}), initContainers=[sidecar])
        raw["metadata"]["annotations"] = crash
        uid = await node.start(raw)
        await node.advance(15)
        assert node.container(uid)["restartCount"] == 2
        await node.end(uid)
        await node.advance(10)
        assert uid not in node.pods.pods
        found = recorded(node.agent.core)
    assert not found.forgotten and len(found.steps) > 20
    replay(found)
