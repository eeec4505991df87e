"""Outlines: pods that differ in names, labels, images, variables and amounts become what the long way makes of them.

Every test drives two servers with the same history: the first learns, the second has no shortcuts. Their
answers and what they store must be the same, refusals included.
"""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.local import LocalTransport
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.apiserver.shortcuts.podoutline import LAST_APPLIED, MARK, Outline, outline
from kubeqos.client.api import Answer, Call
from kubeqos.codec import decode_json, encode_json
from kubeqos.rules.limits import Defaulted
from kubeqos.web.messages import JSON
from kubeqos.web.status import ApiError
from tests.apiserver.shortcuts.test_stencils import ADMIN, PODS, Two, plain, same, servers

NOTHING = Defaulted()

# Mostly good values, and now and then one that is refused, warned about or written in an unusual way.
TEXTS = st.sampled_from(["a", "x-1", 'say "hi"', "two\nlines", "größe", "$(RUN)", "", " ", "\\", 'a":b', "0"])
LABEL_KEYS = st.sampled_from(["app", "tier", "team.example/t1", "team.example/t2", "UPPER", "-bad", "a/b/c", ""])
LABEL_VALUES = st.sampled_from(["web", "v1", "", "A.b_c", "not ok", "x" * 64, "x" * 63])
NAMES = st.sampled_from(["c", "main", "side-1", "C", "dots.in", "x" * 64, ""])
IMAGES = st.sampled_from(
    ["app", "app:1", "app:latest", "r.example/a/b@sha256:" + "0" * 64, " app", "App:1", "", "größe"]
)
VARIABLE_NAMES = st.sampled_from(["RUN", "A", "B.c", "D-e", "1", "with space", 'q"uote', "a=b", ""])
CPU = st.sampled_from(["1", "100m", "0.5", "1e3", "0", "1500m", "-1", "1.0001", "2000m", "x", " 1"])
BYTES = st.sampled_from(["64Mi", "1Gi", "1048576", "1.5Gi", "0.5", "128M", "1e6", "0", "1Ki", "100m"])


def often(strategy: st.SearchStrategy[Any], usual: Any) -> st.SearchStrategy[Any]:
    """Three times out of four the usual value, so that a whole pod is often good."""
    return st.integers(0, 3).flatmap(lambda n: strategy if n == 0 else st.just(usual))


VARIABLES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": VARIABLE_NAMES, "value": TEXTS}),
        st.fixed_dictionaries({"name": st.sampled_from(["RUN", "K", "L"]), "value": st.sampled_from(["x", "y"])}),
        st.fixed_dictionaries({"value": TEXTS, "name": VARIABLE_NAMES}),
        st.just({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        st.just({"name": "EMPTY"}),
    ),
    max_size=4,
)
AMOUNTS = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": BYTES, "ephemeral-storage": BYTES})
RESOURCES = st.fixed_dictionaries(
    {}, optional={"requests": AMOUNTS, "limits": AMOUNTS, "claims": st.just([]), "qosResources": st.just([])}
)
GOOD_RESOURCES = st.fixed_dictionaries(
    {
        "requests": st.fixed_dictionaries(
            {"cpu": st.sampled_from(["1", "250m"]), "memory": st.sampled_from(["1Gi", "2M"])}
        )
    },
    optional={"limits": st.fixed_dictionaries({"cpu": st.sampled_from(["1", "2"]), "memory": st.just("4Gi")})},
)


@st.composite
def containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": draw(often(NAMES, name)),
        "image": draw(often(IMAGES, f"app:{draw(st.integers(1, 3))}")),
    }
    choices: dict[str, st.SearchStrategy[Any]] = {
        "env": VARIABLES,
        "args": st.lists(TEXTS, max_size=3),
        "command": st.sampled_from([["run"], [], None, "run", [1]]),
        "imagePullPolicy": st.sampled_from(["Always", "Never", "Sometimes", ""]),
        "ports": st.just([{"containerPort": 80}]),
        "unknown": st.just(1),
    }
    for key, usual in (("env", 1), ("args", 1), ("command", 3), ("imagePullPolicy", 3), ("ports", 2), ("unknown", 9)):
        if draw(st.integers(0, usual)) == 0:
            container[key] = draw(choices[key])
    if draw(st.integers(0, 3)):
        container["resources"] = draw(st.one_of(GOOD_RESOURCES, GOOD_RESOURCES, RESOURCES))
    return dict(draw(st.permutations(list(container.items()))))


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod without a name."""
    spec: dict[str, Any] = {"containers": [draw(containers(f"c{n}")) for n in range(draw(st.integers(1, 2)))]}
    if draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = [draw(containers("init"))]
    if draw(st.integers(0, 5)) == 0:
        spec.update(draw(st.sampled_from([
            {"resources": {"requests": {"cpu": "4"}}}, {"schedulingGates": [{"name": "example.com/wait"}]},
            {"restartPolicy": "Never"}, {"priorityClassName": "none-such"}, {"volumes": [{"name": "v"}]},
            {"qosResources": [{"name": "k8s.io/rdt", "class": "gold"}]},
        ])))  # fmt: skip
    metadata: dict[str, Any] = {}
    if draw(st.booleans()):
        metadata["labels"] = draw(
            st.one_of(
                st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"])),
                st.dictionaries(LABEL_KEYS, LABEL_VALUES, max_size=3),
            )
        )
    if draw(st.integers(0, 2)) == 0:
        metadata["annotations"] = draw(
            st.dictionaries(st.sampled_from([LAST_APPLIED, "note", "bad key!"]), TEXTS, max_size=2)
        )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def stored(two: Two, name: str) -> None:
    """What both servers stored is the same but for what no two servers share."""
    first, second = [await each.send(Call("GET", f"{PODS}/{name}")) for each in two.transports]
    assert plain(first) == plain(second)


@st.composite
def families(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A pod, itself again so that its outline is known, and others that differ from it only in what may differ."""
    raw = draw(pods())
    return [raw, raw, *(draw(relatives(raw)) for _ in range(draw(st.integers(1, 3)))), raw, raw]


