"""Bodies that become objects, and the many ways in which they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.quantity import FORMAT_WRONG
from kubeqos.rules.decoding import Decoded, Undecodable, check_write_options, decode

POD = ("", "v1", "Pod")
UNRECOGNIZED = (
    "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: "
)
HANDLED = 'Pod in version "v1" cannot be handled as a Pod: '


def read(body: bytes | str, content_type: str = "application/json", validation: str = ""):
    return decode(body.encode() if isinstance(body, str) else body, content_type, POD, validation)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", f"{UNRECOGNIZED}unexpected end of JSON input (<empty>)"),
        ("{", f"{UNRECOGNIZED}unexpected end of JSON input ({{)"),
        ('{"a":}', f"{UNRECOGNIZED}invalid character '}}' looking for beginning of value ({{\"a\":}})"),
        ("{'a':1}", f"{UNRECOGNIZED}invalid character '\\'' looking for beginning of object key string ({{'a':1}})"),
        (
            '{"kind":5}',
            f'{UNRECOGNIZED}json: cannot unmarshal number into Go struct field .kind of type string ({{"kind":5}})',
        ),
        (
            '{"kind":false}',
            f'{UNRECOGNIZED}json: cannot unmarshal bool into Go struct field .kind of type string ({{"kind":false}})',
        ),
        (
            '{"apiVersion":"a/b/c"}',
            "the object provided is unrecognized (must be of type Pod): unexpected GroupVersion string: a/b/c "
            '({"apiVersion":"a/b/c"})',
        ),
        (
            "1e400",
            f"{UNRECOGNIZED}json: cannot unmarshal number into Go value of type struct {{ APIVersion string "
            '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } (3165343030)',
        ),
        (
            '{"spec":{"activeDeadlineSeconds":1.50}}',
            f"{HANDLED}json: cannot unmarshal number 1.50 into Go struct field PodSpec.spec.activeDeadlineSeconds "
            "of type int64",
        ),
        (
            '{"kind":"Job","apiVersion":"batch/v1"}',
            'Job in version "v1" cannot be handled as a Pod: converting (v1.Job) to (core.Pod): unknown conversion',
        ),
    ],
)
def test_a_body_that_is_no_pod_is_refused_in_gos_words(body, message):
    assert read(body) == Undecodable(400, "BadRequest", message)


@pytest.mark.parametrize(
    "body", [b"[" * 5000, b'{"a":' * 5000, b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_depth_is_bounded(body):
    answer = read(body)
    assert isinstance(answer, Undecodable)
    assert answer.code == 400


def test_a_number_keeps_its_text_where_it_is_a_quantity():
    answer = read('{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":1e3,"memory":1.50}}}]}}')
    assert isinstance(answer, Decoded)
    assert answer.raw["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1e3", "memory": "1500m"}


def test_the_text_of_a_quantity_is_read_as_it_is_written():
    wrong = read(
        r"""{"spec":{"containers":[{"name":"c","command":["a\n"],"resources":{"limits":{"cpu":"1\u0030"}}}]}}"""
    )
    assert wrong.message.startswith(f"{HANDLED}quantities must match the regular expression")
    assert isinstance(read(r"""{"spec":{"containers":[{"name":"c","command":["a\n"],"resources":null}]}}"""), Decoded)


def test_fields_given_twice_are_seen_without_a_kind_too():
    assert read('{"metadata":{"name":"a","name":"b"}}').warnings == ['duplicate field "metadata.name"']


def test_what_is_not_unicode_becomes_the_replacement_character():
    for body in (b'{"metadata":{"name":"\xff"}}', rb'{"metadata":{"name":"\ud800"}}'):
        answer = read(body)
        assert isinstance(answer, Decoded)
        assert answer.raw["metadata"]["name"] == "\ufffd"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\ud83d\ude00", "😀"),
        (r"\ud83dx", "\ufffdx"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"é\u00e9", "éé"),
    ],
)
def test_escapes_mean_what_they_mean_to_go(written, meant):
    assert read(f'{{"metadata":{{"name":"{written}"}}}}').raw["metadata"]["name"] == meant


@pytest.mark.parametrize("amount", [r"\u0031", r"1\t", r"\n5kk", r"1i\t"])
def test_the_text_of_a_quantity_is_read_with_its_escapes(amount):
    answer = read(f'{{"spec":{{"overhead":{{"cpu":"{amount}"}}}}}}')
    assert answer.message == f"{HANDLED}{FORMAT_WRONG}"


def test_unknown_fields_warn_refuse_or_pass():
    body = '{"kind":"Pod","apiVersion":"v1","spec":{"hostname":"a","hostname":"b"},"bar":{"x":1}}'
    assert read(body).warnings == ['duplicate field "spec.hostname"', 'unknown field "bar"']
    assert read(body, validation="Ignore").warnings == []
    strict = read(body, validation="Strict")
    assert strict.message == f'{HANDLED}strict decoding error: duplicate field "spec.hostname", unknown field "bar"'


def test_yaml_is_read_like_json():
    answer = read("kind: Pod\nmetadata:\n  name: a\n  labels: {k: '1'}\n", "application/yaml; charset=utf-8")
    assert answer.raw["metadata"] == {"name": "a", "labels": {"k": "1"}}
    wrong = read("kind: Pod\nmetadata:\n  name: yes\n", "application/yaml")
    assert wrong.message == (
        f"{HANDLED}json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string"
    )
    assert read("a: [", "application/yaml").message.startswith(f"{UNRECOGNIZED}error converting YAML to JSON: yaml: ")


def test_other_formats_are_not_supported():
    answer = read("{}", "text/plain")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


def test_options_of_a_write_are_checked():
    assert check_write_options("CreateOptions", dry_run=["All"], field_manager="me", field_validation="Warn") is None
    wrong = check_write_options("PatchOptions", dry_run=["yes"], field_manager="x" * 129, field_validation="Maybe")
    assert [error.field for error in wrong.errors] == ["dryRun", "fieldManager", "fieldValidation"]
    assert wrong.message.startswith('PatchOptions.meta.k8s.io "" is invalid: [dryRun: Unsupported value: ["yes"]')


@given(st.binary(max_size=60))
def test_any_bytes_get_an_answer(body):
    for content_type in ("application/json", "application/yaml"):
        answer = read(body, content_type)
        assert isinstance(answer, Decoded) or answer.code == 400
