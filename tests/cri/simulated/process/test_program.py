"""What simulated processes do, read from their command lines and from annotations."""

from __future__ import annotations

import pytest

from kubeqos.cri.errors import Code
from kubeqos.cri.simulated.process.program import SERVER, Output, Program, program_of
from kubeqos.cri.simulated.process.script import (
    NO_SCRIPT,
    Command,
    Exit,
    Failure,
    Load,
    Stop,
    check_annotations,
    script_of,
)
from kubeqos.errors import InputError
from kubeqos.model.timestamps import parse_duration

S = 1_000_000_000


def ends(after: float, code: int, *outputs: Output) -> Program:
    return Program(tuple(outputs), round(after * S), code, heeds_term=False)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ([], SERVER),
        (["nginx", "-g", "daemon off;"], SERVER),
        (["true"], ends(0, 0)),
        (["/bin/false"], ends(0, 1)),
        (["sleep", "2"], ends(2, 0)),
        (["sleep", "1m"], ends(60, 0)),
        (["sleep", "infinity"], Program((), None, 0, heeds_term=False)),
        (["echo", "-n", "a", "b"], ends(0, 0, Output(0, "stdout", "a b"))),
        (
            ["sh", "-c", "echo one; sleep 0.5; echo 'two; three' >&2; exit 258"],
            ends(0.5, 2, Output(0, "stdout", "one\n"), Output(S // 2, "stderr", "two; three\n")),
        ),
        (["sh", "-c", "false && echo never; exit"], ends(0, 1)),
        (["sh", "-c", "true && exit 4\necho never"], ends(0, 4)),
        (["sh", "-c", "exec sleep 3"], ends(3, 0)),
        (["sh", "-c", "trap '' TERM; sleep 3"], ends(3, 0)),
        (["sh", "-c", "echo start; while true; do sleep 1; done"], Program((Output(0, "stdout", "start\n"),))),
        (["sh", "-c", "echo a | cat"], SERVER),
        (["sh", "-c", "echo 'unbalanced"], SERVER),
        (["sleep", "soon"], SERVER),
        (["sh", "-c", "exit soon"], SERVER),
        (["sh"], SERVER),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_line_is_read_as_a_shell_would(command: list[str], program: Program) -> None:
    assert program_of(command) == program


def test_scripts_are_per_container_before_per_pod() -> None:
    annotations = {
        "simulate.kubeqos.io/load": "cpu=100m memory=1Mi",
        "simulate.kubeqos.io/load.web": "cpu=1500m growth=1Ki/s peak=2Mi read=3 write=4/s",
        "simulate.kubeqos.io/exit.web": "after=1m30s code=2 times=3 message='so long'",
        "simulate.kubeqos.io/stop": "ignore",
        "simulate.kubeqos.io/fail": "CreateContainer\nStartContainer code=INTERNAL times=1 message=no",
        "simulate.kubeqos.io/exec": "is it 'up yet' => 7 not yet",
        "other": "x",
    }
    check_annotations(annotations)
    web, db = script_of(annotations, "web"), script_of(annotations, "db")
    assert web.load == Load(1500, 0, 1024, 2 << 20, 3, 4)
    assert db.load == Load(100, 1 << 20)
    assert (web.exit, db.exit) == (Exit(90 * S, 2, "so long", 3), None)
    assert db.stop == Stop(None)
    assert db.fail == (Failure("CreateContainer"), Failure("StartContainer", Code.INTERNAL, "no", 1))
    assert db.exec == (Command(("is", "it", "up yet"), 7, "not yet"),)
    assert script_of({"other": "x"}, "web") is NO_SCRIPT


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("laod", "cpu=1", "there is no 'laod'"),
        ("load", "cpu", "'cpu' is not understood"),
        ("load", "cpu=much", "annotation simulate.kubeqos.io/load"),
        ("exit.web", "after=soon", "'soon' is not a duration"),
        ("exit.web", "code=one", "annotation simulate.kubeqos.io/exit.web"),
        ("fail", "Version", "'Version' cannot be made to fail"),
        ("fail", "PullImage code=BAD", "'BAD' is not a status code"),
        ("exec", "true", "'true' is not understood"),
        ("load", "cpu='1", "annotation simulate.kubeqos.io/load"),
    ],
)
def test_a_mistake_in_a_script_is_one_clear_message(key: str, value: str, message: str) -> None:
    with pytest.raises(InputError) as wrong:
        check_annotations({f"simulate.kubeqos.io/{key}": value})
    assert message in wrong.value.what


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("5s", 5 * S), ("1m30s", 90 * S), ("1.5s", 3 * S // 2), ("20ms", S // 50), ("1h", 3600 * S), ("0s", 0)],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "s", "5s3", "-5s", "5 s", "5 parsecs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_duration(text)
