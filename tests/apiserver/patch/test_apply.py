"""Server-side apply: managers share an object, see their conflicts, and clean up after themselves."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.patch import PatchError, Writer, apply_configuration, apply_patch, track
from kubeqos.apiserver.patch import fieldset as fs
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model import schema

POD = schema.kind("", "v1", "Pod")
SERVICE = schema.kind("", "v1", "Service")
CONFIG = schema.kind("", "v1", "ConfigMap")


class Cluster:
    """One object and the clients that write it."""

    def __init__(self, kind: schema.TypeSchema = POD) -> None:
        self.kind = kind
        self.live: JsonObject | None = None
        self.clock = 0

    def writer(self, manager: str, subresource: str = "") -> Writer:
        self.clock += 1
        ignored = {"f:spec": {}} if subresource else {"f:status": {}}
        return Writer(manager, "v1", f"2024-01-01T00:00:{self.clock:02}Z", subresource, ignored)

    def apply(self, manager: str, *, force: bool = False, **config: Any) -> JsonObject:
        whole = {"apiVersion": "v1", "kind": self.kind.name, "metadata": {"name": "x"}, **config}
        done = apply_configuration(self.live, whole, self.kind, self.writer(manager), force=force)
        return self._store(done.object, done.managed_fields)

    def patch(self, manager: str, patch: JsonObject, subresource: str = "") -> JsonObject:
        assert self.live
        after = apply_patch("strategic", self.live, patch, self.kind).object
        return self._store(after, track(self.live, after, self.kind, self.writer(manager, subresource)))

    def create(self, manager: str, **body: Any) -> JsonObject:
        after = schema.normalise(
            {"apiVersion": "v1", "kind": self.kind.name, "metadata": {"name": "x"}, **body}, self.kind
        )
        return self._store(after, track(None, after, self.kind, self.writer(manager)))

    def _store(self, after: JsonObject, managed: list[JsonObject]) -> JsonObject:
        self.live = {**after, "metadata": {**after["metadata"], "managedFields": managed}}
        return self.live

    def fields(self, manager: str) -> JsonObject:
        assert self.live
        return next((e["fieldsV1"] for e in self.live["metadata"]["managedFields"] if e["manager"] == manager), {})

    def entries(self) -> list[tuple[str, str]]:
        assert self.live
        return [(e["manager"], e["operation"]) for e in self.live["metadata"]["managedFields"]]


def container(name: str, **more: Any) -> JsonObject:
    return {"name": name, **more}


def test_a_container_that_is_no_longer_applied_is_removed() -> None:
    cluster = Cluster()
    cluster.apply("a", spec={"containers": [container("one", image="1"), container("two", image="2")]})
    after = cluster.apply("a", spec={"containers": [container("two", image="2")]})
    assert [c["name"] for c in after["spec"]["containers"]] == ["two"]


def test_lists_that_are_always_written_belong_to_who_was_there_before_the_first_apply() -> None:
    cluster = Cluster(schema.kind("", "v1", "LimitRange"))
    cluster.create("a", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]})
    assert cluster.live
    del cluster.live["metadata"]["managedFields"]
    cluster.apply("b", metadata={"name": "x", "labels": {"c": "d"}})
    assert cluster.fields("before-first-apply") == {"f:spec": {"f:limits": {}}}


def test_a_container_that_somebody_else_applies_too_stays() -> None:
    cluster = Cluster()
    cluster.apply("a", spec={"containers": [container("one", image="1", tty=True)]})
    cluster.apply("b", spec={"containers": [container("one", image="1")]})
    after = cluster.apply("a", spec={"hostNetwork": True})
    assert after["spec"]["containers"] == [{"name": "one", "image": "1", "resources": {}}]


def test_items_keep_the_order_of_the_configuration() -> None:
    cluster = Cluster()
    cluster.apply("a", spec={"containers": [container(n) for n in "abc"]})
    cluster.apply("b", spec={"containers": [container("z")]})
    after = cluster.apply("a", spec={"containers": [container(n) for n in "cdab"]})
    order = [c["name"] for c in after["spec"]["containers"]]
    assert [n for n in order if n != "z"] == list("cdab")
    assert "z" in order


def test_conflicts_name_every_manager_and_field() -> None:
    cluster = Cluster(CONFIG)
    cluster.apply("a", data={"x": "1", "y": "1"})
    cluster.patch("b", {"data": {"z": "1"}})
    with pytest.raises(PatchError) as caught:
        cluster.apply("c", data={"x": "2", "y": "2", "z": "2"})
    assert caught.value.code == 409
    assert caught.value.what == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .data.x\n- .data.y\n'
        'conflicts with "b" using v1:\n- .data.z'
    )
    assert {cause["field"] for cause in caught.value.causes} == {".data.x", ".data.y", ".data.z"}


def test_the_same_value_is_no_conflict() -> None:
    cluster = Cluster(CONFIG)
    cluster.apply("a", data={"x": "1"})
    cluster.apply("b", data={"x": "1"})
    assert cluster.fields("a") == cluster.fields("b") == {"f:data": {"f:x": {}}}


def test_ports_are_told_apart_by_number_and_protocol() -> None:
    cluster = Cluster(SERVICE)
    cluster.apply("a", spec={"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]})
    ports = cluster.fields("a")["f:spec"]["f:ports"]
    assert set(ports) == {'k:{"port":53,"protocol":"TCP"}', 'k:{"port":53,"protocol":"UDP"}'}


def test_finalizers_are_shared_value_by_value() -> None:
    cluster = Cluster(CONFIG)
    cluster.apply("a", metadata={"name": "x", "finalizers": ["one/a"]})
    cluster.apply("b", metadata={"name": "x", "finalizers": ["two/b"]})
    assert cluster.fields("b") == {"f:metadata": {"f:finalizers": {'v:"two/b"': {}}}}
    after = cluster.apply("a", metadata={"name": "x"})
    assert after["metadata"]["finalizers"] == ["two/b"]


@pytest.mark.parametrize("given", [{"labels": {"l": "1"}}, {"annotations": {"n": "1"}}, {"finalizers": ["one/a"]}])
def test_the_last_metadata_of_a_manager_goes_without_the_name(given: JsonObject) -> None:
    cluster = Cluster(CONFIG)
    cluster.apply("a", metadata={"name": "x", **given}, data={"k": "1"})
    after = cluster.apply("a", metadata={"name": "x"}, data={"k": "1"})
    assert {key: value for key, value in after["metadata"].items() if key != "managedFields"} == {"name": "x"}
    assert cluster.fields("a") == {"f:data": {"f:k": {}}}


def test_a_selector_is_one_value() -> None:
    cluster = Cluster()
    cluster.apply("a", spec={"nodeSelector": {"disk": "ssd"}})
    with pytest.raises(PatchError, match=r'conflict with "a": \.spec\.nodeSelector$'):
        cluster.apply("b", spec={"nodeSelector": {"zone": "z"}})


def test_what_was_there_before_belongs_to_a_manager_of_its_own() -> None:
    cluster = Cluster(CONFIG)
    cluster.live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"old": "1"}}
    with pytest.raises(PatchError, match=r'conflict with "before-first-apply" using v1: \.data\.old'):
        cluster.apply("a", data={"old": "2"})
    cluster.apply("a", data={"new": "1"})
    assert cluster.entries() == [("a", "Apply"), ("before-first-apply", "Update")]


def test_an_object_that_nobody_tracks_stays_untracked() -> None:
    cluster = Cluster(CONFIG)
    cluster.live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"old": "1"}}
    assert cluster.patch("b", {"data": {"new": "1"}})["metadata"]["managedFields"] == []


def test_status_is_tracked_apart() -> None:
    cluster = Cluster()
    cluster.create("kubectl-create", spec={"containers": [container("c", image="1")]}, status={"phase": "Pending"})
    cluster.patch("kubelet", {"status": {"phase": "Running"}}, subresource="status")
    assert cluster.entries() == [("kubectl-create", "Update"), ("kubelet", "Update")]
    assert cluster.fields("kubelet") == {"f:status": {"f:phase": {}}}
    assert "f:status" not in cluster.fields("kubectl-create")


def test_a_created_pod_is_owned_as_kubernetes_says() -> None:
    cluster = Cluster()
    spec = {"containers": [container("c", image="1", env=[{"name": "A", "value": "b"}])], "restartPolicy": "Never"}
    cluster.create("kubectl-create", metadata={"name": "x", "labels": {"app": "x"}}, spec=spec)
    assert cluster.fields("kubectl-create") == {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:env": {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                    "f:image": {},
                    "f:name": {},
                    "f:resources": {},
                }
            },
            "f:restartPolicy": {},
        },
    }


def test_a_write_that_changes_nothing_keeps_the_time() -> None:
    cluster = Cluster(CONFIG)
    first = cluster.apply("a", data={"x": "1"})
    assert cluster.apply("a", data={"x": "1"}) == first
    assert cluster.patch("b", {"data": {"x": "1"}}) == first


def test_a_client_may_hand_over_and_reset_managers() -> None:
    cluster = Cluster(CONFIG)
    cluster.create("kubectl-client-side-apply", data={"x": "1"})
    assert cluster.live
    entries = copy.deepcopy(cluster.live["metadata"]["managedFields"])
    entries[0].update(manager="kubectl", operation="Apply")
    renamed = {**cluster.live, "metadata": {**cluster.live["metadata"], "managedFields": entries}}
    assert track(cluster.live, renamed, CONFIG, cluster.writer("m")) == entries
    reset = {**cluster.live, "metadata": {**cluster.live["metadata"], "managedFields": [{}]}}
    assert track(cluster.live, reset, CONFIG, cluster.writer("m")) == []


def test_old_updaters_are_added_up() -> None:
    cluster = Cluster(CONFIG)
    cluster.create("m0", data={"k0": "1"})
    for number in range(1, 14):
        cluster.patch(f"m{number}", {"data": {f"k{number}": "1"}})
    managers = [manager for manager, _ in cluster.entries()]
    assert len(managers) == 10
    assert "ancient-changes" in managers
    assert {"f:k0", "f:k1"} <= set(cluster.fields("ancient-changes")["f:data"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bogus": 1}, ".bogus: field not declared in schema"),
        (
            {"spec": {"containers": [5]}},
            ".spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"spec": {"containers": [{"image": "x"}, {"name": ""}]}},
            '.spec.containers: duplicate entries for key [name=""]',
        ),
        (
            {"spec": {"containers": "x"}},
            '.spec.containers: expected list, got &value.valueUnstructured{Value:"x"}',
        ),
        (
            {"spec": {"tolerations": [{"key": 1}]}},
            ".spec.tolerations[0].key: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            {"spec": {"hostNetwork": "x", "priority": "y"}},
            'errors:\n  .spec.hostNetwork: expected boolean, got &value.valueUnstructured{Value:"x"}\n'
            '  .spec.priority: expected numeric (int or float), got &value.valueUnstructured{Value:"y"}',
        ),
    ],
)
def test_a_configuration_must_fit_the_schema(config: JsonObject, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        Cluster().apply("a", **config)
    assert caught.value.code == 400
    assert caught.value.what == f"failed to create typed patch object (/x; /v1, Kind=Pod): {message}"


def test_a_configuration_that_is_too_deep() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"a": deep}
    with pytest.raises(PatchError) as caught:
        Cluster(CONFIG).apply("a", data={"k": deep})
    assert caught.value.code == 400


def test_an_item_needs_its_key() -> None:
    with pytest.raises(PatchError, match=r'element 0: .* omits key field "name" \(and doesn.t have default value\)'):
        Cluster(schema.kind("", "v1", "ServiceAccount")).apply("a", secrets=[{"kind": "Secret"}])


def test_a_quantity_must_be_one() -> None:
    with pytest.raises(PatchError, match="quantities must match the regular expression"):
        Cluster().apply("a", spec={"containers": [container("c", resources={"limits": {"cpu": {}}})]})


@pytest.mark.parametrize("fields", [{"f:data": 5}, {"x": {}}, {"k:{": {}}, {"k:5": {}}, {"f:a": {"v:": {}}}])
def test_managers_that_make_no_sense_are_not_taken_over(fields: JsonObject) -> None:
    cluster = Cluster(CONFIG)
    cluster.create("a", data={"x": "1"})
    assert cluster.live
    stored = cluster.live["metadata"]["managedFields"]
    entry = {"manager": "z", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    forged = {**cluster.live, "metadata": {**cluster.live["metadata"], "managedFields": [entry]}}
    assert track(cluster.live, forged, CONFIG, cluster.writer("m")) == stored


DATA = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), min_size=1, max_size=4)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), DATA, st.booleans()), min_size=1, max_size=8))
def test_every_field_has_an_owner_and_every_owner_a_field(script: list[tuple[str, dict[str, str], bool]]) -> None:
    """After any sequence of applies the data is exactly what the managers own, with the last value that was applied."""
    cluster = Cluster(CONFIG)
    wishes: dict[str, dict[str, str]] = {}
    for manager, data, force in script:
        before = copy.deepcopy(cluster.live)
        try:
            cluster.apply(manager, force=force, data=data)
        except PatchError as error:
            assert error.code == 409 and not force
            taken = {key for other, wish in wishes.items() if other != manager for key in wish}
            assert any(key in taken for key in data)
            assert cluster.live == before
            continue
        for wish in wishes.values():
            for key in data:
                if wish.get(key, data[key]) != data[key]:
                    del wish[key]
        wishes[manager] = dict(data)
        assert cluster.live
        expected = {key: value for wish in wishes.values() for key, value in wish.items()}
        assert cluster.live.get("data", {}) == expected
        for name, wish in wishes.items():
            assert {step[2:] for step in cluster.fields(name).get("f:data", {})} == wish.keys()


STEPS = [
    "metadata",
    "spec",
    "containers",
    "name",
    "ports",
    "containerPort",
    "finalizers",
    "labels",
    "resources",
    "limits",
]
CONFIGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["main", "1", "x"]),
    lambda inner: st.dictionaries(st.sampled_from(STEPS), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=14,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), CONFIGS), st.booleans())
def test_any_configuration_is_applied_or_refused(config: JsonObject, force: bool) -> None:
    cluster = Cluster()
    cluster.create("a", spec={"containers": [container("main", image="1", ports=[{"containerPort": 80}])]})
    before = copy.deepcopy((cluster.live, config))
    try:
        done = apply_configuration(
            cluster.live, {"apiVersion": "v1", "kind": "Pod", **config}, POD, cluster.writer("b"), force=force
        )
        assert schema.normalise(done.object, POD) == done.object
    except PatchError as error:
        assert error.code in (400, 409)
    assert (cluster.live, config) == before


NODES = st.recursive(st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", ".", "f:c"]), inner))


def tidy(node: JsonObject) -> JsonObject:
    return {step: {} if step == "." else tidy(below) for step, below in node.items()}


def paths(node: JsonObject, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    out = set()
    for step, below in node.items():
        if step != ".":
            here = (*prefix, step)
            out |= paths(below, here)
            if fs.is_member(below) or set(below) == {"."}:
                out.add(here)
    return out


@settings(max_examples=200)
@given(NODES.map(tidy), NODES.map(tidy))
def test_field_sets_are_sets(a: JsonObject, b: JsonObject) -> None:
    before = encode_json([a, b])
    assert paths(fs.union(a, b)) == paths(a) | paths(b)
    assert paths(fs.intersection(a, b)) == paths(a) & paths(b)
    assert paths(fs.difference(a, b)) == paths(a) - paths(b)
    below = {path for path in paths(a) if any(path[: len(other)] == other for other in paths(b))}
    assert paths(fs.recursive_difference(a, b)) == paths(a) - below
    assert encode_json([a, b]) == before
