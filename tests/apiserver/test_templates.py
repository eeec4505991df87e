"""A copy of an admitted pod is stored exactly as if it had taken the long way."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.live import LiveServer

AMOUNTS = st.sampled_from(["0", "100m", "0.5", "1", "2Gi", "64Mi", "1e1"])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), AMOUNTS, max_size=2)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "image": st.sampled_from(["x", "x:1", "x:latest"])},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"requests": RESOURCES, "limits": RESOURCES}),
        "ports": st.just([{"containerPort": 80}]),
        "livenessProbe": st.just({"httpGet": {"port": 80}}),
    },
)
PODS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2, unique_by=lambda c: c["name"])},
    optional={
        "restartPolicy": st.sampled_from(["Never", "Always"]),
        "nodeName": st.just("n"),
        "activeDeadlineSeconds": st.just(5),
        "volumes": st.just([{"name": "v"}]),
        "priorityClassName": st.just("system-node-critical"),
        "tolerations": st.just([{"operator": "Exists"}]),
    },
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)
ROOM = "/api/v1/namespaces/default"


def create(live: LiveServer, name: str, spec: Any, labels: Any) -> tuple[int, Any]:
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    answer = live.call("POST", f"{ROOM}/pods?dryRun=All", body)
    found = answer.body
    if answer.code == 201:
        for field in ("name", "uid", "creationTimestamp"):
            found["metadata"].pop(field)
        for entry in found["metadata"].get("managedFields") or ():
            entry.pop("time")
    else:
        found = found["message"].replace(f'"{name}"', "NAME")
    return answer.code, found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=PODS, labels=LABELS)
def test_copies_equal_the_long_way(live: LiveServer, spec: Any, labels: Any) -> None:
    long_name = "l" * 64  # never comes from a template
    first, copy = create(live, "first", spec, labels), create(live, "copy", spec, labels)
    assert copy == first == create(live, long_name, spec, labels)


def test_a_new_limit_range_is_seen_by_the_next_copy(live: LiveServer) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    _, before = create(live, "one", spec, {})
    assert before["spec"]["containers"][0]["resources"] == {}
    item = {"type": "Container", "default": {"cpu": "1"}}
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [item]}}
    assert live.call("POST", f"{ROOM}/limitranges", limits).code == 201
    _, after = create(live, "two", spec, {})
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert live.call("DELETE", f"{ROOM}/limitranges/l").code == 200
    assert create(live, "three", spec, {})[1] == before


def test_each_copy_asks_the_quotas(live: LiveServer) -> None:
    assert (
        live.call("POST", f"{ROOM}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}).code
        == 201
    )
    body = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    codes = [live.call("POST", f"{ROOM}/pods", {**body, "metadata": {"name": f"p{n}"}}).code for n in range(4)]
    assert codes == [201, 201, 403, 403]
    assert live.call("GET", f"{ROOM}/resourcequotas/q").body["status"]["used"] == {"pods": "2"}
