"""What components note down: one line per event, its values by name, whoever formats it."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator

import pytest

from kubeqos.logs import OURS, Lines, Log, logger, to_stream

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def log() -> Iterator[Log]:
    """A logger that nobody else uses and nobody has set up."""
    log = logger("kubeqos.tests.logs")
    log.logger.propagate = False
    log.logger.setLevel(logging.DEBUG)
    yield log
    log.logger.handlers.clear()


def written(log: Log, formatter: logging.Formatter) -> io.StringIO:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    log.logger.addHandler(handler)
    return out


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "[warning  ] gone"),
        ({"socket": "/run/a.sock"}, "[warning  ] gone                           socket=/run/a.sock"),
        (
            {"error": "no such file", "tries": 3},
            "[warning  ] gone                           error='no such file' tries=3",
        ),
        (
            {"name": "x", "message": "", "parts": ["a"]},
            "[warning  ] gone                           name=x message= parts=['a']",
        ),
    ],
)
def test_an_event_is_a_line_with_its_values(log: Log, values: dict[str, object], line: str):
    out = written(log, Lines())
    log.warning("gone", **values)  # type: ignore[arg-type]
    assert re.fullmatch(TIME + re.escape(line) + "\n", out.getvalue())


def test_libraries_messages_come_out_in_the_same_form(log: Log):
    out = written(log, Lines())
    log.logger.error("cannot reach %s: %s", "host", "refused")
    assert out.getvalue().endswith("[error    ] cannot reach host: refused\n")


def test_other_handlers_see_the_values_too(log: Log):
    out = written(log, logging.Formatter("%(levelname)s %(name)s %(message)s"))
    log.info("100% sure", node="n1")
    assert out.getvalue() == "INFO kubeqos.tests.logs 100% sure node=n1\n"


def test_an_exception_follows_its_line(log: Log):
    out = written(log, Lines())
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("the plugin failed", method="Allocate")
    first, *_, last = out.getvalue().splitlines()
    assert first.endswith("[error    ] the plugin failed              method=Allocate")
    assert last == "ValueError: broken"


@contextlib.contextmanager
def nobody_logs() -> Iterator[None]:
    """Logging as a fresh process has it; entered inside a test, since pytest sets logging up for each phase."""
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    handlers, level, own = root.handlers[:], root.level, ours.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(own)


def test_a_program_sees_what_we_note_and_what_libraries_warn_of():
    out = io.StringIO()
    with nobody_logs():
        to_stream(out)
        logger("kubeqos.any").info("noted")
        logging.getLogger("library").info("every request")
        logging.getLogger("library").warning("trouble")
        to_stream(io.StringIO())  # who came first stays
        logger("kubeqos.any").debug("detail")
        logger("kubeqos.any").info("again")
    assert [line.split("] ")[1] for line in out.getvalue().splitlines()] == ["noted", "trouble", "again"]


@pytest.mark.parametrize("no_color", [False, True])
def test_colors_are_for_terminals(monkeypatch: pytest.MonkeyPatch, no_color: bool):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    with nobody_logs():
        to_stream(out)
        logger("kubeqos.any").error("broken", part="x")
    assert ("\x1b[31m\x1b[1merror    \x1b[0m" in out.getvalue()) is not no_color
    assert ("\x1b[36mpart\x1b[0m=\x1b[35mx\x1b[0m" in out.getvalue()) is not no_color
