"""`-o jsonpath` and `-o custom-columns`: what kubectl's users write gives what kubectl would print."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cli.jsonpath import columns_of, filled, found
from kubeqos.cli.rehearse.classify import command as classify
from kubeqos.errors import InputError

DATA: dict[str, Any] = {
    "kind": "List",
    "items": [
        {"name": "a", "phase": "Running", "cpu": 2, "labels": {"app.kubernetes.io/name": "web"}, "tags": ["x", "y"]},
        {"name": "b", "phase": "Pending", "cpu": 4, "labels": {}, "tags": []},
        {"name": "c", "phase": "Running", "cpu": 8},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "List"),
        ("{$.kind}", "List"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].name}", "c"),
        ("{.items[*].name}", "a b c"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[1:].name}", "b c"),
        ("{.items[0]['name']}", "a"),
        ("{.items[0].labels.app\\.kubernetes\\.io/name}", "web"),
        ('{.items[0].labels["app.kubernetes.io/name"]}', "web"),
        ("{..name}", "a b c"),
        ('{.items[?(@.phase=="Running")].name}', "a c"),
        ("{.items[?(@.phase!='Running')].name}", "b"),
        ("{.items[?(@.cpu>2)].name}", "b c"),
        ("{.items[?(@.tags)].name}", "a b"),
        ("{.items[?(@.name>3)].name}", ""),
        ("{.items[0].cpu}", "2"),
        ("{.items[0].tags}", '["x","y"]'),
        ("{.items[9].name}{.nothing.there}", ""),
        ('{range .items[*]}{.name}{"\\t"}{.phase}{"\\n"}{end}', "a\tRunning\nb\tPending\nc\tRunning\n"),
        ("{range .items[*]}{.name}:{range .tags[*]}{@},{end};{end}", "a:x,y,;b:;c:;"),
        ("total {.kind}!", "total List!"),
    ],
)
def test_templates(template: str, text: str) -> None:
    assert filled(template, DATA) == text


@pytest.mark.parametrize(
    "template", ["{.a", "a}", "{range .items[*]}{.name}", "{end}", "{.items[}", "{.items[?(1+1)]}"]
)
def test_what_is_no_template_is_said_in_a_line(template: str) -> None:
    with pytest.raises(InputError, match="is no template"):
        filled(template, DATA)


def test_columns() -> None:
    assert columns_of("NAME:.name,FIRST:.tags[0]") == [("NAME", ".name"), ("FIRST", ".tags[0]")]
    assert columns_of("NAME:{.name}") == [("NAME", ".name")]
    assert found(".tags[0]", DATA["items"][0]) == ["x"]
    with pytest.raises(InputError, match="names no columns"):
        columns_of("NAME")


def test_one_printer_serves_every_command() -> None:
    pods = ["-f", "examples/pod-qos/pods.yaml"]
    told = CliRunner().invoke(classify, [*pods, "-o", "custom-columns=POD:.pod,CLASS:.qosClass,NONE:.nothing"])
    assert told.output.splitlines() == [
        "POD           CLASS        NONE",
        "guaranteed    Guaranteed   <none>",
        "burstable     Burstable    <none>",
        "best-effort   BestEffort   <none>",
    ]
    told = CliRunner().invoke(classify, [*pods, "-o", "jsonpath={[*].pod}"])
    assert told.output == "guaranteed burstable best-effort"
    told = CliRunner().invoke(classify, [*pods, "-o", "xml"])
    assert told.exit_code == 2
