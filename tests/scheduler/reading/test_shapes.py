"""Which pods the scheduler recognises as equal: by what they ask for, whoever wrote them and wherever they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import TransportApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.codec import encode_json
from kubeqos.model.objects import ContainerView, PodSpec
from kubeqos.placement.shape import Shape
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind, PodKey
from kubeqos.scheduler.reading.claims import NO_CLAIMS, ClaimState
from kubeqos.scheduler.reading.objects import ENVELOPE, SpecValues
from kubeqos.scheduler.reading.shapes import ShapeMemo
from kubeqos.scheduler.service import binding_of
from tests.placement.strategies import pods

Raw = dict[str, Any]
NAMES = ("n0", "n1", "n2")


def node(name: str) -> Raw:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}}


def web(name: str) -> Raw:
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": {"name": name, "labels": {"app": "web", "tier": "a"}}, "spec": {"containers": [container]}}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[TransportApi]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        yield server.local()


async def placed(api: TransportApi, count: int) -> list[bytes]:
    """Pods of one template as the API server has them once they are created and bound."""
    for number in range(count):
        created = await api.create(PODS, web(f"web-{number}"), "default")
        key = PodKey(created["metadata"]["uid"], "default", f"web-{number}")
        asked = binding_of(Bind(key, NAMES[number % len(NAMES)], ""))
        await api.create(PODS, asked, "default", name=key.name, subresource="binding")
    return (await api.list(PODS, "default")).items


def seeing(*raws: bytes) -> Scheduler:
    core = Scheduler()
    for name in NAMES:
        core.node_changed(encode_json(node(name)), name, 0.0)
    for raw in raws:
        core.pod_changed(raw, ENVELOPE.decode(raw).metadata.uid, 0.0)
    return core


def shapes(core: Scheduler) -> set[Shape]:
    return {pod.shape for row in core.cluster.rows.values() for pod in row.pods.values()}


async def test_pods_that_our_server_bound_are_recognised(api: TransportApi) -> None:
    raws = await placed(api, 20)
    core = seeing(*raws)
    assert {ENVELOPE.decode(raw).spec.node_name for raw in raws} == set(NAMES)
    assert len(core.cluster.where) == 20
    assert len(shapes(core)) == 1


async def test_a_pod_has_the_same_shape_before_and_after_our_server_binds_it(api: TransportApi) -> None:
    await api.create(PODS, web("web-new"), "default")
    (waiting,) = (await api.list(PODS, "default")).items
    memo = ShapeMemo()
    first = memo.shape_of(waiting, ENVELOPE.decode(waiting), NO_CLAIMS)
    for raw in await placed(api, 3):
        assert memo.shape_of(raw, ENVELOPE.decode(raw), NO_CLAIMS) is first
    assert first.node_name == ""
    assert len(memo) == 1


async def test_what_the_scheduler_places_and_then_hears_of_is_charged_once(api: TransportApi) -> None:
    """The whole way: the core decides, the server binds, a core that starts later sees the same cluster."""
    for name in NAMES:
        await api.create(NODES, node(name))
    for number in range(6):
        await api.create(PODS, web(f"web-{number}"), "default")
    core = seeing(*(await api.list(PODS, "default")).items)
    for effect in core.step(0.0):
        assert isinstance(effect, Bind)
        await api.create(PODS, binding_of(effect), "default", name=effect.pod.name, subresource="binding")
    bound = (await api.list(PODS, "default")).items
    for raw in bound:
        core.pod_changed(raw, ENVELOPE.decode(raw).metadata.uid, 1.0)
    later = seeing(*bound)
    assert core.cluster.where == later.cluster.where
    assert core.cluster.column("cpu").used.tolist() == later.cluster.column("cpu").used.tolist()
    assert len(shapes(core)) == len(shapes(later)) == 1


async def test_a_resized_pod_gets_a_shape_of_its_own(api: TransportApi) -> None:
    one, two = await placed(api, 2)
    memo = ShapeMemo()
    smaller = memo.shape_of(one, ENVELOPE.decode(one), NO_CLAIMS)
    grown = one.replace(b'"cpu":"100m"', b'"cpu":"200m"')
    assert memo.shape_of(grown, ENVELOPE.decode(grown), NO_CLAIMS).requests["cpu"] == 200
    assert memo.shape_of(two, ENVELOPE.decode(two), NO_CLAIMS) is smaller


def shape_of(memo: ShapeMemo, raw: Raw, claims: ClaimState = NO_CLAIMS) -> Shape:
    encoded = encode_json(raw)
    return memo.shape_of(encoded, ENVELOPE.decode(encoded), claims)


def with_token_volume(raw: Raw, suffix: str) -> Raw:
    """As Kubernetes' service account admission completes every pod."""
    raw = deepcopy(raw)
    volume = f"kube-api-access-{suffix}"
    raw["spec"]["volumes"] = [{"name": volume, "projected": {"sources": []}}]
    raw["spec"]["containers"][0]["volumeMounts"] = [{"name": volume, "mountPath": "/var/run/secrets"}]
    return raw


