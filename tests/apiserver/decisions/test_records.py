"""Records through the API of a real server: what admission decided, who may read and who may write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kubeqos.apiserver.local import LOCAL
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Call, PatchType, TransportApi
from kubeqos.client.decisions import DecisionRecorder
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import (
    DECISION_BATCHES,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    resource_named,
    resource_of,
)
from kubeqos.codec import encode_json
from kubeqos.gates import QOS_RESOURCES, FeatureGates
from kubeqos.model import decisions as d
from kubeqos.web.identity import Identity

pytestmark = pytest.mark.asyncio(loop_scope="module")
RECORDS = resource_named("PodDecisions", "decisions.kubeqos.io")


def pod(name: str, cpu: str = "", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    container = {"name": "c", "image": "app", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    gates = FeatureGates.default().set({QOS_RESOURCES: True})
    settings = Settings(tmp_path_factory.mktemp("server") / "data", port=0, gates=gates)
    async with ApiServer.start(settings) as running:
        yield running


@pytest.fixture
def api(server: ApiServer) -> TransportApi:
    return server.local()


async def namespace(api: TransportApi, name: str) -> str:
    await api.create(NAMESPACES, {"metadata": {"name": name}})
    return name


async def record(api: TransportApi, space: str, name: str) -> d.PodDecisions:
    return d.PodDecisions.of(await api.get(RECORDS, name, space))


async def test_quotas_that_count_a_pod_are_told_with_scope_charge_and_rest(api: TransportApi) -> None:
    space = await namespace(api, "charged")
    hard = {"pods": "3", "requests.cpu": "4"}
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "all"}, "spec": {"hard": {"pods": "9"}}}, space)
    scoped = {"hard": hard, "scopes": ["NotBestEffort"]}
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "busy"}, "spec": scoped}, space)
    idle = {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "idle"}, "spec": idle}, space)
    await api.create(PODS, pod("web", cpu="1"), space)
    (told,) = (await record(api, space, "web")).decisions
    assert isinstance(told, d.Admission)
    assert told.quotas == (
        d.QuotaCharge("all", (), {"pods": "1"}, {"pods": "8"}),
        d.QuotaCharge(
            "busy", ("NotBestEffort",), {"pods": "1", "requests.cpu": "1"}, {"pods": "2", "requests.cpu": "3"}
        ),
    )


async def test_a_quota_that_came_after_a_pod_did_not_charge_it(api: TransportApi) -> None:
    space = await namespace(api, "later")
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "first"}, "spec": {"hard": {"pods": "9"}}}, space)
    await api.create(PODS, pod("web"), space)
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "second"}, "spec": {"hard": {"pods": "9"}}}, space)
    (told,) = (await record(api, space, "web")).decisions
    assert isinstance(told, d.Admission)
    assert [one.quota for one in told.quotas] == ["first"]


async def test_a_refused_pod_has_a_record_and_what_was_asked_for(api: TransportApi) -> None:
    space = await namespace(api, "refused")
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}, space)
    for _ in range(2):
        with pytest.raises(ApiError):
            await api.create(PODS, pod("web"), space)
    found = await record(api, space, "web")
    (told,) = found.decisions
    assert isinstance(told, d.Refusal) and told.times == 2
    assert told.message.startswith('pods "web" is forbidden: exceeded quota: q, requested: pods=1')
    assert told.quotas[0].refuses.startswith("exceeded quota: q")
    assert found.gone and found.object is not None and found.object["metadata"]["name"] == "web"


async def test_pods_that_a_controller_asks_for_are_one_record(api: TransportApi) -> None:
    space = await namespace(api, "prefix")
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}, space)
    for _ in range(3):
        with pytest.raises(ApiError):
            await api.create(PODS, {**pod(""), "metadata": {"generateName": "web-"}}, space)
    assert [one.times for one in (await record(api, space, "web-")).decisions] == [3]


async def test_a_pod_that_is_no_pod_is_refused_in_its_record_too(api: TransportApi) -> None:
    space = await namespace(api, "invalid")
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}, space)
    with pytest.raises(ApiError):
        await api.create(PODS, pod("bad", cpu="-1"), space)
    (told,) = (await record(api, space, "bad")).decisions
    assert isinstance(told, d.Refusal) and told.reason == "Invalid"


async def test_who_decided_a_class_is_told(api: TransportApi) -> None:
    space = await namespace(api, "classes")
    item = {"type": "Container", "qosResources": [{"name": "rdt", "default": "silver"}]}
    await api.create(LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": [item]}}, space)
    made = pod("web")
    own = {"name": "own", "image": "app", "resources": {"qosResources": [{"name": "blockio", "class": "slow"}]}}
    made["spec"]["containers"].append(own)
    await api.create(PODS, made, space)
    (told,) = (await record(api, space, "web")).decisions
    assert isinstance(told, d.Admission)
    assert "rdt class for container c" in told.limit_ranges
    assert {(one.container, one.resource, one.cls, one.source) for one in told.classes} == {
        ("c", "rdt", "silver", "the default of a LimitRange"),
        ("own", "rdt", "silver", "the default of a LimitRange"),
        ("own", "blockio", "slow", "requested by the container"),
    }


async def test_what_a_component_tells_is_kept_when_the_pod_is_gone(api: TransportApi) -> None:
    space = await namespace(api, "gone")
    uid = (await api.create(PODS, pod("web"), space))["metadata"]["uid"]
    recorder = DecisionRecorder(api, "default-scheduler")
    task = asyncio.create_task(recorder.run())
    recorder.record(d.PodRef(space, "web", uid), d.Placement(node="n1", because="the only one"))
    await recorder.flushed()
    task.cancel()
    await api.delete(PODS, "web", space, grace_seconds=0)
    found = await record(api, space, "web")
    assert found.gone and found.pod.uid == uid and found.node == ""  # it was never bound
    assert [(one.by, bool(one.at)) for one in found.decisions] == [("default-scheduler", True)]
    again = (await api.create(PODS, pod("web"), space))["metadata"]["uid"]
    assert (await record(api, space, "web")).pod.uid == again
    with pytest.raises(ApiError) as missing:
        await api.get(RECORDS, "nobody", space)
    assert missing.value.not_found
    assert missing.value.message == 'poddecisions.decisions.kubeqos.io "nobody" not found'


async def test_the_view_role_reads_the_records_of_its_namespace(server: ApiServer, api: TransportApi) -> None:
    space = await namespace(api, "viewed")
    other = await namespace(api, "hidden")
    uid = (await api.create(PODS, pod("web"), space))["metadata"]["uid"]
    victim = d.Preempted(node="n1", preemptor=d.PodRef(other, "vault", "u9"))
    batch = d.DecisionBatch((d.Entry(d.PodRef(space, "web", uid), victim),))
    await api.create(DECISION_BATCHES, msgspec.to_builtins(batch))
    bindings = resource_of("rbac.authorization.k8s.io/v1", "RoleBinding")
    assert bindings is not None
    subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    await api.create(bindings, {"metadata": {"name": "v"}, "subjects": [subject], "roleRef": role}, space)
    ann = server.local(Identity.authenticated("ann", []))
    while True:
        try:
            found = await record(ann, space, "web")
            break
        except ApiError as error:
            assert error.forbidden  # the binding is followed a moment later
            await asyncio.sleep(0.01)
    (told,) = found.decisions
    assert isinstance(told, d.Preempted) and told.preemptor == d.PodRef()
    for refused in (record(ann, other, "vault"), ann.list(RECORDS), ann.create(DECISION_BATCHES, {"entries": []})):
        with pytest.raises(ApiError) as error:
            await refused
        assert error.value.forbidden
    (everyone,) = (await api.list(RECORDS, space)).items
    assert b'"vault"' in everyone


async def test_a_node_tells_of_its_own_pods_alone(server: ApiServer, api: TransportApi) -> None:
    space = await namespace(api, "nodes")
    mine = (await api.create(PODS, pod("mine", nodeName="n1"), space))["metadata"]["uid"]
    theirs = (await api.create(PODS, pod("theirs", nodeName="n2"), space))["metadata"]["uid"]
    node = server.local(Identity.authenticated("system:node:n1", ["system:nodes"]))
    told = [
        d.Entry(d.PodRef(space, "mine", mine), d.NodeAdmission(node="n1", admitted=True)),
        d.Entry(d.PodRef(space, "mine", mine), d.NodeAdmission(node="n2", admitted=True)),
        d.Entry(d.PodRef(space, "theirs", theirs), d.NodeAdmission(node="n1", admitted=True)),
        d.Entry(d.PodRef(space, "nobody", "u"), d.NodeAdmission(node="n1", admitted=True)),
    ]
    answer = await node.create(DECISION_BATCHES, msgspec.to_builtins(d.DecisionBatch(tuple(told))))
    assert (answer["taken"], answer["refused"]) == (1, 3)
    assert len((await record(api, space, "mine")).decisions) == 1
    assert not (await record(api, space, "theirs")).decisions


async def test_a_body_that_is_no_batch_is_refused_in_a_line(api: TransportApi) -> None:
    with pytest.raises(ApiError) as refused:
        await api.create(DECISION_BATCHES, {"entries": [{"pod": {}, "decision": {"type": "Dream"}}]})
    assert refused.value.status == 400
    assert "is not a DecisionBatch" in refused.value.message


@pytest.mark.parametrize("limit", ["1", "0", "9" * 5000, "-1", "many"])
async def test_a_limit_may_be_anything(api: TransportApi, server: ApiServer, limit: str) -> None:
    request = Request("GET", "/apis/decisions.kubeqos.io/v1/poddecisions", {"limit": [limit]}, identity=LOCAL)
    _, answer = await server.application.answer(request)
    assert answer.code == 200


async def test_records_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as first:
        api = first.local()
        await api.create(PODS, pod("web"), "default")
        await api.delete(PODS, "web", "default", grace_seconds=0)
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as second:
        assert (await record(second.local(), "default", "web")).gone


async def test_a_component_stops_telling_where_nobody_keeps_records(server: ApiServer) -> None:
    nobody = server.local(Identity.authenticated("nobody", []))
    recorder = DecisionRecorder(nobody, "x")
    task = asyncio.create_task(recorder.run())
    recorder.record(d.PodRef("default", "web", "u"), d.Placement(node="n1"))
    await recorder.flushed()
    task.cancel()
    assert not recorder.listening
    assert recorder.lost == 1
    assert not DecisionRecorder(None, "y").listening


# ---- Pods that run


async def bound(api: TransportApi, space: str, name: str, node: str = "worker", **spec: Any) -> dict[str, Any]:
    created = await api.create(PODS, pod(name, "1", nodeName=node, **spec), space)
    created["status"] = {"phase": "Running"}
    return await api.update(PODS, created, subresource="status")


async def decisions(api: TransportApi, space: str, name: str, kind: type[Any]) -> list[Any]:
    return [one for one in (await record(api, space, name)).decisions if isinstance(one, kind)]


ROOM = {"cpu": "4", "memory": "8Gi"}


async def test_a_resize_is_told_with_what_was_and_what_is_asked(api: TransportApi) -> None:
    space = await namespace(api, "resizes")
    node = await api.create(resource_named("Node"), {"metadata": {"name": "worker"}})
    await api.update(resource_named("Node"), {**node, "status": {"allocatable": ROOM}}, subresource="status")
    await bound(api, space, "web")
    asked = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}}
    await api.patch(PODS, "web", asked, space, type=PatchType.STRATEGIC, subresource="resize")
    (told,) = await decisions(api, space, "web", d.Resize)
    assert (told.outcome, told.by) == ("Asked", "apiserver")
    assert told.containers == (
        d.ResizedContainer("c", {"requests.cpu": "1"}, {"requests.cpu": "2", "requests.memory": "1Gi"}),
    )


async def test_a_label_is_no_resize(api: TransportApi) -> None:
    space = await namespace(api, "labelled")
    await bound(api, space, "web")
    await api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, space)
    assert await decisions(api, space, "web", d.Resize) == []


async def test_a_victim_of_the_eviction_api_knows_who_asked_and_which_budget_allowed_it(
    server: ApiServer, api: TransportApi
) -> None:
    space = await namespace(api, "evictions")
    for name in ("counted", "free"):
        made = await bound(api, space, name)
        await api.patch(PODS, name, {"metadata": {"labels": {"name": name}}}, space)
        assert made["metadata"]["uid"]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "careful"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"name": "counted"}}},
    }
    budgets = resource_named("PodDisruptionBudget", "policy")
    made = await api.create(budgets, budget, space)
    made["status"] = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": 1,
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
    }
    await api.update(budgets, made, subresource="status")
    admin = server.local(Identity.authenticated("jane", ["system:masters"]))
    for name in ("counted", "free"):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}
        path = f"/api/v1/namespaces/{space}/pods/{name}/eviction"
        answer = await admin.transport.send(Call("POST", path, body=encode_json(body)))
        assert answer.status == 201, answer.body
        (told,) = await decisions(api, space, name, d.Disruption)
        assert (told.reason, told.asked_by, told.node) == ("EvictionByEvictionAPI", "jane", "worker")
        assert told.budget == ("careful" if name == "counted" else "")


async def test_a_victim_of_a_taint_knows_which(api: TransportApi) -> None:
    space = await namespace(api, "taints")
    nodes = resource_named("Node")
    taints = [
        {"key": "broken", "effect": "NoExecute"},
        {"key": "known", "value": "yes", "effect": "NoExecute"},
        {"key": "shy", "effect": "NoSchedule"},
    ]
    await api.create(nodes, {"metadata": {"name": "tainted"}, "spec": {"taints": taints}})
    tolerated = [
        {"key": "known", "operator": "Exists"},
        {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]
    gone = await bound(api, space, "gone", "tainted", tolerations=tolerated)
    reason = "DeletionByTaintManager"
    gone["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "told"}]
    await api.update(PODS, gone, subresource="status")
    (told,) = await decisions(api, space, "gone", d.Disruption)
    assert (told.reason, told.taints, told.by) == (reason, ("broken:NoExecute",), "taint-eviction")
    gone["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    other = await bound(api, space, "other", "tainted")
    other["status"]["conditions"] = gone["status"]["conditions"]
    await api.update(PODS, other, subresource="status")
    assert await decisions(api, space, "other", d.Disruption) == []  # who preempts tells it himself
