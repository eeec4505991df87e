"""The query language of lists: what it selects, and what it says when it cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.selectors import FieldSelector, LabelSelector, SelectorError

LABELS = {"app": "web", "tier": "1", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("app in (web, db)", True),
        ("app notin (db)", True),
        ("absent notin (x)", True),
        ("absent!=x", True),
        ("empty=", True),
        ("tier>0", True),
        ("tier<1", False),
        ("app>0", False),
        ("app=web,tier=2", False),
        ("in in (in)", False),
    ],
)
def test_what_a_label_selector_selects(text: str, selected: bool) -> None:
    assert LabelSelector.parse(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("app,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("n in 1", "unable to parse requirement: found '1' expected: '('"),
        ("n in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!n=1", "found '=', expected: ',' or 'end of string'"),
        ("n>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators,"),
        ("-x=1", 'unable to parse requirement: <nil>: Invalid value: "-x": name part must consist of'),
    ],
)
def test_what_it_says_when_it_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(SelectorError) as refused:
        LabelSelector.parse(text)
    assert refused.value.what.startswith(problem)


def test_a_selector_object_means_the_same() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["1", "2"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    assert LabelSelector.of(selector).matches(LABELS)
    assert not LabelSelector.of(selector).matches({**LABELS, "old": ""})


def test_field_selectors() -> None:
    selector = FieldSelector.parse(r"metadata.name=a\,b,status.phase!=Running")
    assert selector.terms == (("metadata.name", "a,b", True), ("status.phase", "Running", False))
    assert selector.matches({"metadata.name": "a,b", "status.phase": "Pending"}.__getitem__)
    assert selector.exact("metadata.name") == "a,b"
    assert not FieldSelector.parse(",")
    with pytest.raises(SelectorError, match=r"can't understand 'metadata\.name'"):
        FieldSelector.parse("metadata.name")
    with pytest.raises(SelectorError, match="unescaped character in value: 61"):
        FieldSelector.parse("metadata.name=a=b")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for kind in (LabelSelector, FieldSelector):
        try:
            kind.parse(text)
        except SelectorError as error:
            assert error.what


@pytest.mark.parametrize("parse", [LabelSelector.parse, FieldSelector.parse])
def test_an_endless_selector_is_refused_before_it_is_read(parse: Any) -> None:
    with pytest.raises(SelectorError, match="the selector has 80000 characters, and may have 65536"):
        parse("a=b," * 20_000)


@pytest.mark.parametrize("text", ["=", "==", "!=", ",=", "!=,"])
def test_a_bare_operator_selects_everything(text):
    assert not FieldSelector.parse(text)


def test_terms_are_read_in_their_order_of_letters():
    assert FieldSelector.parse("b=1,a!=2").terms == (("a", "2", False), ("b", "1", True))
    with pytest.raises(SelectorError, match="can't understand 'a'"):
        FieldSelector.parse("b,a")