@st.composite
def relatives(draw: st.DrawFn, raw: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = copy.deepcopy(raw)
    if pod["metadata"].get("labels"):
        pod["metadata"]["labels"] = {key: draw(often(LABEL_VALUES, "w")) for key in pod["metadata"]["labels"]}
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]:
        container["name"] = draw(often(NAMES, f"{container['name']}-x"))
        container["image"] = draw(often(IMAGES, "other:7"))
        if container.get("args"):
            container["args"] = draw(st.lists(TEXTS, min_size=1, max_size=3))
        for variable in container.get("env") or ():
            if variable.get("value"):
                variable["value"] = draw(TEXTS)
        for side in ("requests", "limits"):
            amounts = (container.get("resources") or {}).get(side) or {}
            for name in amounts:
                amounts[name] = draw(often(CPU, "500m") if name == "cpu" else often(BYTES, "3Gi"))
    return pod


async def both_ways(two: Two, raws: list[dict[str, Any]]) -> None:
    for number, raw in enumerate(raws):
        name = f"p-{number}"
        answer = await same(two, "POST", PODS, {**raw, "metadata": {"name": name, **raw["metadata"]}})
        if answer.status == 201:
            await stored(two, name)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(raws=families())
def test_random_pods_become_what_the_long_way_makes_of_them(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]]
) -> None:
    asyncio.run(servers(tmp_path_factory.mktemp("outlines"), lambda two: both_ways(two, raws)))


LIMITS = {
    "metadata": {"name": "l"},
    "spec": {
        "limits": [
            {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}, "defaultRequest": {"memory": "1Mi"}},
            {"type": "Pod", "max": {"memory": "3Gi"}},
        ]
    },
}
QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "20", "requests.cpu": "6", "limits.memory": "40Gi"}}}


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(raws=families(), limited=st.booleans())
def test_random_pods_meet_the_same_limits_and_quotas(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]], limited: bool
) -> None:
    async def steps(two: Two) -> None:
        if limited:
            await same(two, "POST", "/api/v1/namespaces/default/limitranges", LIMITS)
        await same(two, "POST", "/api/v1/namespaces/default/resourcequotas", QUOTA)
        await both_ways(two, raws)
        path = "/api/v1/namespaces/default/resourcequotas/q"
        first, second = [await each.send(Call("GET", path)) for each in two.transports]
        assert decode_json(first.body)["status"] == decode_json(second.body)["status"]

    asyncio.run(servers(tmp_path_factory.mktemp("outlines"), steps))


