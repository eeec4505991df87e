"""The schema tables say what Kubernetes' API types look like, and strict decoding speaks as Kubernetes does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import decode_json, encode_json
from kubeqos.errors import InputError
from kubeqos.model import schema
from kubeqos.model.quantity import FORMAT_WRONG

POD = schema.kind("", "v1", "Pod")


def pod(**spec: Any) -> dict[str, Any]:
    spec.setdefault("containers", [{"name": "main", "image": "app:1"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}


def test_the_generated_tables_are_up_to_date() -> None:
    script = Path(__file__).parents[2] / "tools" / "schemagen.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_reference_leads_to_a_type() -> None:
    seen: set[str] = set()
    waiting = list(schema.kinds().values())
    while waiting:
        key = waiting.pop()
        if key not in seen:
            seen.add(key)
            inner = [field.shape.object_type for field in schema.type_named(key).fields.values()]
            waiting += [found.key for found in inner if found]
    assert {"core/v1.EnvVar", "meta/v1.OwnerReference", "core/v1.QOSResourceClassInfo"} <= seen


@pytest.mark.parametrize(
    ("key", "field", "patch", "merge_key", "list_type", "list_keys"),
    [
        ("core/v1.PodSpec", "containers", ("merge",), "name", "map", ("name",)),
        ("core/v1.PodSpec", "volumes", ("merge", "retainKeys"), "name", "map", ("name",)),
        ("core/v1.PodSpec", "tolerations", (), "", "atomic", ()),
        ("core/v1.Container", "ports", ("merge",), "containerPort", "map", ("containerPort", "protocol")),
        ("core/v1.Container", "args", (), "", "atomic", ()),
        ("meta/v1.ObjectMeta", "finalizers", ("merge",), "", "set", ()),
        ("core/v1.ResourceRequirements", "qosResources", ("merge",), "name", "map", ("name",)),
    ],
)
def test_list_semantics(
    key: str, field: str, patch: tuple[str, ...], merge_key: str, list_type: str, list_keys: tuple[str, ...]
) -> None:
    found = schema.type_named(key).fields[field]
    assert (found.patch, found.merge_key, found.list_type, found.list_keys) == (patch, merge_key, list_type, list_keys)


def test_names_for_messages_and_documents() -> None:
    container = schema.type_named("core/v1.Container")
    assert container.go_name == "v1.Container"
    assert container.openapi_name == "io.k8s.api.core.v1.Container"
    assert schema.type_named("meta/v1.ObjectMeta").openapi_name == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert "QoS resources" in schema.description("core/v1.PodSpec", "qosResources")
    assert schema.description("core/v1.Container", "args").startswith("Arguments to the entrypoint.")


def test_a_kind_that_is_not_served() -> None:
    with pytest.raises(InputError, match=r'no kind "Bogus" is registered for version "apps/v1"'):
        schema.kind("apps", "v1", "Bogus")


def test_the_fields_of_the_proposals_are_known() -> None:
    manifest = pod(
        qosResources=[{"name": "network", "class": "fast"}],
        containers=[{"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}],
        resourceClaims=[{"name": "cores", "source": {"resourceClaimTemplateName": "t"}}],
    )
    assert schema.check(manifest, POD) == schema.Findings()
    assert schema.unknown_fields(pod(qosResources=[{"name": "a", "klass": "b"}]), POD) == [
        'unknown field "spec.qosResources[0].klass"'
    ]


def test_unknown_fields_come_in_document_order() -> None:
    manifest = {"metadata": {"lables": {}}, "spec": {"containers": [{"imagePullPolcy": "x"}]}, "extra": {"a": 1}}
    assert schema.unknown_fields(manifest, POD) == [
        'unknown field "metadata.lables"',
        'unknown field "spec.containers[0].imagePullPolcy"',
        'unknown field "extra"',
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"containers": "x"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"containers": [5]},
            "json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            {"containers": [{"args": [1]}]},
            "json: cannot unmarshal number into Go struct field Container.spec.containers.args of type string",
        ),
        (
            {"restartPolicy": 5},
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            {"priority": 1 << 31},
            "json: cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"priority": 1.5},
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        ({"overhead": {"cpu": "x"}}, FORMAT_WRONG),
        ({"hostNetwork": "x", "overhead": {"cpu": "1kk"}}, "unable to parse quantity's suffix"),
    ],
)
def test_wrong_types_in_the_words_of_the_decoder(spec: dict[str, Any], message: str) -> None:
    assert schema.check(pod(**spec), POD).error == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'),
        ("2024-13-01T00:00:00Z", 'parsing time "2024-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2024-02-29T00:00:00.5+02:00", None),
        (
            "2024-02-29 00:00:00Z",
            'parsing time "2024-02-29 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T"',
        ),
    ],
)
def test_times(text: str, message: str | None) -> None:
    assert schema.check({"metadata": {"creationTimestamp": text}}, POD).error == message


@pytest.mark.parametrize(
    ("data", "at"), [("***", 0), ("YWJj", None), ("YWJ", 0), ("YWJjYW", 4), ("YW==x", 4), ("YW=j", 3), ("", None)]
)
def test_bytes_are_base64(data: str, at: int | None) -> None:
    error = schema.check({"data": {"k": data}}, schema.kind("", "v1", "Secret")).error
    assert error == (None if at is None else f"illegal base64 data at input byte {at}")


def test_a_field_given_twice() -> None:
    body = (
        b'{"metadata":{"labels":{"a":"1","a" : "2"}},"spec":{"x":{"y":1,"y":2},"containers":[{"name":"a","name":"b"}]}}'
    )
    assert schema.check(decode_json(body), POD, body).strict == [
        'duplicate field "metadata.labels.a"',
        'unknown field "spec.x"',
        'duplicate field "spec.containers[0].name"',
    ]
    assert schema.duplicate_fields(body, POD) == [
        'duplicate field "metadata.labels.a"',
        'duplicate field "spec.containers[0].name"',
    ]


def test_depth_is_no_danger() -> None:
    deep = b'{"a":' * 900 + b'{"b":1,"b":2}' + b"}" * 900
    body = b'{"metadata":{"name":"x","name":"y","managedFields":[{"fieldsV1":' + deep + b'}]},"z":' + deep + b"}"
    found = schema.check(decode_json(body), POD, body)
    assert found.error is None
    assert all(line.startswith(("duplicate field", "unknown field")) for line in found.strict)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('a":,')
NAMES = st.sampled_from(["metadata", "spec", "status", "containers", "resources", "limits", "data", "labels", "nope"])
NESTED = st.recursive(SCALARS, lambda inner: st.dictionaries(NAMES, inner) | st.lists(inner), max_leaves=10)


@settings(max_examples=150)
@given(st.dictionaries(NAMES, NESTED), st.sampled_from(sorted(schema.kinds())))
def test_anything_can_be_checked_and_nothing_is_a_duplicate_by_mistake(
    raw: dict[str, Any], kind: tuple[str, str, str]
) -> None:
    body = encode_json(raw)
    findings = schema.check(raw, schema.kind(*kind), body)
    assert not [line for line in findings.strict if line.startswith("duplicate")]


def canonical(**spec: Any) -> dict[str, Any]:
    after: dict[str, Any] = schema.normalise(pod(**spec), POD)["spec"]
    return after


@pytest.mark.parametrize(
    ("given", "canonical_form"),
    [
        ({"hostNetwork": False, "hostUsers": False}, {"hostUsers": False}),  # only the second is a pointer in Go
        ({"nodeSelector": {}, "tolerations": [], "securityContext": {}}, {"securityContext": {}}),
        ({"overhead": {"cpu": "0.5", "x/y": "1u"}}, {"overhead": {"cpu": "500m", "x/y": "1m"}}),
        ({"overhead": {"memory": 1024}}, {"overhead": {"memory": "1024"}}),
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1.5Gi"}}]},
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1536Mi"}}]},
        ),
        ({"priority": 0, "bogus": 1, "affinity": None}, {"priority": 0}),
        ({"containers": None}, {"containers": None}),
        ({"containers": [{"image": "x"}]}, {"containers": [{"image": "x", "name": "", "resources": {}}]}),
    ],
)
def test_the_canonical_form(given: dict[str, Any], canonical_form: dict[str, Any]) -> None:
    containers = {"containers": [{"name": "main", "image": "app:1", "resources": {}}]}
    assert canonical(**given) == {**containers, **canonical_form}


@pytest.mark.parametrize(
    ("text", "canonical_form"),
    [
        ("2024-01-01T01:00:00+02:00", "2023-12-31T23:00:00Z"),
        ("2024-01-01T01:00:00.999Z", "2024-01-01T01:00:00Z"),
        ("0000-01-01T00:00:00+01:00", "0000-01-01T00:00:00+01:00"),
    ],
)
def test_times_are_written_in_utc_and_whole_seconds(text: str, canonical_form: str) -> None:
    raw = {"metadata": {"deletionTimestamp": text}}
    assert schema.normalise(raw, POD)["metadata"]["deletionTimestamp"] == canonical_form
    lease = schema.kind("coordination.k8s.io", "v1", "Lease")
    assert schema.normalise({"spec": {"renewTime": "2024-01-01T01:00:00.5Z"}}, lease)["spec"] == {
        "renewTime": "2024-01-01T01:00:00.500000Z"
    }


@settings(max_examples=200)
@given(st.dictionaries(NAMES, NESTED), st.sampled_from(sorted(schema.kinds())))
def test_the_canonical_form_is_reached_in_one_step(raw: dict[str, Any], kind: tuple[str, str, str]) -> None:
    type_schema = schema.kind(*kind)
    if schema.check(raw, type_schema).error is None:
        once = schema.normalise(raw, type_schema)
        assert schema.check(once, type_schema) == schema.Findings()
        assert schema.normalise(once, type_schema) == once


def test_years_of_two_digits_keep_their_zeros() -> None:
    from kubeqos.model.schema import kind, normalise

    raw = {"metadata": {"creationTimestamp": "0011-08-29T06:00:34+01:00"}}
    assert normalise(raw, kind("", "v1", "Pod"))["metadata"]["creationTimestamp"] == "0011-08-29T05:00:34Z"
