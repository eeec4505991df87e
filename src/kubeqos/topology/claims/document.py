"""JSON whose every value remembers where it stood, so that a refusal can point at it.

Claim parameters are written by hand into ConfigMaps (KEP-3675's own example lacks a comma). `read` answers a tree
of `Located` values or a `Problem` with line, column and caret. Pure; called by `topology.claims.parameters`.

Not `kubeqos.document`, which reads YAML: to YAML a missing comma or a curly quote is no mistake but another value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import JsonError, decode_json

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[-+.\w]+")
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Located:
    """A JSON value: an object as pairs of located keys and values, a list of located values, or a scalar."""

    value: Any
    start: int
    end: int

    @property
    def kind(self) -> str:
        names = {tuple: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
        return names.get(type(self.value), "a number")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a document, and where: `path` for the reader's mind, line and column for the eye."""

    what: str
    line: int
    column: int
    source: str
    path: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        at = f"{self.path}: " if self.path else ""
        advice = f" ({self.remedy})" if self.remedy else ""
        return f"line {self.line}, column {self.column}: {at}{self.what}{advice}"

    def shown(self) -> str:
        """The problem with its line and a caret under the place."""
        margin = f"{self.line:>5} | "
        return f"{self}\n{margin}{self.source}\n{' ' * (len(margin) - 2)}| {' ' * (self.column - 1)}^"


class Unreadable(Exception):
    """Carries a problem out of the reader; never leaves this package."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def problem_at(text: str, offset: int, what: str, *, path: str = "", remedy: str = "") -> Problem:
    """A problem at a place of a document."""
    line_start = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    source = text[line_start : line_end if line_end >= 0 else len(text)].replace("\t", " ").rstrip("\r")
    return Problem(what, text.count("\n", 0, offset) + 1, offset - line_start + 1, source, path, remedy)


def read(text: str) -> Located | Problem:
    """The document as located values."""
    reader = _Reader(text)
    try:
        found = reader.value(0, 0)
        rest = reader.skip(found.end)
        if rest < len(text):
            return problem_at(text, rest, f"unexpected {reader.seen(rest)} after the end of the document")
    except Unreadable as error:
        return error.problem
    return found


class _Reader:
    """A recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def skip(self, offset: int) -> int:
        found = _BLANK.match(self.text, offset)
        return found.end() if found else offset

    def seen(self, offset: int) -> str:
        if offset >= len(self.text):
            return "end of the document"
        word = _STRING.match(self.text, offset) or _WORD.match(self.text, offset)
        return repr(word.group()[:40] if word else self.text[offset])

    def fail(self, offset: int, what: str, remedy: str = "") -> Unreadable:
        if not remedy and self.text[offset : offset + 1] in ("“", "”", "„", "‘", "’", "'"):
            remedy = 'write strings between straight double quotes: "'
        if not remedy and self.text.startswith(("//", "/*"), offset):
            remedy = "JSON has no comments"
        return Unreadable(problem_at(self.text, offset, what, remedy=remedy))

    def value(self, offset: int, depth: int) -> Located:
        offset = self.skip(offset)
        if depth > _MAX_DEPTH:
            raise self.fail(offset, f"nested deeper than {_MAX_DEPTH} levels")
        first = self.text[offset : offset + 1]
        if first == "{":
            return self.sequence(offset, depth, "}")
        if first == "[":
            return self.sequence(offset, depth, "]")
        return self.scalar(offset, "a value")

    def scalar(self, offset: int, wanted: str) -> Located:
        found = _STRING.match(self.text, offset) or _WORD.match(self.text, offset)
        if not found:
            raise self.fail(offset, f"expected {wanted}, found {self.seen(offset)}")
        try:
            return Located(decode_json(found.group().encode()), offset, found.end())
        except JsonError as error:
            raise self.fail(offset, f"{found.group()} is not {wanted}") from error

    def sequence(self, start: int, depth: int, closing: str) -> Located:
        """The members of an object or list. A missing comma is reported behind the value that lacks it."""
        members: list[Any] = []
        offset, end = self.skip(start + 1), start + 1
        while self.text[offset : offset + 1] != closing:
            if members:
                if self.text[offset : offset + 1] != ",":
                    missing = offset < len(self.text) and self.text[offset] not in "/“”„‘’'"
                    what = f"expected ',' or '{closing}' here, before {self.seen(offset)}"
                    raise self.fail(end if missing else offset, what)
                offset = self.skip(offset + 1)
                if self.text[offset : offset + 1] == closing:
                    raise self.fail(offset, f"unexpected '{closing}' after ','", "remove the last comma")
            member = self.pair(offset, depth) if closing == "}" else self.value(offset, depth + 1)
            members.append(member)
            end = member[1].end if isinstance(member, tuple) else member.end
            offset = self.skip(end)
        return Located(tuple(members) if closing == "}" else members, start, offset + 1)

    def pair(self, offset: int, depth: int) -> tuple[Located, Located]:
        key = self.scalar(offset, "a key in double quotes")
        if not isinstance(key.value, str):
            raise self.fail(offset, f"expected a key in double quotes, found {self.seen(offset)}")
        colon = self.skip(key.end)
        if self.text[colon : colon + 1] != ":":
            raise self.fail(colon, f'expected ":" after key "{key.value}", found {self.seen(colon)}')
        return key, self.value(colon + 1, depth + 1)
