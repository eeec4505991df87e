"""Files that people write: every mistake is reported with its line and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.document import Doc, check_kind, parse_document, read_document, suggest
from kubeqos.errors import ConfigurationError, InputError, KubeqosError
from kubeqos.model.reading import amount, cpu_set, quantity, seconds
from kubeqos.scheduler import config as scheduler_config


def trouble(text: str, read: object) -> list[str]:
    with pytest.raises(KubeqosError) as caught:
        read(parse_document(text, "f.yaml"))  # type: ignore[operator]
    return caught.value.lines()


@pytest.mark.parametrize(
    ("text", "read", "lines"),
    [
        (
            "a: 1\nbee: 2",
            lambda d: d.fields(("a", "bees")),
            ["bee: unknown key", "f.yaml:2  bee", "did you mean 'bees'?"],
        ),
        (
            "maxpods: 1",
            lambda d: d.fields(("maxPods",)),
            ["maxpods: unknown key", "f.yaml:1  maxpods", "did you mean 'maxPods'?"],
        ),
        ("a: 1\na: 2", lambda d: d.items(), ["a: this key appears twice", "f.yaml:2  a", "keep one of them"]),
        (
            "a:\n  b: x",
            lambda d: d.items()["a"].items()["b"].integer(0, 9),
            ["a.b: expected a whole number from 0 to 9, found 'x'", "f.yaml:2  a.b"],
        ),
        (
            "a: --1",
            lambda d: d.items()["a"].integer(-9, 9),
            ["a: expected a whole number from -9 to 9, found '--1'", "f.yaml:1  a"],
        ),
        (
            "a: [1, {}]",
            lambda d: [e.text() for e in d.items()["a"].elements()],
            ["a[1]: expected a text", "f.yaml:1  a[1]"],
        ),
        (
            "a: yes please",
            lambda d: d.items()["a"].boolean(),
            ["a: expected true or false, found 'yes please'", "f.yaml:1  a"],
        ),
        (
            "a: red",
            lambda d: d.items()["a"].one_of(("rad", "blue")),
            ["a: 'red' is none of rad, blue", "f.yaml:1  a", "did you mean 'rad'?"],
        ),
        ("a: 3Qi", lambda d: amount(d.items()["a"]), ["is not a quantity", "write it like 64Mi, 10M or 500"]),
        ("a: -3", lambda d: amount(d.items()["a"]), ["a: '-3' is negative"]),
        ("a: 5x", lambda d: seconds(d.items()["a"]), ["a: '5x' is not a duration", "write it like 500ms, 5s or 1m30s"]),
        ("a: 3-1", lambda d: cpu_set(d.items()["a"]), ["a: ", "f.yaml:1  a"]),
        ("a: [", lambda d: d, ["not valid YAML", "fix the syntax of this line"]),
        (
            "kind: X\napiVersion: v1",
            lambda d: check_kind(d, d.items(), "v1", "Y"),
            ["kind: 'X' is not Y", "f.yaml:1  kind", "set kind: Y"],
        ),
    ],
)
def test_a_mistake_names_its_line_and_the_remedy(text: str, read: object, lines: list[str]) -> None:
    told = "\n".join(trouble(text, read))
    for line in lines:
        assert line in told


def test_good_values_are_read() -> None:
    doc = parse_document("a: 1m30s\nb: 0-2,5\nc: {cpu: 500m}\nd: [1, {x: on}]\ne: 0", "f").items()
    assert seconds(doc["a"]) == 90 and seconds(doc["e"]) == 0
    assert str(cpu_set(doc["b"])) == "0-2,5"
    assert quantity(doc["c"].items()["cpu"]).milli() == 500
    assert doc["d"].plain() == [1, {"x": True}]


def test_an_empty_file_is_an_empty_mapping() -> None:
    assert parse_document("# nothing\n", "f").fields(("a",)) == {}


def test_a_flag_is_named_instead_of_a_line() -> None:
    doc = Doc.of({"maxPods": "many"}, "--max-pods").items()["maxPods"]
    with pytest.raises(ConfigurationError) as caught:
        doc.integer(0, 10)
    assert caught.value.where == "--max-pods  maxPods"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the thing: No such file"):
        read_document(tmp_path / "no", "thing", InputError)
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_document(tmp_path / "bin", "thing")


def test_the_nearest_name_is_suggested_and_otherwise_all() -> None:
    assert suggest("MAXPODS", ("maxPods", "maxPod")) == "did you mean 'maxPods'?"
    assert suggest("zzz", ("b", "a")) == "known here: a, b"


SCHEDULER = "apiVersion: kubeqos.io/v1alpha1\nkind: SchedulerConfiguration\n"


def test_scheduler_profiles() -> None:
    text = SCHEDULER + "profiles:\n- weights: {mostAllocated: true}\n- schedulerName: b\n  weights: {classes: 7}\n"
    first, second = scheduler_config.parse(parse_document(text, "s.yaml"))
    assert (first.scheduler_name, first.weights.most_allocated) == ("default-scheduler", True)
    assert (second.scheduler_name, second.weights.classes) == ("b", 7)


@pytest.mark.parametrize(
    ("tail", "line", "what"),
    [
        ("profiles:\n- weights: {clases: 1}\n", 4, "did you mean 'classes'?"),
        ("profiles:\n- weights: {classes: 101}\n", 4, "from 0 to 100"),
        ("profiles:\n- schedulerName: a\n- schedulerName: a\n", 5, "name each profile once"),
    ],
)
def test_scheduler_mistakes_have_lines(tail: str, line: int, what: str) -> None:
    told = "\n".join(trouble(SCHEDULER + tail, scheduler_config.parse))
    assert f"f.yaml:{line}" in told and what in told
