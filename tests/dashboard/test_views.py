"""What the dashboard tells of nodes, pods and clusters, from their objects."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeqos.codec import encode_json
from kubeqos.dashboard.objects import Objects, Scope, Sight
from kubeqos.dashboard.present.clusters import Rows, cluster_data, pods_data, visible
from kubeqos.dashboard.present.data import ANSWERS, Happening, NodeData, PodData, schema
from kubeqos.dashboard.present.nodes import defrag_data, node_data, owners_over_time
from kubeqos.dashboard.present.pods import pod_data
from kubeqos.dashboard.present.rows import happening, quota_row
from kubeqos.dashboard.stream import difference
from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.objects import PodView
from kubeqos.views.defrag import defrag_plan
from tests.dashboard.objects import HOSTILE, assignments, node, pod

ALL = Scope(everything=True)
EVERYTHING = Sight(ALL, ALL, ALL, ALL)
ONE = Scope(namespaces=frozenset({"team"}))
ONE_NAMESPACE = Sight(Scope(), ONE, ONE, ONE)


def objects(*found: dict[str, Any], happenings: dict[str, Happening] | None = None) -> Objects:
    def of(kind: str) -> dict[str, bytes]:
        return {_key(raw): encode_json(raw) for raw in found if raw["kind"] == kind}

    return Objects(of("Node"), of("Pod"), of("ResourceQuota"), happenings or {})


def _key(raw: dict[str, Any]) -> str:
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]


def seen_node(**containers: str) -> NodeData:
    pods = [PodView.of(pod(name, "n1")) for name in containers]
    return node_data(node(placed=assignments(**containers)), pods, [], [])


def test_every_cpu_of_a_machine_has_one_owner() -> None:
    told = seen_node(web="1-79", hpc="!4-7")
    owned = [CpuSet.parse(one.cpus) for one in told.owners if one.how != "sharing"]
    assert sum(map(len, owned)) == 80
    assert {(one.name, one.how, one.cpus) for one in told.owners} == {
        ("reserved", "reserved", "0"),
        ("shared", "shared", "1-3,8-79"),
        ("default/hpc/main", "exclusive", "4-7"),
        ("default/web/main", "sharing", "1-79"),
    }
    hpc = next(one for one in told.owners if one.pod == "hpc")
    assert (hpc.namespace, hpc.container, hpc.mems) == ("default", "main", "0")


def test_containers_that_share_a_part_of_the_machine_own_it_together() -> None:
    placed = encode_assignments(
        Assignments(
            {},
            {
                "default/web/a": Holding(CpuSet.parse("0-7")),
                "default/db/a": Holding(CpuSet.parse("8-15")),
                "default/db/b": Holding(CpuSet.parse("8-15")),
            },
        )
    )
    told = {one.name: (one.how, one.pod) for one in node_data(node(placed=placed), [], [], []).owners}
    assert told == {
        "default/web/a": ("pool", "web"),
        "default/db/a and 1 more": ("pool", ""),
        "default/db/a": ("sharing", "db"),
        "default/db/b": ("sharing", "db"),
    }


def test_a_limit_ranges_choice_is_told_from_the_record() -> None:
    raw = pod("web", "n1", resources={"qosResources": [{"name": "rdt", "class": "gold"}]})
    chosen = [{"type": "Admission", "classes": [{"container": "main", "resource": "rdt", "source": "LimitRange q"}]}]
    assert [one.source for one in seen_pod(raw, node(), decisions=chosen).classes] == ["LimitRange q"]


def test_drift_is_what_a_container_should_not_have_or_cannot_use() -> None:
    raw = node(placed=assignments(web="1-79", hpc="!4-7"))
    pins = {"default/web/main": "1-79", "default/hpc/main": "6-9", "default/gone/main": "3"}
    told = {one.name: (one.really, one.drift) for one in node_data(raw, [], [], [], pins).owners}
    assert told == {
        "reserved": ("", ""),
        "shared": ("", ""),
        "default/hpc/main": ("6-9", "4-5,8-9"),
        "default/web/main": ("1-79", ""),
    }
    one_thread_of_each_core = node_data(raw, [], [], [], {"default/hpc/main": "4,6"}).owners
    assert [one.drift for one in one_thread_of_each_core if one.really] == [""]


def test_owners_over_time_hold_until_the_next_change() -> None:
    versions = [
        (110.0, None),
        (120.0, node(placed=assignments())),
        (150.0, node(placed=assignments(hpc="!4-7"))),
        (200.0, node(placed=assignments())),
    ]
    told = owners_over_time(versions, 100.0, 200.0)
    assert (told.duration, told.top) == (100.0, 79.0)
    assert told.series == {
        "reserved": [(0.0, 0.0), (10.0, 1.0)],
        "shared": [(0.0, 0.0), (10.0, 79.0), (20.0, 75.0), (50.0, 79.0)],
        "default/hpc/main": [(0.0, 0.0), (20.0, 4.0), (50.0, 0.0)],
    }


def test_a_plan_to_defragment_keeps_every_cpu_and_who_has_how_many() -> None:
    raw = node(placed=assignments(web="1-9,20-39,50-79", one="!10-19", two="!40-49"))
    plan = defrag_plan(raw, [PodView.of(pod(name, "n1")) for name in ("one", "two", "web")])
    told = defrag_data(plan)
    (move,) = told.moves
    assert (move.namespace, move.container, move.cpus) == ("default", "main", 10)
    now = {one.name: one for one in node_data(raw, [], [], []).owners}
    then = {one.name: one for one in told.owners}
    moved = f"default/{move.pod}/main"
    assert (now[moved].cpus, then[moved].cpus) == (move.from_cpus, move.to_cpus)
    assert {name: one.count for name, one in now.items()} == {name: one.count for name, one in then.items()}
    assert [one.name for one in now.values() if one.cpus == then[one.name].cpus] == [
        "reserved", *(name for name in ("default/one/main", "default/two/main") if name != moved)
    ]  # fmt: skip
    assert told.measures[0].then > told.measures[0].now
    assert told.cannot_apply and told.commands["apply"] == "kubeqos defrag n1 --apply"


def test_the_layout_has_every_cpu_once_in_its_place() -> None:
    layout = seen_node().layout
    assert layout is not None
    cpus = [
        cpu
        for socket in layout.sockets
        for numa in socket.numa
        for cache in numa.caches
        for core in cache.cores
        for cpu in core.cpus
    ]
    assert sorted(cpus) == list(range(80))
    assert {len(socket.numa) for socket in layout.sockets} == {1}
    assert layout.sockets[0].numa[0].distances[1] > layout.sockets[0].numa[0].distances[0]


def test_conditions_say_what_is_wrong_by_their_meaning() -> None:
    assert {one.type: one.healthy for one in seen_node().conditions} == {"Ready": True, "MemoryPressure": False}


def test_a_node_without_a_machine_is_shown_without_a_map() -> None:
    raw = node()
    raw["metadata"]["annotations"] = {}
    told = node_data(raw, [], [], [])
    assert told.layout is None
    assert told.left_out == ["the map: node 'n1' does not publish its machine"]


def seen_pod(raw: dict[str, Any], on: dict[str, Any] | None = None, **pending: Any) -> PodData:
    return pod_data(raw, on, [], [], pending.pop("decisions", []), pending, [])


def test_classes_say_who_decided_them() -> None:
    raw = pod("web", "n1", resources={"qosResources": [{"name": "rdt", "class": "gold"}]})
    raw["spec"]["qosResources"] = [{"name": "network", "class": "fast"}]
    raw["status"]["qosResources"] = [{"name": "network", "class": "fast"}]
    raw["status"]["containerStatuses"] = [{"name": "main", "qosResources": [{"name": "rdt", "class": "gold"}]}]
    told = {
        (one.container, one.resource): (one.asked, one.assigned, one.source) for one in seen_pod(raw, node()).classes
    }
    assert told == {
        ("", "network"): ("fast", "fast", "the pod's request"),
        ("main", "rdt"): ("gold", "gold", "the container's own request"),
    }


def test_a_pods_cpus_come_from_its_node() -> None:
    told = seen_pod(pod("hpc", "n1"), node(placed=assignments(hpc="!4-7")))
    assert [(one.container, one.cpus, one.exclusive, one.mems) for one in told.cpus] == [("main", "4-7", True, "0")]


def test_a_waiting_pod_tells_its_reasons_and_what_would_help() -> None:
    told = seen_pod(
        pod("big"),
        refused=[{"reason": "Insufficient cpu", "nodes": ["n1"]}],
        nearest=["needs 200 cpu, most free is 79 on n1"],
        remedies=[{"change": "ask for 79 cpu", "node": "n1"}],
    )
    assert told.nearest == ["needs 200 cpu, most free is 79 on n1"]
    assert told.fixes == [{"change": "ask for 79 cpu", "node": "n1", "command": "kubectl edit pod big -n default"}]


def test_a_cluster_sums_what_its_pods_hold() -> None:
    asks = {"qosResources": [{"name": "rdt", "class": "gold"}]}
    waiting = pod("big", cpu="200")
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ]
    found = objects(node(), pod("web", "n1", "2", resources=asks), pod("db", "n1", "3"), waiting)
    told = cluster_data(found, EVERYTHING, Rows(), {}, {"0/1 nodes are available": ["needs 200 cpu"]})
    row = told.nodes["n1"]
    assert (row.pods, row.classes["rdt=gold"], row.problems) == (2, [1, 2], ["MemoryPressure"])
    assert {(one.resource, one.cls): (one.used, one.capacity) for one in told.classes}["rdt", "silver"] == (0, 0)
    assert [(one.reason, one.pods, one.nearest) for one in told.pending] == [
        ("0/1 nodes are available", ["default/big"], ["needs 200 cpu"])
    ]
    assert told.counts == {"nodes": 1, "notReady": 0, "pods": 3, "pending": 1}


def test_whoever_may_see_one_namespace_sees_nothing_of_another() -> None:
    lost = Happening(
        time=1.0, reason="Evicted", warning=True, count=1, kind="Pod", namespace="secret", name="x", message="", by=""
    )
    mine = msgspec.structs.replace(lost, namespace="team")
    quotas = [
        {"kind": "ResourceQuota", "metadata": {"namespace": place, "name": "q"}, "spec": {"hard": {"pods": "1"}}}
        for place in ("team", "secret")
    ]
    found = objects(
        node(),
        pod("a", namespace="team"),
        pod("b", namespace="secret"),
        pod("c", "n1", namespace="secret"),
        *quotas,
        happenings={"1": lost, "2": mine},
    )
    told = cluster_data(found, ONE_NAMESPACE, Rows(), {}, {"no scheduler has looked at it yet": ["needs 3 cpu"]})
    assert b"secret" not in msgspec.json.encode(told)
    assert (told.nodes, told.quotas.keys(), told.happenings) == ({}, {"team/q"}, [mine])
    assert told.pending[0].nearest == []  # it would tell of nodes
    assert told.left_out == ["nodes: this user may not list them"]
    assert pods_data(found, ONE_NAMESPACE, "", "").pods.keys() == {"team/a"}
    assert visible([msgspec.structs.replace(lost, namespace="")], ONE_NAMESPACE) == []


def test_who_sees_nodes_and_not_all_pods_is_not_told_their_sum() -> None:
    found = objects(node(), pod("c", "n1", "5", namespace="secret"))
    told = cluster_data(found, Sight(ALL, ONE, ONE, ONE), Rows(), {}, {})
    assert (told.nodes["n1"].cpu_requested, told.nodes["n1"].pods) == (0.0, 0)
    assert told.left_out == ["what pods use of nodes: this user may not list pods of all namespaces"]


def test_rows_are_made_again_when_their_node_changed() -> None:
    rows, revisions = Rows(), {"n1": 1}
    first = cluster_data(objects(node()), EVERYTHING, rows, revisions, {})
    more = objects(node(), pod("web", "n1"))
    assert cluster_data(more, EVERYTHING, rows, revisions, {}).nodes["n1"] is first.nodes["n1"]
    assert cluster_data(more, EVERYTHING, rows, {"n1": 2}, {}).nodes["n1"].pods == 1


def test_a_change_is_told_by_row() -> None:
    before = cluster_data(objects(node(), node("n2")), EVERYTHING, Rows(), {}, {})
    after = cluster_data(objects(node(), node("n3"), pod("web", "n1")), EVERYTHING, Rows(), {}, {})
    told = difference(before, after)
    assert told["tables"]["nodes"]["set"].keys() == {"n1", "n3"}
    assert told["tables"]["nodes"]["drop"] == ["n2"]
    assert told["members"]["counts"]["pods"] == 1
    assert difference(after, after) == {}


def test_quotas_have_bars_and_scopes() -> None:
    raw = {
        "metadata": {"namespace": "team", "name": "q"},
        "spec": {
            "hard": {"pods": "4"},
            "scopes": ["BestEffort"],
            "qosResources": {"pod": [{"name": "network", "classes": [{"name": "fast"}]}]},
        },
        "status": {"hard": {"pods": "4"}, "used": {"pods": "1"}},
    }
    told = quota_row(raw)
    assert told.scopes == ["BestEffort"]
    assert [(one.resource, one.used, one.hard, one.share) for one in told.bars] == [
        ("pods", "1", "4", 0.25),
        ("network=fast (pod)", "0", "inf", None),
    ]


def test_events_of_both_forms_have_a_time() -> None:
    old = {"lastTimestamp": "2026-01-01T00:00:00Z", "involvedObject": {"kind": "Pod"}, "reason": HOSTILE, "count": 3}
    new = {"eventTime": "2026-01-01T00:00:00.500000Z", "reportingComponent": "x", "type": "Warning"}
    assert (happening(old).time, happening(old).reason, happening(old).count) == (1767225600.0, HOSTILE, 3)
    assert (happening(new).time, happening(new).warning) == (1767225600.5, True)


def test_the_schema_names_every_answer() -> None:
    told = schema()
    assert told["answers"].keys() == ANSWERS.keys()
    for reference in told["answers"].values():
        assert reference["$ref"].rpartition("/")[2] in told["$defs"]
