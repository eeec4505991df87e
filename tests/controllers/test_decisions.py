"""The controllers' decisions as tables: objects in, actions and reasons out."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.client.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, REPLICA_SETS, RESOURCE_QUOTAS
from kubeqos.codec import encode_json
from kubeqos.controllers import claims, claimstatus, garbage, namespaces, quota
from kubeqos.controllers.actions import Create, Delete, Patch, Tell
from kubeqos.controllers.garbage import Dependent, OwnerState
from kubeqos.controllers.nodes import lifecycle as nodes
from kubeqos.controllers.nodes import podsweep
from kubeqos.controllers.nodes.podsweep import brief
from kubeqos.controllers.workloads import disruption, replicas, rollout
from kubeqos.controllers.workloads.ownership import claimed, ownership
from kubeqos.model.timestamps import timestamp

NOW = 1_800_000_000.0
Object = dict[str, Any]


def meta(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more}


def pod(
    name: str, *, node: str = "", phase: str = "Pending", ready: float | None = None, age: float = 0, **more: Any
) -> Object:
    status: Object = {"phase": phase, **more.pop("status", {})}
    if ready is not None:
        since = timestamp(NOW - ready)
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    spec = {"nodeName": node, **more.pop("spec", {})} if node else more.pop("spec", {})
    metadata = meta(name, creationTimestamp=timestamp(NOW - age), **more)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def running(name: str, **more: Any) -> Object:
    return pod(name, **{"node": "n1", "phase": "Running", "ready": 100.0, "age": 100.0, **more})


def untimed(name: str) -> Object:
    found = running(name)
    del found["status"]["conditions"][0]["lastTransitionTime"]
    return found


# -- replicas --------------------------------------------------------------------------------------------------

RESTARTED = {"containerStatuses": [{"name": "c", "restartCount": 9}]}
WITH_SIDECAR = {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]}


def init_restarted(name: str) -> Object:
    return {"initContainerStatuses": [{"name": name, "restartCount": 9}]}


CHEAP = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
ORDER: list[tuple[str, Object, Object]] = [
    ("nobody runs it yet", pod("first"), running("second")),
    ("pending before unknown", pod("first", node="n1"), pod("second", node="n1", phase="Unknown")),
    ("unknown before running", pod("first", node="n1", phase="Unknown"), pod("second", node="n1", phase="Running")),
    ("not ready before ready", running("first", ready=None), running("second")),
    ("cheaper", running("first", annotations=CHEAP), running("second")),
    ("on the fuller node", running("first", node="full"), running("second", node="n1")),
    ("ready for a shorter time", running("first", ready=5.0), running("second", ready=500.0)),
    ("restarted more often", running("first", status=RESTARTED), running("second")),
    ("its sidecar restarted", running("b", spec=WITH_SIDECAR, status=init_restarted("s")), running("a")),
    ("other init containers do not count", running("a"), running("b", spec=WITH_SIDECAR, status=init_restarted("i"))),
    (
        "ready as long by magnitude: by uid, whoever restarted",
        running("a", ready=1000.0),
        running("b", ready=900.0, status=RESTARTED),
    ),
    ("ready, and nobody says since when", untimed("first"), running("second", ready=0.0)),
    # 2 ** 39 nanoseconds are 549.8 seconds: powers are of nanoseconds, so these two are not of one magnitude.
    ("ready for a shorter time, by powers of nanoseconds", running("b", ready=549.0), running("a", ready=550.0)),
    ("younger by an order of magnitude", running("first", age=10), running("second", age=1000)),
    ("of the same magnitude: by uid", running("a", age=1000), running("b", age=900)),
]


@pytest.mark.parametrize(("why", "first", "second"), ORDER, ids=[why for why, _, _ in ORDER])
def test_which_pod_is_deleted_first(why: str, first: Object, second: Object) -> None:
    crowd = [running(f"other-{number}", node="full") for number in range(3)]
    for pods in ([first, second], [second, first]):
        order = replicas.deletion_order(pods, [*pods, *crowd], NOW)
        assert [found["metadata"]["name"] for found in order] == [first["metadata"]["name"], second["metadata"]["name"]]


def test_a_node_is_crowded_by_active_pods_alone() -> None:
    pods = [running("a", node="n1"), running("b", node="n2"), running("c", node="n2")]
    full = [running("x", node="n1", phase="Failed"), running("y", node="n1", deletionTimestamp="x")]
    assert [found["metadata"]["name"] for found in replicas.deletion_order(pods, [*pods, *full], NOW)] == [
        "b",
        "c",
        "a",
    ]
    assert [found["metadata"]["name"] for found in replicas.deletion_order(pods, [], NOW)] == ["a", "b", "c"]


def replica_set(name: str = "rs", size: int = 3, **status: int) -> Object:
    template = {"metadata": {"labels": {"app": "a"}, "annotations": {"note": "x"}}, "spec": {"containers": []}}
    spec = {"replicas": size, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta(name, generation=2)}
    return {**head, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("pods", "creates", "deletes", "because"),
    [
        ([], 3, [], "0 of 3 replicas"),
        ([running("a"), running("b"), running("c")], 0, [], "3 of 3 replicas"),
        ([running("a"), pod("b", phase="Failed"), pod("c", phase="Succeeded")], 2, [], "1 of 3 replicas"),
        ([running("a"), running("b", deletionTimestamp="x")], 2, [], "1 of 3 replicas"),
        ([running("a"), running("b"), running("c"), pod("d")], 0, ["d"], "4 of 3 replicas"),
    ],
)
def test_the_number_of_pods(pods: list[Object], creates: int, deletes: list[str], because: str) -> None:
    plan = replicas.desired(replica_set(), pods, pods, NOW)
    assert (len(plan.create), [found.name for found in plan.delete], plan.because) == (creates, deletes, because)


def test_a_new_pod_is_its_template_and_knows_its_owner() -> None:
    made = replicas.pod_from_template(replica_set())
    assert made["metadata"]["generateName"] == "rs-"
    assert made["metadata"]["labels"] == {"app": "a"}
    assert made["metadata"]["annotations"] == {"note": "x"}
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "ReplicaSet", "uid-rs", True, True,
    )  # fmt: skip


def test_a_status_counts_labels_readiness_and_patience() -> None:
    owner = replica_set()
    owner["spec"]["minReadySeconds"] = 60
    labels = {"app": "a"}
    pods = [running("a", labels=labels), running("b", ready=20.0), pod("c", labels=labels), pod("d", phase="Failed")]
    refused = replicas.Failure("FailedCreate", "no")
    found = replicas.standing(owner, REPLICA_SETS, pods, refused, NOW)
    assert found.write is not None
    status = found.write.patch["status"]
    assert (status["replicas"], status["fullyLabeledReplicas"], status["readyReplicas"]) == (3, 2, 2)
    assert (status["availableReplicas"], status["observedGeneration"]) == (1, 2)
    assert status["conditions"][0]["reason"] == "FailedCreate"
    assert found.look_again == 40.0
    again = {**owner, "status": status}
    for other in (replicas.Failure("FailedCreate", "no, in other words"), replicas.Failure("FailedDelete", "no")):
        assert replicas.standing(again, REPLICA_SETS, pods, other, NOW + 1).write is None, "the first one is told"
    better = replicas.standing(again, REPLICA_SETS, pods, None, NOW + 1).write
    assert better is not None
    assert better.patch == {"status": {"conditions": None}}


def test_who_is_ready_and_does_not_say_since_when_is_not_available_by_waiting() -> None:
    owner = replica_set()
    owner["spec"]["minReadySeconds"] = 60
    found = replicas.standing(owner, REPLICA_SETS, [untimed("a")], None, NOW)
    assert found.write is not None
    assert (found.write.patch["status"]["readyReplicas"], found.look_again) == (1, 60.0)
    assert "availableReplicas" not in found.write.patch["status"]


def test_the_longest_name_is_a_prefix_without_a_dash() -> None:
    for length, prefix in ((252, "x" * 252 + "-"), (253, "x" * 253)):
        assert replicas.pod_from_template(replica_set("x" * length))["metadata"]["generateName"] == prefix


def test_what_is_adopted_and_what_is_let_go() -> None:
    owner = replica_set()
    mine = {"kind": "ReplicaSet", "uid": "uid-rs", "controller": True}
    other = {"kind": "ReplicaSet", "uid": "uid-other", "controller": True}
    match, differ = {"app": "a"}, {"app": "b"}
    found = ownership(
        owner,
        PODS,
        [
            pod("kept", labels=match, ownerReferences=[mine]),
            pod("strayed", labels=differ, ownerReferences=[mine]),
            pod("orphan", labels=match),
            pod("going", labels=match, deletionTimestamp="x"),
            pod("theirs", labels=match, ownerReferences=[other]),
            pod("unrelated", labels=differ),
        ],
    )
    assert [each["metadata"]["name"] for each in found.mine] == ["kept"]
    assert [each.name for each in found.adopt] == ["orphan"]
    assert [(each.name, each.patch) for each in found.release] == [("strayed", {"metadata": {"ownerReferences": []}})]
    pods = [pod("kept", labels=match, ownerReferences=[mine]), pod("strayed", labels=differ, ownerReferences=[mine]),
            pod("orphan", labels=match), pod("theirs", labels=match, ownerReferences=[other])]  # fmt: skip
    assert [each["metadata"]["name"] for each in claimed(owner, pods)] == ["kept"]
    owner["metadata"]["deletionTimestamp"] = "x"
    assert ownership(owner, PODS, [pod("orphan", labels=match)]).adopt == [], "who goes collects nothing"


def test_what_is_held_by_a_finalizer_is_taken_and_let_go_of_in_one_write() -> None:
    owner = replica_set()
    mine = {"kind": "ReplicaSet", "uid": "uid-rs", "controller": True}
    held, other = "example.com/held", "example.com/other"
    candidates = [
        pod("strayed", labels={"app": "b"}, ownerReferences=[mine], finalizers=[held]),
        pod("going", labels={"app": "b"}, ownerReferences=[mine], finalizers=[other, held], deletionTimestamp="x"),
        pod("orphan", labels={"app": "a"}, finalizers=[other]),
    ]
    found = ownership(owner, PODS, candidates, finalizer=held)
    assert found.mine == []
    assert [(each.name, each.patch["metadata"]) for each in found.release] == [
        ("strayed", {"ownerReferences": [], "finalizers": None}),
        ("going", {"ownerReferences": [], "finalizers": [other]}),
    ]
    assert [each.patch["metadata"]["finalizers"] for each in found.adopt] == [[other, held]]


# -- rollouts --------------------------------------------------------------------------------------------------


def deployment(size: int, surge: Any = "25%", unavailable: Any = "25%") -> Object:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta("d"),
        "spec": {"replicas": size, "strategy": strategy},
    }


@pytest.mark.parametrize(
    ("size", "surge", "unavailable", "maximum", "least"),
    [
        (10, "25%", "25%", 13, 8),
        (1, "25%", "25%", 2, 1),
        (3, 0, 0, 3, 2),
        (4, "100%", 0, 8, 4),
        (0, 5, 5, 0, 0),
        (2, 0, 5, 2, 0),
    ],
)
def test_what_a_rollout_allows(size: int, surge: Any, unavailable: Any, maximum: int, least: int) -> None:
    bounds = rollout.Bounds.of(deployment(size, surge, unavailable))
    assert (bounds.maximum, bounds.minimum_available) == (maximum, least)


def sized(name: str, size: int, available: int, maximum: int = 0, born: str = "") -> Object:
    made = replica_set(name, size, replicas=size, availableReplicas=available)
    made["metadata"]["creationTimestamp"] = born
    made["metadata"]["annotations"] = {rollout.MAXIMUM: str(maximum), rollout.DESIRED: "10"} if maximum else {}
    return made


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (sized("new", 0, 0), sized("old", 10, 10), {"new": 3}),  # the surge first
        (sized("new", 3, 0), sized("old", 10, 10), {"old": 8}),  # then as many old ones as may be unavailable
        (sized("new", 3, 0), sized("old", 8, 8), {"new": 5}),
        (sized("new", 5, 0), sized("old", 8, 8), {}),  # until new ones are available
        (sized("new", 5, 2), sized("old", 8, 8), {"old": 6}),
        (sized("new", 3, 0), sized("old", 10, 7), {"old": 8}),  # unavailable old ones go first
        (sized("new", 10, 10), sized("old", 3, 3), {"old": 0}),
        (sized("new", 12, 12), sized("old", 0, 0), {"new": 10}),
    ],
)
def test_the_next_step_of_a_rollout(new: Object, old: Object, expected: dict[str, int]) -> None:
    assert rollout.roll(deployment(10), new, [old]) == expected


@pytest.mark.parametrize(
    ("size", "sizes", "maximum", "expected"),
    [
        (12, [5, 8], 13, {"rs0": 6, "rs1": 9}),  # 12 + 3 in proportion of 13
        (5, [5, 8], 13, {"rs0": 3, "rs1": 4}),  # 5 + 2
        (20, [5, 5], 10, {"rs0": 12, "rs1": 13}),
        (0, [5, 8], 13, {"rs0": 0, "rs1": 0}),
    ],
)
def test_a_scale_in_the_middle_of_a_rollout_is_shared(
    size: int, sizes: list[int], maximum: int, expected: dict[str, int]
) -> None:
    sets = [sized(f"rs{number}", each, 0, maximum, born=str(number)) for number, each in enumerate(sizes)]
    found = rollout.share(deployment(size), sets[-1], sets[:-1])
    assert found == expected
    assert sum(found.values()) == rollout.Bounds.of(deployment(size)).maximum


# -- garbage ---------------------------------------------------------------------------------------------------


def config(name: str, *owners: str, **more: Any) -> Object:
    references = [{"apiVersion": "v1", "kind": "Pod", "name": o, "uid": o, "blockOwnerDeletion": True} for o in owners]
    return {"metadata": meta(name, ownerReferences=references, **more)}


SOLID, WAITING, GONE = OwnerState.SOLID, OwnerState.WAITING, OwnerState.GONE


@pytest.mark.parametrize(
    ("owners", "dependents", "expected"),
    [
        ({}, [], None),
        ({"a": SOLID}, [], None),
        ({"a": GONE}, [], "Background"),
        ({"a": GONE, "b": GONE}, [], "Background"),
        ({"a": GONE, "b": SOLID}, [], ["b"]),
        ({"a": WAITING, "b": SOLID}, [], ["b"]),
        ({"a": WAITING}, [], "Background"),
        ({"a": WAITING}, [config("child", "uid-x")], "Foreground"),
        ({"a": WAITING, "b": GONE}, [config("child", "uid-x")], "Foreground"),
    ],
)
def test_what_happens_to_an_object_whose_owners_go(
    owners: dict[str, OwnerState], dependents: list[Object], expected: str | list[str] | None
) -> None:
    found = garbage.desired(CONFIG_MAPS, config("x", *owners), owners, [Dependent(CONFIG_MAPS, d) for d in dependents])
    match expected:
        case None:
            assert found == []
        case str():
            [gone] = found
            assert isinstance(gone, Delete)
            assert (gone.uid, gone.propagation) == ("uid-x", expected)
            assert all(name in gone.because for name in owners)
        case list():
            [kept] = found
            assert isinstance(kept, Patch)
            assert [r["uid"] for r in kept.patch["metadata"]["ownerReferences"]] == expected


def test_an_owner_that_is_to_leave_orphans_lets_go_of_each_and_then_goes() -> None:
    owner = config("owner", finalizers=["orphan", "mine"], deletionTimestamp="x")
    found = garbage.desired(CONFIG_MAPS, owner, {}, [Dependent(PODS, config("child", "uid-owner", "other"))])
    assert [(each.name, each.patch) for each in found if isinstance(each, Patch)] == [
        ("child", {"metadata": {"ownerReferences": [config("_", "other")["metadata"]["ownerReferences"][0]]}}),
        ("owner", {"metadata": {"finalizers": ["mine"]}}),
    ]


@pytest.mark.parametrize(("blocking", "goes"), [(True, False), (False, True)])
def test_an_owner_in_the_foreground_waits_for_what_blocks_it(blocking: bool, goes: bool) -> None:
    owner = config("owner", finalizers=["foregroundDeletion"], deletionTimestamp="x")
    child = config("child", "uid-owner")
    child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = blocking
    assert bool(garbage.desired(CONFIG_MAPS, owner, {}, [Dependent(PODS, child)])) is goes
    assert garbage.state_of(owner) is WAITING


# -- nodes -----------------------------------------------------------------------------------------------------


def node(taints: list[Object] | None = None, unschedulable: bool = False, **conditions: str) -> Object:
    listed = [{"type": kind, "status": status} for kind, status in conditions.items()]
    spec: Object = {"taints": taints or [], **({"unschedulable": True} if unschedulable else {})}
    return {"metadata": {"name": "n", "uid": "u"}, "spec": spec, "status": {"conditions": listed}}


def short(taints: list[Object]) -> list[str]:
    return [f"{taint['key'].rpartition('/')[2]}:{taint['effect']}" for taint in taints]


MINE = {"key": "example.com/mine", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(), ["not-ready:NoSchedule"]),
        (node(Ready="True"), []),
        (node(Ready="False"), ["not-ready:NoSchedule", "not-ready:NoExecute"]),
        (node(Ready="Unknown"), ["unreachable:NoSchedule", "unreachable:NoExecute"]),
        (
            node(Ready="True", MemoryPressure="True", PIDPressure="True"),
            ["memory-pressure:NoSchedule", "pid-pressure:NoSchedule"],
        ),
        (node(Ready="True", DiskPressure="Unknown"), []),
        (node([MINE], Ready="True"), ["mine:NoSchedule"]),
        (node([MINE], unschedulable=True, Ready="True"), ["mine:NoSchedule", "unschedulable:NoSchedule"]),
    ],
)
def test_conditions_become_taints(found: Object, expected: list[str]) -> None:
    after = nodes.wanted_taints(found, NOW)
    assert short(after) == expected
    settled = {**found, "spec": {**found["spec"], "taints": after}}
    assert nodes.tainted(settled, NOW + 1) == [], "and stay as they are"


def toleration(seconds: int | None = None, **more: str) -> Object:
    made: Object = {"operator": "Exists", **more}
    return made if seconds is None else {**made, "tolerationSeconds": seconds}


EXECUTE = {"key": "k", "effect": "NoExecute", "timeAdded": timestamp(NOW - 10)}


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        ([], 0.0),
        ([toleration()], None),
        ([toleration(key="k")], None),
        ([toleration(key="other")], 0.0),
        ([toleration(effect="NoSchedule")], 0.0),
        ([toleration(30)], 20.0),
        ([toleration(30), toleration(15, key="k"), toleration()], 5.0),
        ([toleration(5)], -5.0),
        ([{"key": "k", "operator": "Equal", "value": "v"}], 0.0),
        ([{"key": "k"}], None),
    ],
)
def test_how_long_a_pod_may_stay(tolerations: list[Object], stays: float | None) -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}, EXECUTE]
    found = nodes.stay(pod("p", spec={"tolerations": tolerations}), taints, NOW)
    assert found.until == (None if stays is None else NOW + stays)
    assert bool(found.because) == (stays is not None)


def test_a_silent_node_is_unknown_in_every_respect_and_said_so_once() -> None:
    written, said = nodes.silenced(node(Ready="True"), NOW)
    assert isinstance(written, Patch)
    assert isinstance(said, Tell)
    reasons = {c["type"]: c["reason"] for c in written.patch["status"]["conditions"]}
    assert reasons.pop("Ready") == "NodeStatusUnknown"
    assert set(reasons.values()) == {"NodeStatusNeverUpdated"}
    everything = node(Ready="Unknown", MemoryPressure="Unknown", DiskPressure="Unknown", PIDPressure="Unknown")
    assert nodes.silenced(everything, NOW) == []


# -- the rest --------------------------------------------------------------------------------------------------


def briefs(*pods: Object) -> list[podsweep.PodBrief]:
    return [brief(encode_json(found)) for found in pods]


def test_evicted_pods_go_before_older_ones() -> None:
    pods = briefs(
        pod("old", phase="Succeeded", age=100),
        pod("new", phase="Failed", age=1),
        pod("evicted", phase="Failed", age=0, status={"reason": "Evicted"}),
        running("alive"),
    )
    assert [found.metadata.name for found in podsweep.surplus(pods, 1)] == ["evicted", "old"]
    assert podsweep.surplus(pods, 0) == []


def test_pods_that_nobody_will_end() -> None:
    pods = briefs(
        running("a", node="gone"), running("b"), pod("c", deletionTimestamp="x"), running("d", deletionTimestamp="x")
    )
    assert {node: [p.metadata.name for p in found] for node, found in podsweep.stranded(pods, {"n1"}).items()} == {
        "gone": ["a"]
    }
    assert [found.metadata.name for found in podsweep.unserved(pods, set())] == ["c"]
    assert [found.metadata.name for found in podsweep.unserved(pods, {"n1"})] == ["c", "d"]


@pytest.mark.parametrize(
    ("bound", "phase", "used"), [(True, "Running", True), (False, "Pending", False), (True, "Succeeded", False)]
)
def test_who_uses_a_volume_claim(bound: bool, phase: str, used: bool) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = pod("p", node="n1" if bound else "", phase=phase, spec={"volumes": volumes})
    claim = {"metadata": meta("data", finalizers=["kubernetes.io/pvc-protection", "x"], deletionTimestamp="t")}
    assert podsweep.uses(found, "data") is used
    assert bool(podsweep.released(claim, [found])) is not used
    assert not podsweep.released({"metadata": meta("data", finalizers=["kubernetes.io/pvc-protection"])}, [])


def test_claims_are_made_once_named_and_never_taken_from_others() -> None:
    wanted = [
        {"name": "c", "source": {"resourceClaimTemplateName": "t"}},
        {"name": "given", "resourceClaimName": "own"},
    ]
    owner = pod("p", spec={"resourceClaims": wanted})
    template = {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"resourceClassName": "cores"}}}
    made, named = claims.desired(owner, {"t": template}, {})
    assert isinstance(made, Create)
    assert (made.body["metadata"]["name"], made.body["spec"]) == ("p-c", {"resourceClassName": "cores"})
    assert isinstance(named, Patch)
    owner["status"].update(named.patch["status"])
    mine = {**made.body, "metadata": {**made.body["metadata"], "uid": "u"}}
    assert claims.desired(owner, {"t": template}, {"p-c": mine}) == []
    [refused] = claims.desired(owner, {"t": template}, {"p-c": {"metadata": meta("p-c")}})
    assert isinstance(refused, Tell)
    assert "belongs to somebody else" in refused.message
    [missing] = claims.desired(owner, {"t": None}, {})
    assert isinstance(missing, Tell)
    assert missing.message == 'ResourceClaimTemplate "t" does not exist'
    [gone] = claims.desired({**owner, "status": {"phase": "Succeeded"}}, {"t": template}, {"p-c": mine})
    assert isinstance(gone, Delete)


def test_a_claim_says_who_uses_it_and_where() -> None:
    uses = {"resourceClaims": [{"name": "c", "resourceClaimName": "cores"}]}
    claim: Object = {"metadata": meta("cores"), "spec": {"resourceClassName": "compute"}}
    assert claimstatus.claims_used(pod("p", spec=uses)) == ["cores"]
    assert claimstatus.desired(claim, [pod("p", spec=uses)], "cores.example") == [], (
        "without a node nothing is reserved"
    )

    [protected] = claimstatus.desired(claim, [pod("p", node="n1", spec=uses)], "cores.example")
    assert isinstance(protected, Patch)
    assert protected.patch == {"metadata": {"finalizers": [claimstatus.PROTECTION]}}, "before it says so"
    claim["metadata"]["finalizers"] = ["x", claimstatus.PROTECTION]

    [reserved] = claimstatus.desired(claim, [pod("p", node="n1", spec=uses)], "cores.example")
    assert isinstance(reserved, Patch)
    wanted = reserved.patch["status"]
    assert wanted["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    assert wanted["allocation"] is None, "the node has not given out anything yet"

    running = pod("p", node="n1", phase="Running", spec=uses)
    [allocated] = claimstatus.desired(claim, [running], "cores.example")
    assert isinstance(allocated, Patch)
    claim["status"] = allocated.patch["status"]
    assert claim["status"]["driverName"] == "cores.example"
    [term] = claim["status"]["allocation"]["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert claimstatus.desired(claim, [running], "cores.example") == []

    claim["status"]["allocation"]["resourceHandle"] = "the driver's own"
    assert claimstatus.desired(claim, [running], "cores.example") == []
    claim["metadata"]["deletionTimestamp"] = "t"
    assert claimstatus.desired(claim, [running], "cores.example") == [], "it is kept while a pod uses it"
    [let_go] = claimstatus.desired(claim, [pod("p", node="n1", phase="Failed", spec=uses)], "cores.example")
    assert isinstance(let_go, Patch) and let_go.patch == {"metadata": {"finalizers": ["x"]}}
    claim["metadata"]["finalizers"] = ["x"]
    [freed] = claimstatus.desired(claim, [pod("p", node="n1", phase="Failed", spec=uses)], "cores.example")
    assert isinstance(freed, Patch)
    assert freed.patch["status"] == {"reservedFor": None, "allocation": None, "driverName": None}


def test_a_claim_of_one_pod_is_not_for_its_namesake() -> None:
    uses = {"resourceClaims": [{"name": "c", "source": {"resourceClaimTemplateName": "t"}}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-another-p", "controller": True}
    claim = {"metadata": meta("p-c", ownerReferences=[owner]), "spec": {}}
    assert claimstatus.claims_used(pod("p", spec=uses)) == ["p-c"]
    assert claimstatus.desired(claim, [pod("p", node="n1", spec=uses)], "") == []


def budget(**spec: Any) -> Object:
    return {"metadata": meta("b", generation=1), "spec": {"selector": {}, **spec}, "status": {}}


@pytest.mark.parametrize(
    ("spec", "scale", "ready", "allowed", "needed", "expected"),
    [
        ({"minAvailable": 2}, 5, 3, 1, 2, 4),
        ({"minAvailable": "50%"}, 5, 4, 1, 3, 5),
        ({"maxUnavailable": 1}, 5, 4, 0, 4, 5),
        ({"maxUnavailable": "34%"}, 4, 4, 2, 2, 4),
        ({"maxUnavailable": 9}, 4, 4, 4, 0, 4),
        ({"minAvailable": 0}, 4, 0, 0, 0, 4),
    ],
)
def test_how_many_disruptions_are_allowed(
    spec: Object, scale: int, ready: int, allowed: int, needed: int, expected: int
) -> None:
    reference = [{"kind": "ReplicaSet", "uid": "rs", "controller": True}]
    pods = [running(f"p{i}", ready=1.0 if i < ready else None, ownerReferences=reference) for i in range(4)]
    found = disruption.standing(budget(**spec), pods, {"rs": scale}, NOW).write
    assert found is not None
    status = found.patch["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (
        allowed,
        needed,
        expected,
    )


def test_a_disruption_that_was_granted_counts_until_the_pod_is_gone_or_two_minutes_have_passed() -> None:
    pods = [running(f"p{i}") for i in range(3)]
    granted = budget(minAvailable=1)
    granted["status"] = {"disruptedPods": {"p0": timestamp(NOW - 20), "p9": timestamp(NOW)}}
    found = disruption.standing(granted, pods, {}, NOW)
    assert found.write is not None
    assert found.write.patch["status"]["disruptionsAllowed"] == 1
    assert found.write.patch["status"]["disruptedPods"] == {"p9": None}
    assert found.look_again == 100.0
    later = disruption.standing(granted, pods, {}, NOW + 101).write
    assert later is not None
    assert later.patch["status"]["disruptionsAllowed"] == 2


def test_a_namespace_is_emptied_once_and_says_what_is_left() -> None:
    held = config("held", finalizers=["mine"], deletionTimestamp="x")
    contents = namespaces.Contents({CONFIG_MAPS: [config("plain"), held], DEPLOYMENTS: []})
    assert [each.name for each in namespaces.emptied(contents) if isinstance(each, Delete)] == ["plain"]
    leaving: Object = {"metadata": meta("ns", deletionTimestamp="x"), "status": {}}
    [said] = namespaces.told(leaving, contents, NOW)
    assert isinstance(said, Patch)
    messages = [c["message"] for c in said.patch["status"]["conditions"]]
    assert messages == [
        "Some resources are remaining: configmaps. has 2 resource instances",
        "Some content in the namespace has finalizers remaining: mine in 1 resource instances",
    ]
    assert namespaces.told({**leaving, "status": said.patch["status"]}, contents, NOW + 5) == []


def test_the_audit_counts_as_the_server_does() -> None:
    hard = {"pods": "9", "requests.cpu": "9", "count/configmaps": "9"}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]
    spec = {"containers": containers}
    late: Object = {"deletionTimestamp": timestamp(NOW - 31), "deletionGracePeriodSeconds": 30}
    objects = [
        (PODS, pod("a", spec=spec)),
        (PODS, pod("done", spec=spec, phase="Failed")),
        (PODS, pod("late", spec=spec, **late)),
        (CONFIG_MAPS, config("c")),
        (RESOURCE_QUOTAS, {"metadata": meta("q"), "spec": {"hard": hard}}),
    ]
    used = {"pods": "1", "requests.cpu": "0.5", "count/configmaps": "1"}
    stored = {"metadata": meta("q"), "spec": {"hard": hard}, "status": {"used": used}}
    assert quota.audit([stored], objects, NOW) == []
    stored["status"] = {"used": {**used, "pods": "2"}}
    [drift] = quota.audit([stored], objects, NOW)
    assert (drift.resource, str(drift.recorded), str(drift.actual)) == ("pods", "2", "1")


def test_the_audit_knows_scopes() -> None:
    asks = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}
    objects = [(PODS, pod("free", spec={"containers": [{"name": "c", "image": "i"}]})), (PODS, pod("asks", spec=asks))]

    def stored(scopes: list[str], **used: str) -> Object:
        hard = dict.fromkeys(used, "9")
        return {"metadata": meta("q"), "spec": {"hard": hard, "scopes": scopes}, "status": {"used": used}}

    right = [stored(["BestEffort"], pods="1"), stored(["NotBestEffort", "NotTerminating"], pods="1", cpu="0.5")]
    assert quota.audit(right, objects, NOW) == []
    [drift] = quota.audit([stored(["Terminating"], pods="2")], objects, NOW)
    assert (drift.resource, str(drift.recorded), str(drift.actual)) == ("pods", "2", "0")
