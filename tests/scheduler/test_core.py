"""The scheduler's decisions as stories: pods and nodes in, effects out."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kubeqos.codec import encode_json
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind, Effect, Evict, PodKey, Report
from tests.placement.strategies import nodes, pods

GOLD = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]}]}


def node(name: str, cpu: str = "2", qos: Any = GOLD, **annotations: str) -> bytes:
    return encode_json(
        {
            "metadata": {"name": name, "annotations": annotations},
            "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "10"}, "qosResources": qos},
        }
    )


def pod(name: str, cpu: str = "100m", *, gold: bool = False, **spec: Any) -> dict[str, Any]:
    classes = [{"name": "rdt", "class": "gold"}] if gold else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}, "qosResources": classes}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}},
        "spec": {"schedulerName": "default-scheduler", **spec, "containers": [container]},
    }


def bound(raw: dict[str, Any], to: str) -> dict[str, Any]:
    return {**raw, "spec": {**raw["spec"], "nodeName": to}}  # the server writes it last


class Story:
    """A scheduler, a clock, and what came out."""

    def __init__(self) -> None:
        self.core = Scheduler()
        self.now = 0.0

    def see(self, *raws: dict[str, Any]) -> None:
        for raw in raws:
            self.core.pod_changed(encode_json(raw), raw["metadata"]["uid"], self.now)

    def gone(self, uid: str) -> None:
        self.core.pod_changed(None, uid, self.now)

    def decide(self) -> list[Effect]:
        effects = list(self.core.step(self.now))
        assert self.core.validate() == []
        return effects


def brief(effects: list[Effect]) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    for effect in effects:
        match effect:
            case Bind():
                out.append(("bind", effect.pod.name, effect.node))
            case Report():
                out.append(("report", effect.pod.name, effect.nominated))
            case Evict():
                out.append(("evict", effect.victim.name, effect.preemptor.name))
    return out


def test_a_pod_waits_for_a_class_slot_and_gets_it_when_it_is_freed() -> None:
    story = Story()
    story.core.node_changed(node("n"), "n", 0)
    story.see(pod("first", gold=True), pod("second", gold=True), pod("third", gold=True))
    effects = story.decide()
    assert brief(effects) == [("bind", "first", "n"), ("report", "second", ""), ("report", "third", "")]
    report = effects[1]
    assert isinstance(report, Report)
    assert report.message == (
        "0/1 nodes are available: 1 QoS class rdt=gold exhausted (1/1 used). "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert story.decide() == []
    story.gone("first")
    assert brief(story.decide()) == [("bind", "second", "n")]


def test_a_pod_that_is_resized_in_place_is_counted_with_the_larger_of_wish_and_allocation() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="2"), "n", 0)

    def resized(cpu: str, given: str) -> dict[str, Any]:
        raw = bound(pod("web", cpu=cpu), "n")
        held = {"name": "c", "resources": {"requests": {"cpu": given}}, "allocatedResources": {"cpu": given}}
        generation = {"generation": 2}
        return {**raw, "metadata": {**raw["metadata"], **generation}, "status": {"containerStatuses": [held]}}

    story.see(bound(pod("web", cpu="500m"), "n"))
    story.see(resized("1500m", "500m"), pod("other", cpu="1"))
    assert brief(story.decide()) == [("report", "other", "")]
    story.see(resized("500m", "1500m"))
    assert story.decide() == []  # the node has not given it back yet
    story.see(resized("500m", "500m"))
    assert brief(story.decide()) == [("bind", "other", "n")]


def test_a_class_that_is_changed_in_place_frees_the_slot_of_the_one_before() -> None:
    story = Story()
    story.core.node_changed(node("n"), "n", 0)
    story.see(bound(pod("first", gold=True), "n"), pod("second", gold=True))
    assert brief(story.decide()) == [("report", "second", "")]
    changed = bound(pod("first"), "n")
    changed["metadata"]["generation"] = 2
    story.see(changed)
    assert brief(story.decide()) == [("bind", "second", "n")]


def test_only_pods_that_wait_for_what_was_freed_are_woken() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="200m"), "n", 0)
    story.see(pod("holder", gold=True), pod("cpu-hungry", cpu="150m"), pod("gold", gold=True))
    story.decide()
    queue = story.core.queue
    assert queue.count("waiting") == 2
    assert queue.wake([("container", "rdt", "gold")], 0) == ["gold"]
    assert queue.wake(["cpu"], 0) == ["cpu-hungry"]


def test_priority_goes_first_and_a_heartbeat_wakes_nobody() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="100m"), "n", 0)
    story.see(pod("low"), pod("high", priority=5))
    assert brief(story.decide())[0] == ("bind", "high", "n")
    story.core.node_changed(node("n", cpu="100m"), "n", 1)
    assert story.core.queue.count("waiting") == 1


def test_preemption_evicts_holds_the_place_and_binds_when_the_victim_is_gone() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="1"), "n", 0)
    story.see(pod("low", cpu="1"))
    story.decide()
    story.see(bound(pod("low", cpu="1"), "n"), pod("high", cpu="1", priority=10))
    assert brief(story.decide()) == [("evict", "low", "high"), ("report", "high", "n")]
    story.see(pod("thief", cpu="1"))
    assert ("bind", "thief", "n") not in brief(story.decide())
    story.gone("low")
    assert brief(story.decide())[0] == ("bind", "high", "n")


def test_a_binding_that_failed_is_tried_again_though_nothing_happens_to_the_pod() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="1"), "n", 0)
    story.see(pod("p", cpu="1"))
    story.decide()
    story.core.bind_failed(PodKey("p", "default", "p"), "no answer", 0)
    assert story.decide() == []  # a server that is away is not asked in a tight loop
    due = story.core.next_wake
    assert due is not None and due > 0
    story.now = due
    story.core.tick(due)
    assert story.core.queue.has_work
    assert brief(story.decide()) == [("bind", "p", "n")]
    assert any("binding failed" in line for line in story.core.story("p"))


def test_a_binding_whose_answer_was_lost_keeps_its_place() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="1"), "n", 0)
    story.see(pod("p", cpu="1"))
    story.decide()
    story.see(bound(pod("p", cpu="1"), "n"))
    story.core.bind_failed(PodKey("p", "default", "p"), "no answer", 0)
    story.see(pod("q", cpu="1"))
    assert brief(story.decide()) == [("report", "q", "")]


def test_a_pod_that_changes_while_its_binding_is_on_its_way_is_placed_as_it_is_then() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="4"), "n", 0)
    story.see(pod("p", cpu="1"))
    story.decide()
    story.see(pod("p", cpu="4"))
    story.core.bind_failed(PodKey("p", "default", "p"), "conflict", 0)
    story.see(pod("q", cpu="1"))
    story.decide()
    story.now = 10
    assert brief(story.decide()) == [("report", "p", "")]


def test_gated_and_foreign_pods_are_left_alone() -> None:
    story = Story()
    story.core.node_changed(node("n"), "n", 0)
    story.see(pod("gated", schedulingGates=[{"name": "g"}]), pod("foreign", schedulerName="other"))
    assert story.decide() == []


TEMPLATE = {"spec": {"spec": {"resourceClassName": "cores", "parametersRef": {"kind": "ConfigMap", "name": "cfg"}}}}
CONFIG = {"data": {"config.json": '{"cores": ["1"], "cpu attributes": [["EXCLUSIVE"]]}'}}


def test_a_claim_waits_until_its_class_is_known_and_goes_to_the_driver() -> None:
    story = Story()
    story.core.node_changed(node("plain"), "plain", 0)
    story.core.node_changed(node("cci", **{"kubeqos.io/compute-drivers": "d"}), "cci", 0)
    claims = [{"name": "c", "source": {"resourceClaimTemplateName": "t"}}]
    story.see(pod("p", resourceClaims=claims))
    (report,) = story.decide()
    assert isinstance(report, Report)
    assert report.message == 'waiting for claims: ResourceClaimTemplate "default/t" does not exist'
    assert story.core.claims.seen("ResourceClaimTemplate", "default/t", TEMPLATE)
    assert story.core.claims.seen("ResourceClass", "cores", {"driverName": "d"})
    story.core.claims_changed(10)
    (report,) = story.decide()
    assert isinstance(report, Report)
    assert report.message == 'waiting for claims: ConfigMap "default/cfg" does not exist'
    assert story.core.claims.seen("ConfigMap", "default/cfg", CONFIG)
    assert not story.core.claims.seen("ConfigMap", "default/cfg", {"data": {**CONFIG["data"], "more": "x"}})
    story.core.claims_changed(20)
    story.see(pod("p", resourceClaims=claims))
    assert brief(story.decide()) == [("bind", "p", "cci")]


def test_a_claim_that_comes_after_its_pods_sends_all_of_them_to_the_driver() -> None:
    """Deployment before its template in one file: the pods were seen when nothing was known of their driver."""
    story = Story()
    for name in ("plain-1", "plain-2", "plain-3"):
        story.core.node_changed(node(name), name, 0)
    story.core.node_changed(node("cci", **{"kubeqos.io/compute-drivers": "d"}), "cci", 0)
    claims = [{"name": "c", "source": {"resourceClaimTemplateName": "t"}}]
    names = ("a", "b", "c")
    story.see(*(pod(name, resourceClaims=claims) for name in names))
    assert {one[0] for one in brief(story.decide())} == {"report"}
    story.core.claims.seen("ResourceClaimTemplate", "default/t", TEMPLATE)
    story.core.claims.seen("ConfigMap", "default/cfg", CONFIG)
    story.core.claims_changed(story.now)
    story.now = 30.0
    assert {one[0] for one in brief(story.decide())} == {"report"}  # its class is still to come
    story.core.claims.seen("ResourceClass", "cores", {"driverName": "d"})
    story.core.claims_changed(story.now)
    story.now = 60.0
    assert sorted(brief(story.decide())) == [("bind", name, "cci") for name in names]


def test_a_compute_policy_goes_where_one_driver_is() -> None:
    story = Story()
    story.core.node_changed(node("plain"), "plain", 0)
    story.core.node_changed(node("both", **{"kubeqos.io/compute-drivers": "d,e"}), "both", 0)
    asked = pod("p")
    asked["metadata"]["annotations"] = {"cci.resources.alpha.kubernetes.io/container.c": "cci-shared"}
    wrong = pod("w")
    wrong["metadata"]["annotations"] = {"cci.resources.alpha.kubernetes.io/container.c": "cci-exclusive"}
    usual = pod("q")
    usual["metadata"]["annotations"] = {"cci.resources.alpha.kubernetes.io/pod": "cci-default"}
    story.see(asked, wrong, usual)
    found = {effect.pod.name: effect for effect in story.decide() if isinstance(effect, Bind | Report)}
    assert isinstance(found["q"], Bind)
    report = found["p"]
    assert isinstance(report, Report) and "2 node(s) don't run one compute driver" in report.message
    report = found["w"]  # 100m are no whole core: every node would refuse it
    assert isinstance(report, Report) and report.message.startswith("claims that no node can serve: spec.containers[0]")
    story.now = 60.0
    story.core.node_changed(node("cci", **{"kubeqos.io/compute-drivers": "d"}), "cci", story.now)
    assert brief(story.decide()) == [("bind", "p", "cci")]


def test_a_class_request_is_ignored_while_the_gate_is_off() -> None:
    story = Story()
    story.core = Scheduler(classes=False)
    story.core.node_changed(node("n", qos={}), "n", 0)
    story.see(pod("p", gold=True))
    assert brief(story.decide()) == [("bind", "p", "n")]


class AnyOrder(RuleBasedStateMachine):
    """Whatever the order of events, nothing is over-committed and every pod is somewhere."""

    names = Bundle("names")

    @initialize()
    def start(self) -> None:
        self.core = Scheduler()
        self.now = 0.0
        self.raws: dict[str, dict[str, Any]] = {}
        self.homes: dict[str, str] = {}
        self.confirmed: set[str] = set()

    @rule(name=st.sampled_from(["n0", "n1"]), data=st.data())
    def node_appears_or_changes(self, name: str, data: st.DataObject) -> None:
        if name not in self.core.cluster.row_of:
            self.core.node_changed(encode_json(data.draw(nodes(name))), name, self.now)

    @rule(target=names, raw=pods())
    def pod_appears(self, raw: dict[str, Any]) -> str:
        uid = f"p{len(self.raws)}"
        raw["metadata"] |= {"uid": uid, "name": uid}
        raw["spec"]["schedulerName"] = "default-scheduler"
        self.raws[uid] = raw
        self.core.pod_changed(encode_json(raw), uid, self.now)
        return uid

    @rule(uid=names)
    def pod_goes(self, uid: str) -> None:
        self.core.pod_changed(None, uid, self.now)
        self.homes.pop(uid, None)
        self.confirmed.discard(uid)

    @rule(uid=names)
    def the_api_confirms(self, uid: str) -> None:
        if uid in self.homes:
            self.core.pod_changed(encode_json(bound(self.raws[uid], self.homes[uid])), uid, self.now)
            self.confirmed.add(uid)

    @rule(uid=names)
    def the_api_refuses(self, uid: str) -> None:
        if uid in self.homes and uid not in self.confirmed:
            namespace = self.raws[uid]["metadata"]["namespace"]
            self.core.bind_failed(PodKey(uid, namespace, uid), "no", self.now)
            del self.homes[uid]
            assert uid in self.core.queue, "a pod whose binding failed waits for another try"

    @rule(uid=names)
    def the_answer_is_lost(self, uid: str) -> None:
        """What was bound stays bound, whatever the connection says of it."""
        if uid in self.homes and uid in self.confirmed:
            self.core.bind_failed(PodKey(uid, self.raws[uid]["metadata"]["namespace"], uid), "no answer", self.now)
            assert uid in self.core.cluster.where

    @rule()
    def decide(self) -> None:
        self.now += 1
        for effect in self.core.step(self.now):
            if isinstance(effect, Bind):
                self.homes[effect.pod.uid] = effect.node

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "core"):
            return
        assert self.core.validate() == []
        cluster = self.core.cluster
        running = {uid for uid in cluster.where if uid in self.homes}
        for key, column in cluster.classes.items():
            for row in cluster.rows:
                held = sum(
                    count
                    for uid, pod in cluster.rows[row].pods.items()
                    if uid in running
                    for each, count in _use(cluster, row, pod)
                    if each == key
                )
                assert column.capacity[row] <= 0 or held <= column.capacity[row]


def _use(cluster: Any, row: int, placed: Any) -> list[tuple[Any, int]]:
    from kubeqos.placement.nodes import class_use

    return list(class_use(placed.shape, cluster.rows[row].classes))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_pod_that_wants_company_is_tried_again_when_that_company_is_placed() -> None:
    wanted = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    guest = pod("guest", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}})
    host = pod("host")
    host["metadata"]["labels"] = {"app": "db"}
    story = Story()
    story.core.node_changed(node("n"), "n", 0)
    story.see(guest)
    assert brief(story.decide()) == [("report", "guest", "")]
    story.see(host)
    assert brief(story.decide()) == [("bind", "host", "n"), ("bind", "guest", "n")]