def different(name: str, number: int) -> dict[str, Any]:
    container = {
        "name": f"c{number}",
        "image": f"app:{number}",
        "args": [f"--n={number}"],
        "env": [{"name": f"N{n}", "value": f"{number}"} for n in range(1 + number % 3)],
        "resources": {"requests": {"cpu": f"{number + 1}m"}, "limits": {"memory": f"{number + 1}Mi"}},
    }
    metadata = {"name": name, "labels": {f"l{number}": "x", "app": f"a{number}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def test_pods_that_share_nothing_but_their_outline_are_stamped(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path / "a", port=0)) as server:
        transport = LocalTransport(server.application, ADMIN)
        for number in range(2):
            await transport.send(Call("POST", PODS, body=encode_json(different(f"p{number}", number))))
        server.core.admission.admit = refuse  # type: ignore[method-assign, assignment]
        answer = await transport.send(Call("POST", PODS, body=encode_json(different("p2", 2))))
        assert answer.status == 201
        found = decode_json(answer.body)
        container = found["spec"]["containers"][0]
        assert container["name"] == "c2"
        assert container["resources"] == {
            "requests": {"cpu": "3m", "memory": "3Mi"}, "limits": {"memory": "3Mi"},
        }  # fmt: skip
        assert found["status"]["qosClass"] == "Burstable"
        assert found["metadata"]["labels"] == {"l2": "x", "app": "a2"}


def refuse(_attempt: object) -> None:
    raise ApiError(500, "InternalError", "the long way")


async def test_a_generated_name_is_stamped_too(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for number in range(4):
            body = different("", number)
            body["metadata"] = {"generateName": "web-", "labels": {"app": "web"}}
            first, second = await two.send("POST", PODS, body)
            one, other = (decode_json(answer.body) for answer in (first, second))
            assert one["metadata"]["name"] != other["metadata"]["name"]
            one["metadata"]["name"] = other["metadata"]["name"] = "web-x"
            assert plain(Answer(first.status, encode_json(one))) == plain(Answer(second.status, encode_json(other)))

    await servers(tmp_path, steps)


def small(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "app:1", **container}]}}


def amounts(**sides: Any) -> dict[str, Any]:
    return small(resources=sides)


def labelled(labels: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, **small()}


def variables(*values: tuple[str, str]) -> dict[str, Any]:
    return small(env=[{"name": name, "value": value} for name, value in values])