def test_a_volume_with_a_random_name_makes_no_other_pod() -> None:
    memo = ShapeMemo()
    assert shape_of(memo, with_token_volume(web("a"), "x7k2p")) is shape_of(memo, with_token_volume(web("b"), "q9d4m"))


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"namespace": "other"}},
        {"metadata": {"labels": {"app": "db"}}},
        {"metadata": {"annotations": {"kubernetes.io/pod-role": "web"}}},
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}},
        {"spec": {"priority": 5}},
        {"spec": {"preemptionPolicy": "Never"}},
        {"spec": {"nodeSelector": {"zone": "z1"}}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"overhead": {"cpu": "10m"}}},
        {"spec": {"qosResources": [{"name": "network", "class": "fast"}]}},
        {"spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}},
        {"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "D"}]}},
    ],
    ids=lambda change: next(iter(next(iter(change.values())))),
)
def test_what_placement_looks_at_makes_another_pod(change: Raw) -> None:
    memo = ShapeMemo()
    changed = web("a")
    for part, fields in change.items():
        changed[part].update(fields)
    assert shape_of(memo, changed) is not shape_of(memo, web("a"))


def test_claim_drivers_make_another_pod() -> None:
    memo = ShapeMemo()
    assert shape_of(memo, web("a"), ClaimState(frozenset({"cci"}))) is not shape_of(memo, web("a"))
    assert shape_of(memo, web("a"), ClaimState(frozenset({"cci"}))).claim_drivers == ("cci",)


def reordered(value: Any) -> Any:
    """The same tree with the members of every object the other way round."""
    if isinstance(value, dict):
        return {key: reordered(each) for key, each in reversed(value.items())}
    return [reordered(each) for each in value] if isinstance(value, list) else value


@given(pods(), st.sampled_from(NAMES))
def test_neither_the_order_of_members_nor_the_node_matters(raw: Raw, name: str) -> None:
    memo = ShapeMemo()
    bound = reordered({**raw, "spec": {**raw["spec"], "nodeName": name}})
    assert shape_of(memo, bound) is shape_of(memo, raw)


def test_the_key_covers_every_field_that_shapes_can_read() -> None:
    """A field that `PodSpec` gains is compared too, or is known to be none of placement's business."""
    left_out = {"ephemeral_containers", "readiness_gates", "service_account_name"}
    names = {each.name for each in msgspec.structs.fields(PodSpec)}
    assert {each.name for each in msgspec.structs.fields(SpecValues)} == names - left_out
    containers = ENVELOPE.decode(b'{"spec": {"containers": [{}]}}').spec.containers
    assert containers is not None
    assert {each.name for each in msgspec.structs.fields(containers[0])} == {
        each.name for each in msgspec.structs.fields(ContainerView)
    }


def test_old_shapes_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.scheduler.reading.shapes._KEPT", 2)
    memo = ShapeMemo()
    first, second, third = (web(name) for name in "abc")
    for number, raw in enumerate((first, second, third)):
        raw["spec"]["priority"] = number
    kept = shape_of(memo, first)
    shape_of(memo, second)
    assert shape_of(memo, first) is kept  # asked for again, so the other one goes
    forgotten = shape_of(memo, second)
    shape_of(memo, third)
    assert len(memo) == 2
    assert shape_of(memo, second) is forgotten
    assert shape_of(memo, first) is not kept
