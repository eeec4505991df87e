"""Critical pods get room: who has to go, and that nobody else takes what they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.codec import encode_yaml
from kubeqos.node.pod.preemption import MESSAGE, Peer, victims
from kubeqos.rules.qos.podqos import QosClass
from tests.node.pods import container, pod, resources
from tests.node.world import World

BEST, BURST, SURE = QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED
CRITICAL = 2_000_000_000


def peer(uid: str, qos: QosClass = SURE, priority: int | None = 0, **amounts: int) -> Peer:
    return Peer(uid, qos, amounts, priority)


HERO = peer("hero", priority=CRITICAL)


# ---- The choice


@pytest.mark.parametrize(
    ("missing", "peers", "gone"),
    [
        # BestEffort pods hold no requests: they go for pods, and for nothing else.
        ({"pods": 1}, [peer("best", BEST), peer("burst", BURST, cpu=100), peer("sure", cpu=100)], "best"),
        ({"cpu": 100}, [peer("best", BEST), peer("burst", BURST, cpu=100), peer("sure", cpu=100)], "burst"),
        # A Guaranteed pod goes only where all others together would not do.
        ({"cpu": 200}, [peer("burst", BURST, cpu=100), peer("sure", cpu=100), peer("big", cpu=500)], "burst sure"),
        ({"cpu": 200}, [peer("burst", BURST, cpu=100), peer("big", cpu=500)], "big"),
        # The nearest goes first, so that few go; of two that both do, the smaller one.
        ({"cpu": 300}, [peer("a", cpu=100), peer("b", cpu=200), peer("c", cpu=300), peer("d", cpu=400)], "c"),
        ({"cpu": 300, "memory": 10}, [peer("a", cpu=300), peer("b", cpu=300, memory=10)], "b"),
        ({"cpu": 100}, [peer("a", cpu=100, memory=7), peer("b", cpu=200, memory=5)], "b"),
        ({"cpu": 500}, [peer("a", cpu=100), peer("b", cpu=200), peer("c", cpu=300)], "c b"),
        # Critical pods stay, unless their own priority is lower.
        ({"cpu": 100}, [peer("calm", BURST, cpu=100), peer("twin", priority=CRITICAL, cpu=100)], "calm"),
    ],
)  # fmt: skip
def test_as_few_as_possible_of_the_least_promised(missing: dict[str, int], peers: list[Peer], gone: str) -> None:
    assert victims(HERO, peers, missing) == tuple(gone.split())


def test_nobody_goes_when_nobody_would_be_enough() -> None:
    peers = [peer("a", cpu=100), peer("twin", priority=CRITICAL, cpu=900)]
    assert victims(HERO, peers, {"cpu": 300, "memory": 5, "pods": 1}) == (
        "no set of running pods found to reclaim resources: [(res: cpu, q: 200), (res: memory, q: 5), ]"
    )


def test_among_critical_pods_priority_decides() -> None:
    node_critical = peer("node", priority=CRITICAL + 1000)
    assert victims(node_critical, [peer("cluster", priority=CRITICAL, cpu=100)], {"cpu": 100}) == ("cluster",)
    static = Peer("static", SURE, {"cpu": 100}, None, static=True)
    assert isinstance(victims(node_critical, [static], {"cpu": 100}), str)
    assert isinstance(victims(static, [peer("cluster", priority=CRITICAL, cpu=100)], {"cpu": 100}), str)


amounts = st.fixed_dictionaries({"cpu": st.integers(0, 5), "memory": st.integers(0, 5)})
crowd = st.lists(st.tuples(st.sampled_from(list(QosClass)), amounts), max_size=6)


@given(crowd, st.fixed_dictionaries({"cpu": st.integers(1, 12), "memory": st.integers(1, 12)}))
def test_who_goes_is_enough_and_no_guaranteed_pod_goes_in_vain(
    found: list[tuple[QosClass, dict[str, int]]], missing: dict[str, int]
) -> None:
    peers = [peer(f"p{n}", qos, **has) for n, (qos, has) in enumerate(found)]
    by_uid = {one.uid: one for one in peers}

    def enough(some: list[Peer]) -> bool:
        return all(sum(one.gives(name) for one in some) >= amount for name, amount in missing.items())

    chosen = victims(HERO, peers, missing)
    assert isinstance(chosen, str) == (not enough(peers))
    if isinstance(chosen, str):
        return
    gone = [by_uid[uid] for uid in chosen]
    assert enough(gone) and len(set(chosen)) == len(chosen)
    if any(one.qos is SURE for one in gone):
        assert not enough([one for one in peers if one.qos is not SURE])


# ---- On a node


def guaranteed(cpu: str) -> dict[str, Any]:
    return container(resources=resources(cpu=cpu, memory="1Gi"))


async def full_node(node: World) -> dict[str, str]:
    """8 CPUs: 3 Guaranteed, 3 and 2 Burstable, and one pod without any request."""
    asked = {
        "sure": guaranteed("3"),
        "burst": container(resources={"requests": {"cpu": "3"}}),
        "small": container(resources={"requests": {"cpu": "2"}}),
        "best": container(),
    }
    slow = {"simulate.kubeqos.io/stop": "after=5s code=0"}
    return {name: await node.start(pod(name, one, annotations=slow)) for name, one in asked.items()}


async def test_a_critical_pod_makes_the_right_pods_go_and_waits_for_them(tmp_path: Path) -> None:
    async with World(tmp_path, cpu_manager_policy="none") as node:
        uids = await full_node(node)
        hero = await node.start(pod("hero", guaranteed("2"), priority=CRITICAL))
        assert node.status(hero) == {} and node.agent.core.pods[hero].room_from == {uids["small"]}
        late = await node.start(pod("late", container(resources={"requests": {"cpu": "1"}})))
        assert node.status(late)["reason"] == "OutOfcpu"  # what is being freed is promised
        await node.advance(35)
        gone = node.status(uids["small"])
        assert (gone["phase"], gone["reason"], gone["message"]) == ("Failed", "Preempting", MESSAGE)
        target = next(one for one in gone["conditions"] if one["type"] == "DisruptionTarget")
        assert (target["reason"], target["message"]) == (
            "TerminationByKubelet",
            "Pod was preempted by Kubelet to accommodate a critical pod.",
        )
        assert node.status(hero)["phase"] == "Running"
        assert {name for name, uid in uids.items() if node.status(uid)["phase"] == "Running"} == {
            "sure", "burst", "best"
        }  # fmt: skip
        assert ("Preempting", MESSAGE) in node.events and node.agent.core.preemptions == {"cpu": 1}


async def test_a_static_pod_is_critical(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    async with World(tmp_path, static_pod_dir=folder, max_pods=2) as node:
        uids = [await node.start(pod("a", guaranteed("1"))), await node.start(pod("b"))]
        spec = {"containers": [container()]}
        text = encode_yaml({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": spec})
        (folder / "etcd.yaml").write_text(text)
        await node.advance(40)
        assert [node.status(uid)["phase"] for uid in uids] == ["Running", "Failed"]
        (static,) = [one for one in node.agent.core.pods.values() if one.source == "file"]
        assert static.state.value == "Running" and node.agent.core.preemptions == {"pods": 1}


async def test_nobody_goes_for_a_pod_that_cannot_run_here_anyway(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uids = await full_node(node)
        for spec, reason, words in (
            ({"nodeSelector": {"disk": "ssd"}}, "NodeAffinity", "didn't match"),
            ({"containers": [guaranteed("9")]}, "UnexpectedAdmissionError", "[(res: cpu, q: 1000), ]"),
        ):
            hero = await node.start(pod("hero", **{"containers": [guaranteed("2")], "priority": CRITICAL, **spec}))
            status = node.status(hero)
            assert (status["phase"], status["reason"]) == ("Failed", reason) and words in status["message"]
        assert all(node.status(uid)["phase"] == "Running" for uid in uids.values())
        await node.end(uids["small"], 0)
        await node.advance(3)
        late = await node.start(pod("late", container(resources={"requests": {"cpu": "2"}})))
        assert node.status(late)["phase"] == "Running"  # and nothing stays promised


async def test_a_restart_on_the_way_leads_to_the_same_end(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        uids = await full_node(node)
        hero = await node.start(pod("hero", guaranteed("2"), priority=CRITICAL))
        await node.halt()
        await node.boot()
        await node.advance(40)
        phases = {name: node.status(uid)["phase"] for name, uid in {**uids, "hero": hero}.items()}
        assert phases == {
            "sure": "Running",
            "burst": "Running",
            "small": "Failed",
            "best": "Running",
            "hero": "Running",
        }


async def test_a_deleted_critical_pod_keeps_nothing_promised(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        await full_node(node)
        hero = await node.start(pod("hero", guaranteed("2"), priority=CRITICAL))
        node.pods.remove(hero)
        await node.advance(40)
        late = await node.start(pod("late", container(resources={"requests": {"cpu": "2"}})))
        assert hero not in node.agent.core.pods and node.status(late)["phase"] == "Running"
