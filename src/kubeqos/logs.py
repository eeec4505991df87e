"""What components note down: an event and its values, one line each. The one way to log in this house.

    log = logger("kubeqos.relay")
    log.warning("a class provider is away", provider=name, error=reason)

Python's own `logging` is underneath, so a program that embeds a part of kubeqos steers these lines like all others, and
libraries' troubles come out in the same form. Programs call `to_stream` once; modules only name their logger.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TextIO

OURS = "kubeqos"
_OF_LOGGING = frozenset(("exc_info", "stack_info", "stacklevel", "extra"))
_EVENT_WIDTH, _LEVEL_WIDTH = 30, 9
_NEEDS_QUOTES = frozenset(" \t=\r\n\"'")
_LEVEL_COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_GREEN, _CYAN, _MAGENTA, _DIM, _BRIGHT, _PLAIN = "\x1b[32m", "\x1b[36m", "\x1b[35m", "\x1b[2m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Noted:
    """What happened, with named values. As text for handlers that are not ours."""

    event: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return " ".join((self.event, *(f"{name}={_shown(value)}" for name, value in self.values.items())))


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods take values by name (any but `msg` and `level`, which are words of `logging`)."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        values = {name: kwargs.pop(name) for name in [*kwargs] if name not in _OF_LOGGING}
        return (Noted(str(msg), values) if values else msg), kwargs


def logger(name: str) -> Log:
    """The logger of a component: `kubeqos.relay`, or a module's own name."""
    return Log(logging.getLogger(name))


def to_stream(stream: TextIO, level: int = logging.INFO) -> None:
    """Write what we note from `level` on, and what libraries warn of, to a stream. Who set logging up keeps that."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(colors=stream.isatty() and "NO_COLOR" not in os.environ))
    root.addHandler(handler)
    # Libraries tell of every request at INFO.
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level)


class Lines(logging.Formatter):
    """`2025-01-31 12:00:00 [info     ] relay is ready                 listen=…`, in colors for a terminal."""

    def __init__(self, *, colors: bool = False) -> None:
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self.colors = colors

    def formatMessage(self, record: logging.LogRecord) -> str:
        # A message with arguments is text already; our own keep their values apart until here.
        noted = record.msg if isinstance(record.msg, Noted) else Noted(record.message, {})
        level = _LEVEL_COLORS.get(record.levelno, _GREEN) + _BRIGHT
        event = f"{noted.event:<{_EVENT_WIDTH}}" if noted.values else noted.event
        return " ".join(
            (
                self._colored(_DIM, self.formatTime(record, self.datefmt)),
                f"[{self._colored(level, f'{record.levelname.lower():<{_LEVEL_WIDTH}}')}]",
                self._colored(_BRIGHT, event),
                *(
                    f"{self._colored(_CYAN, name)}={self._colored(_MAGENTA, _shown(value))}"
                    for name, value in noted.values.items()
                ),
            )
        )

    def usesTime(self) -> bool:
        return True

    def _colored(self, color: str, text: str) -> str:
        return f"{color}{text}{_PLAIN}" if self.colors else text


def _shown(value: object) -> str:
    """A text as it is where it stays one word, anything else as Python writes it."""
    return value if isinstance(value, str) and not _NEEDS_QUOTES & {*value} else repr(value)