USUAL_AMOUNTS = amounts(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2", "memory": "1Gi"})
LOOKALIKES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "amounts": (
        USUAL_AMOUNTS,
        [
            amounts(requests={"cpu": "3", "memory": "1Gi"}, limits={"cpu": "2", "memory": "1Gi"}),
            amounts(requests={"cpu": "-1"}),
            amounts(requests={"cpu": "1.0001", "memory": "1.5Gi"}),
            amounts(requests={"memory": "100m"}),
            amounts(limits={"memory": "100m"}),
            amounts(limits={"ephemeral-storage": "0.5"}),
            amounts(limits={"cpu": "1000m", "memory": "1024Mi"}, requests={"cpu": "1", "memory": "1Gi"}),
            amounts(limits={"cpu": "2"}),
            amounts(requests={"cpu": "0"}),
            amounts(requests={"cpu": 1}),
            amounts(requests={"cpu": 0.5}),
            amounts(requests={"cpu": None}),
            amounts(requests={"cpu": " 1"}),
            amounts(requests={"cpu": "1"}, limits=None),
            amounts(requests={"cpu": "1"}, limits={}),
            amounts(requests={"odd.example/x": "1"}),
            amounts(requests={"storage": "1"}),
            amounts(requests={"hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "2Mi"}),
            amounts(requests={"cpu": "1"}, claims=[{"name": "x"}]),
            amounts(requests={"cpu": "1"}, qosResources=[{"name": "k8s.io/rdt", "class": "gold"}]),
            amounts(requests={"cpu": "x"}),
            {"spec": {**USUAL_AMOUNTS["spec"], "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}},
        ],
    ),
    "labels": (
        labelled({"a": "b"}),
        [labelled({"-": "b"}), labelled({"a": "not ok"}), labelled({"a": "x" * 64}), labelled({"a": 1}), labelled({})],
    ),
    "variables": (
        variables(("A", "1"), ("B", "2")),
        [
            variables(("A", "1"), ("A", "2")),
            variables(("A", "")),
            variables(("a b", "1")),
            variables(("a=b", "1")),
            variables(('a"b', "1")),
            small(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
            small(env=[{"name": "A", "value": "1"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
            small(env=[{"name": "A"}]),
            small(env=[{"value": "1"}]),
            small(env=[{"name": "A", "value": 1}]),
        ],
    ),
    "images": (
        small(),
        [small(image="app"), small(image="app:latest"), small(image=" app"), small(image=""), small(image="App")],
    ),
    "policies": (small(imagePullPolicy=""), [small(imagePullPolicy="", image="app"), small(imagePullPolicy="No")]),
    "null policies": (small(imagePullPolicy=None), [small(imagePullPolicy=None, image="app:latest")]),
    "names": (small(), [small(name="C"), small(name="x" * 64), small(name=""), small(name="a.b")]),
    "words": (small(args=["a"]), [small(args=["a", 1]), small(args=[None]), small(args="a"), small(args=[])]),
}


async def heard(two: Two, raw: Any) -> None:
    """Both servers give the same answer and the same warnings, and the first did not forget what it knows."""
    body = raw if isinstance(raw, bytes) else encode_json(raw)
    said = []
    for server in two.servers:
        request = Request("POST", PODS, {}, JSON, JSON, body, "tests", ADMIN)
        _, response = await server.application.answer(request)
        said.append((plain(Answer(response.code, response.body)), request.warnings))
    assert said[0] == said[1]


@pytest.mark.parametrize("case", LOOKALIKES)
async def test_a_pod_is_not_taken_for_another_of_nearly_the_same_outline(tmp_path: Path, case: str) -> None:
    usual, others = LOOKALIKES[case]

    async def steps(two: Two) -> None:
        for number, raw in enumerate([usual, usual, usual, *others, usual]):
            metadata = {"name": f"p{number}", **raw.get("metadata", {})}
            await heard(two, {**raw, "metadata": metadata})

    await servers(tmp_path, steps)


async def test_a_field_that_is_given_twice_is_warned_about(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for number in range(4):
            for raw in (labelled({"a": "b"}), USUAL_AMOUNTS, variables(("A", "1"))):
                raw = {**raw, "metadata": {**raw.get("metadata", {}), "name": f"{id(raw):x}-{number}"}}
                await heard(two, raw)
                text = encode_json({**raw, "metadata": {**raw["metadata"], "name": f"twice-{id(raw):x}-{number}"}})
                for key in (b'"a":', b'"cpu":', b'"name":"A"', b'"image":'):
                    start = text.find(key)
                    if start >= 0 and number > 1:
                        await heard(two, text[:start] + text[start:].replace(key, b'"image":"x",' + key, 1))
                        same_key = key.partition(b":")[0] + b':"1",'
                        await heard(two, text[:start] + same_key + text[start:])

    await servers(tmp_path, steps)


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata":{"name":"p","labels":{"a":"b"},"labels":{"c":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"\\u0031"}}}]}}',
        '{"metadata":{"name":"p"},"spec":{"activeDeadlineSeconds":1e3,"containers":[{"name":"c","image":"i"}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","args":["{\\"a\\":1}"]}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":0}]}}',
        '{"metadata":{"name":"p","labels":0},"spec":{"containers":[{"name":"c","image":"i"}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"\\ud800"}]}}',
        '{"metadata":{"name":"p"},"spec":{"containers":[null]}}',
    ],
    ids=["twice", "escaped quantity", "fraction", "JSON in text", "image", "labels", "names", "surrogate", "null"],
)  # fmt: skip
async def test_bodies_that_look_like_others_are_not_taken_for_them(tmp_path: Path, text: str) -> None:
    async def steps(two: Two) -> None:
        for number in range(3):
            await same(two, "POST", PODS, different(f"q{number}", number))
            usual = {"metadata": {"name": f"u{number}", "labels": {"a": "b"}}}
            await same(two, "POST", PODS, {**usual, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            await same(two, "POST", PODS, text.replace('"p"', f'"p{number}"').encode())

    await servers(tmp_path, steps)


def cut(raw: dict[str, Any], floor: Defaulted | None = NOTHING, *, checked: bool = False) -> Outline | None:
    return outline(encode_json(raw), lambda prefix: f"{prefix}x", floor, checked=checked)


def test_equal_outlines_of_different_pods() -> None:
    first, second = cut(different("a", 1)), cut(different("b", 5))
    assert first is not None
    assert second is not None
    assert first.key == second.key
    assert first.texts != second.texts


def test_amounts_stay_in_the_outline_where_a_namespace_would_complete_them() -> None:
    floor = Defaulted(limits=frozenset({"cpu"}))
    kept, free = cut(different("a", 1), floor), cut(different("a", 1), Defaulted(limits=frozenset({"memory"})))
    assert kept is not None
    assert free is not None
    assert not kept.has_amounts
    assert free.has_amounts


def test_a_pod_that_other_rooms_judge_has_no_outline() -> None:
    raw = different("a", 1)
    raw["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "y"}]
    assert cut(raw) is not None
    assert cut(raw, checked=True) is None
    raw = different("a", 1)
    raw["metadata"]["annotations"] = {"note": "x"}
    assert cut(raw) is not None
    assert cut(raw, checked=True) is None


def test_a_pod_that_contains_a_mark_has_no_outline() -> None:
    raw = different("a", 1)
    raw["metadata"]["annotations"] = {"note": f"{MARK}0001"}
    assert cut(raw) is None


async def test_a_name_deeper_inside_is_not_taken_for_the_pods(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for inner in ("p", "p", "p", "p", "q"):
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            template = {"metadata": {"annotations": {"x": "y"}, "labels": {"name": inner}}, "spec": claim}
            volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
            spec = {"volumes": [volume], "containers": [{"name": "c", "image": "i"}]}
            answer = await same(two, "POST", PODS, {"spec": spec, "metadata": {"name": "p"}})
            assert answer.status == 201
            await same(two, "DELETE", f"{PODS}/p", {})

    await servers(tmp_path, steps)
