"""By which selector pods are spread by default: Services and controllers, as kube-scheduler deduces it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.model.objects import LabelSelectorView, PodView
from kubeqos.placement.selectors import labels_predicate
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind
from kubeqos.scheduler.reading.spreading import DefaultSpreading
from tests.placement.playbook import pod

WEB = LabelSelectorView(match_labels={"app": "web"})


def owned(name: str = "p", kind: str = "ReplicaSet", owner: str = "web", **labels: str) -> dict[str, Any]:
    raw = pod(name, labels=labels or {"app": "web"}, cpu="100m")
    raw["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "uid": "1", "controller": True}]
    return raw


def shape(raw: dict[str, Any]) -> Shape:
    return compile_shape(PodView.of(raw))


def test_a_controllers_selector_is_that_of_its_pods() -> None:
    known = DefaultSpreading()
    known.controller("ReplicaSet", "default/web", WEB)
    assert known.selector(shape(owned())) == WEB
    assert known.selector(shape(owned(owner="other"))) is None
    assert known.selector(shape(owned(kind="Job"))) is None
    assert known.selector(shape(pod(labels={"app": "web"}))) is None


def test_services_that_select_the_pod_add_their_labels() -> None:
    known = DefaultSpreading()
    known.service("default/front", {"tier": "front"})
    known.service("default/other", {"tier": "back"})
    known.service("far/front", {"tier": "front"})
    bare = known.selector(shape(pod(labels={"tier": "front"})))
    assert bare is not None and labels_predicate(bare)({"tier": "front"}) and not labels_predicate(bare)({})
    known.controller("ReplicaSet", "default/web", WEB)
    both = known.selector(shape(owned(app="web", tier="front")))
    assert both is not None
    accepts = labels_predicate(both)
    assert accepts({"app": "web", "tier": "front"}) and not accepts({"app": "web"}) and not accepts({"tier": "front"})


def test_a_shape_stays_the_same_while_its_selector_does() -> None:
    """What the placer keeps is kept by shape: other objects coming and going must not throw it away."""
    known, plain = DefaultSpreading(), shape(owned())
    assert known.shape_of(plain) is plain
    known.controller("ReplicaSet", "default/web", WEB)
    spread = known.shape_of(plain)
    assert spread.spread_by_default and not plain.spread_by_default
    known.controller("ReplicaSet", "default/other", WEB)
    assert known.shape_of(plain) is spread
    known.controller("ReplicaSet", "default/web", None)
    assert known.shape_of(plain) is plain


def test_a_pod_with_constraints_of_its_own_is_left_alone() -> None:
    known = DefaultSpreading()
    known.controller("ReplicaSet", "default/web", WEB)
    raw = owned()
    raw["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ]
    assert not known.shape_of(shape(raw)).soft_spread


def test_replicas_that_arrive_together_are_spread() -> None:
    """Eight of ten on one of five nodes, where only that one had no classes: so it was before."""
    core = Scheduler()
    gold = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 2}]}]}
    for number in range(5):
        status = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}, "qosResources": gold if number else {}}
        node = {"metadata": {"name": f"n{number}"}, "spec": {}, "status": status}
        core.node_changed(encode_json(node), f"n{number}", 0.0)
    core.spreading.controller("ReplicaSet", "default/web", WEB)
    for number in range(10):
        raw = owned(f"p{number}")
        raw["metadata"]["uid"] = f"u{number}"
        core.pod_changed(encode_json(raw), "", 0.0)
    went = Counter(effect.node for effect in core.step(0.0) if isinstance(effect, Bind))
    assert went == {f"n{number}": 2 for number in range(5)}
