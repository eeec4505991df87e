"""YAML scalars as kubectl reads them, and texts that are no YAML."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.codec import YamlError, copied, decode_yaml, decode_yaml_all


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", True),
        ("y", True),
        ("No", False),
        ("12:30:45", "12:30:45"),
        ("2020-01-01", "2020-01-01"),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("0o17", 15),
        ("017", 15),
        ("0x1f", 31),
        ("100m", "100m"),
        ("1.2.3", "1.2.3"),
        ("~", None),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    assert decode_yaml(f"a: {text}") == {"a": value}


def test_keys_are_text() -> None:
    assert decode_yaml("y: 1\n2: x") == {"true": 1, "2": "x"}


def test_empty_documents_vanish() -> None:
    assert decode_yaml_all("---\n---\na: 1\n---\n") == [{"a": 1}]


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2", "a: *x", "? [1]\n: 2", "\t- x", "&a [*a]"])
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(YamlError) as caught:
        decode_yaml(text)
    assert caught.value.what


def test_a_few_aliases_may_not_stand_for_millions_of_nodes() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        decode_yaml("\n".join(rows))


def test_a_copy_shares_nothing_that_can_change() -> None:
    shared = {"c": [1]}
    value = {"a": [{"b": None}, 1.5, "x", True], "first": shared, "second": shared}
    made = copied(value)
    assert made == value
    made["a"][0]["b"] = 1
    made["first"]["c"].append(2)
    assert value["a"] == [{"b": None}, 1.5, "x", True]
    assert value["first"] == made["second"] == {"c": [1]}, "an alias is a thing of its own in the copy"
    assert copied("x") == "x"
