"""From one home to the other and back: nothing that is asked for gets lost, and what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.cli.main import application
from kubeqos.errors import InputError
from kubeqos.manifests import read as manifests
from kubeqos.stock.asking import Asked, parse, read, written
from kubeqos.stock.convert import to_fields, to_stock

EXAMPLES = Path(__file__).parents[2] / "examples" / "qos-classes"
names = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
resources = st.one_of(names, st.builds("{}.example/{}".format, names, names)).filter(lambda name: name != "pod-qos")
classes = st.dictionaries(resources, names, max_size=3)


def listed(asked: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "class": cls} for name, cls in asked.items()]


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": []}
    if pod_wide := draw(classes):
        spec["qosResources"] = listed(pod_wide)
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        container: dict[str, Any] = {"name": name, "image": "busybox"}
        if draw(st.booleans()):
            container["resources"] = {"requests": {"cpu": "1"}}
        if own := draw(classes):
            container.setdefault("resources", {})["qosResources"] = listed(own)
        spec["containers"].append(container)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def within(kind: str, pod: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {}, "spec": pod["spec"]}
    spec = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec}


@given(pods(), st.sampled_from(["Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet"]))
def test_what_is_asked_for_comes_back_as_it_was(pod: dict[str, Any], kind: str) -> None:
    whole = pod if kind == "Pod" else within(kind, pod)
    [stock] = to_stock([whole])
    assert "qosResources" not in repr(stock)
    assert to_fields([stock]) == [whole]
    assert to_stock([stock]) == [stock]


@given(classes, st.dictionaries(names, classes.filter(bool), max_size=3))
def test_annotations_are_read_as_they_are_written(pod: dict[str, str], containers: dict[str, dict[str, str]]) -> None:
    asked = Asked(pod, containers)
    assert read(written(asked), containers) == asked


@given(st.text())
def test_any_value_is_understood_or_refused(text: str) -> None:
    try:
        found = parse(text, "qos.kubeqos.io/pod")
    except InputError as error:
        assert error.what and error.where == "qos.kubeqos.io/pod"
    else:
        assert parse(",".join(f"{name}={cls}" for name, cls in found.items()), "k") == found


def test_the_examples_of_the_proposal_survive_the_way_there_and_back() -> None:
    objects = [manifest.raw for manifest in manifests([str(EXAMPLES)])]
    there = to_stock(objects)
    assert {raw["kind"] for raw in there} >= {"QOSClassQuota", "QOSClassLimits"}
    assert to_fields(there) == objects


def test_a_quota_that_counts_more_than_classes_becomes_two_and_one_again() -> None:
    spec = {"hard": {"pods": "4"}, "scopes": ["BestEffort"], "qosResources": {"pod": [], "container": []}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "a"}, "spec": spec}
    native, own = to_stock([quota])
    assert native["spec"] == {"hard": {"pods": "4"}, "scopes": ["BestEffort"]}
    assert own["spec"] == {"scopes": ["BestEffort"], "qosResources": {"pod": [], "container": []}}
    assert to_fields([native, own]) == to_fields([own, native]) == [quota]


def test_a_limit_range_keeps_its_other_limits() -> None:
    items = [
        {"type": "Container", "max": {"cpu": "2"}, "qosResources": [{"name": "rdt", "default": "gold"}]},
        {"type": "Pod", "qosResources": [{"name": "network", "default": "slow"}]},
    ]
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": items}}
    native, own = to_stock([limits])
    assert native["spec"]["limits"] == [{"type": "Container", "max": {"cpu": "2"}}]
    assert [item["type"] for item in own["spec"]["limits"]] == ["Container", "Pod"]
    assert to_fields([native, own]) == [limits]


def test_the_keys_of_the_proposal_are_read_and_ours_win() -> None:
    annotations = {
        "rdt.resources.kubernetes.io/default": "bronze",
        "blockio.resources.kubernetes.io/container.main": "slow",
        "qos.kubeqos.io/pod": "rdt=gold",
    }
    assert read(annotations, {"main"}) == Asked({"rdt": "gold"}, {"main": {"blockio": "slow"}})


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("qos.kubeqos.io/pod", "gold", "not of the form resource=class"),
        ("qos.kubeqos.io/pod", "rdt=", "'' is not the name of a class"),
        ("qos.kubeqos.io/pod", "r dt=gold", "'r dt' is not the name of a resource"),
        ("qos.kubeqos.io/pod", "rdt=gold,rdt=bronze", "rdt is asked for twice"),
        ("qos.kubeqos.io/pod", "pod-qos=gold", "cannot be requested"),
        ("qos.kubeqos.io/pods", "rdt=gold", "no annotation of kubeqos"),
        ("qos.kubeqos.io/container.main2", "rdt=gold", "does not have"),
        ("rdt.resources.kubernetes.io/container.main2", "gold", "does not have"),
    ],
)
def test_what_cannot_be_meant_is_refused(key: str, value: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read({key: value}, {"main"})


def test_a_container_name_that_no_annotation_can_carry_is_told() -> None:
    with pytest.raises(InputError, match="too long"):
        written(Asked({}, {"c" * 54: {"rdt": "gold"}}))


class TestTheCommand:
    def test_there_and_back(self, tmp_path: Path) -> None:
        there = CliRunner().invoke(application, ["convert", "-f", str(EXAMPLES / "pod.yaml")])
        assert "qos.kubeqos.io/pod: network=fast" in there.output
        (tmp_path / "stock.yaml").write_text(there.output)
        back = CliRunner().invoke(application, ["convert", "--to", "fields", "-f", str(tmp_path / "stock.yaml")])
        (tmp_path / "fields.yaml").write_text(back.output)
        [again], [first] = manifests([str(tmp_path / "fields.yaml")]), manifests([str(EXAMPLES / "pod.yaml")])
        assert again.raw == first.raw

    def test_a_mistake_says_whose_it_is(self, tmp_path: Path) -> None:
        pod = (EXAMPLES / "pod.yaml").read_text().replace("class: gold", "class: 'go ld'")
        (tmp_path / "pod.yaml").write_text(pod)
        stock = CliRunner().invoke(application, ["convert", "-f", str(tmp_path / "pod.yaml")])
        (tmp_path / "stock.yaml").write_text(stock.output)
        with pytest.raises(InputError) as refused:
            CliRunner().invoke(
                application,
                ["convert", "--to", "fields", "-f", str(tmp_path / "stock.yaml")],
                standalone_mode=False,
                catch_exceptions=False,
            )
        assert "Pod 'qos-resource-example'" in (refused.value.where or "")
        assert "go ld" in refused.value.what
