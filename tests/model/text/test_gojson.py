"""Why a text is not JSON, as Go's decoder says it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.codec import JsonError, decode_json_exact
from kubeqos.model.text.gojson import syntax_problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unexpected end of JSON input"),
        ("[1,", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{,}", "invalid character ',' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        (r'"\x"', "invalid character 'x' in string escape code"),
        (r'"\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("nul!", "invalid character '!' in literal null (expecting 'l')"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1e+", "unexpected end of JSON input"),
    ],
)
def test_the_first_problem_is_named(text, problem):
    assert syntax_problem(text.encode()) == problem


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=8))
def test_what_is_json_has_no_problem(value):
    assert syntax_problem(json.dumps(value).encode()) is None


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u', max_size=12))
def test_a_text_has_a_problem_exactly_if_it_does_not_decode(text):
    try:
        decode_json_exact(text.encode())
    except JsonError:
        lone_surrogate = "\\u" in text
        assert lone_surrogate or syntax_problem(text.encode()) is not None
    else:
        assert syntax_problem(text.encode()) is None
