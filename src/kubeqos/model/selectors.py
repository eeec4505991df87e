"""Label and field selectors: the query language of lists and watches.

Parsing follows Kubernetes' grammar token by token so that its error texts come out the same; matching is a pure
function of an object's labels or of its selectable fields. Called by the API server (lists, watches, deletecollection),
by controllers (replica selectors, disruption budgets) and by quota (scope selectors reuse the requirement type).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.names import label_value, qualified_name

_BINARY_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_INTEGER = re.compile(r"[+-]?[0-9]+")


class SelectorError(InputError):
    """A selector that cannot be read; the text is Kubernetes' own."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: str  # in, notin, =, !=, exists, !, gt, lt
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in" | "=":
                return value is not None and value in self.values
            case "notin" | "!=":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        if value is None or not _INTEGER.fullmatch(value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == "gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Every requirement must hold; no requirement selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        known = labels or {}
        return all(requirement.matches(known) for requirement in self.requirements)

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Read `app=web,tier in (a,b),!canary`."""
        _check_length(text)
        return cls(tuple(_LabelParser(text).parse()))

    @classmethod
    def of(cls, selector: Mapping[str, Any] | None) -> LabelSelector:
        """From an API object's `{matchLabels, matchExpressions}` (a missing selector selects nothing: ask first)."""
        found = selector or {}
        terms = [Requirement(k, "in", frozenset((v,))) for k, v in (found.get("matchLabels") or {}).items()]
        names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
        for expression in found.get("matchExpressions") or ():
            operator = names.get(expression.get("operator", ""))
            if operator is None:
                raise SelectorError(f"{expression.get('operator')!r} is not a valid label selector operator")
            terms.append(Requirement(expression.get("key", ""), operator, frozenset(expression.get("values") or ())))
        return cls(tuple(terms))


MAX_LENGTH = 1 << 16
"""Characters of a selector. Kubernetes takes what fits into a request, which can keep us busy for seconds."""
_COMPARISON = re.compile("!=|==|=")
_TERM = re.compile(r"(?:[^,\\]|\\.|\\$)*", re.DOTALL)
_SPECIAL = re.compile(r"[\\,=]")
_TOKEN = re.compile(r"(==|!=|[=!(),><])|([^=!(),>< \t\r\n]+)")
_WORDS = frozenset(("in", "notin"))
_OPERATORS = {"in": "in", "notin": "notin", "=": "=", "==": "=", "!=": "!=", ">": "gt", "<": "lt"}
_END = ""


class _LabelParser:
    """The recursive descent of Kubernetes' label selector grammar, with its exact complaints."""

    def __init__(self, text: str) -> None:
        self.tokens = _scan(text)
        self.position = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            token, literal = self._peek()
            if token == _END:
                return found
            if token not in ("identifier", "!"):
                raise SelectorError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error.what}") from error
            token, literal = self._take()
            if token == _END:
                return found
            if token != ",":
                raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            token, literal = self._peek()
            if token not in ("identifier", "!"):
                raise SelectorError(f"found '{literal}', expected: identifier after ','")

    def _peek(self, *, values: bool = True) -> tuple[str, str]:
        token, literal = self.tokens[self.position] if self.position < len(self.tokens) else (_END, "")
        return ("identifier", literal) if values and token in _WORDS else (token, literal)

    def _take(self, *, values: bool = True) -> tuple[str, str]:
        item = self._peek(values=values)
        self.position += 1
        return item

    def _requirement(self) -> Requirement:
        token, literal = self._take()
        absent = token == "!"
        if absent:
            token, literal = self._take()
        if token != "identifier":
            raise SelectorError(f"found '{literal}', expected: identifier")
        _complain("<nil>", literal, qualified_name(literal))
        if absent:
            return Requirement(literal, "!")
        if self._peek()[0] in (_END, ","):
            return Requirement(literal, "exists")
        token, found = self._take(values=False)
        operator = _OPERATORS.get(token)
        if operator is None:
            raise SelectorError(f"found '{found}', expected: {_BINARY_OPERATORS}")
        values = self._value_list() if operator in ("in", "notin") else [self._exact_value()]
        return _checked(literal, operator, values)

    def _exact_value(self) -> str:
        if self._peek()[0] in (_END, ","):
            return ""
        token, literal = self._take()
        if token != "identifier":
            raise SelectorError(f"found '{literal}', expected: identifier")
        return literal

    def _value_list(self) -> list[str]:
        token, literal = self._take()
        if token != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        token, literal = self._peek()
        if token == ")":
            self._take()
            return [""]
        if token not in ("identifier", ","):
            raise SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self._identifiers()
        if self._take()[0] != ")":
            raise SelectorError(f"found '{literal}', expected: ')'")
        return values

    def _identifiers(self) -> list[str]:
        values: list[str] = []
        while True:
            token, literal = self._take()
            if token == "identifier":
                values.append(literal)
                following, found = self._peek()
                if following == ")":
                    return values
                if following != ",":
                    raise SelectorError(f"found '{found}', expected: ',' or ')'")
            elif token == ",":
                if not values:
                    values.append("")
                following, _ = self._peek()
                if following == ")":
                    values.append("")
                    return values
                if following == ",":
                    self._take()
                    values.append("")
            else:
                raise SelectorError(f"found '{literal}', expected: ',', or identifier")


def _scan(text: str) -> list[tuple[str, str]]:
    tokens = []
    for symbol, word in _TOKEN.findall(text):
        tokens.append((symbol, symbol) if symbol else (word if word in _WORDS else "identifier", word))
    return tokens


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"the selector has {len(text)} characters, and may have {MAX_LENGTH}")


def _checked(key: str, operator: str, values: Sequence[str]) -> Requirement:
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and not _INTEGER.fullmatch(value):
            _complain(f"values[{index}]", value, ["for 'Gt', 'Lt' operators, the value must be an integer"])
        _complain(f"values[{index}][{key}]", value, label_value(value))
    return Requirement(key, operator, frozenset(values))


def _complain(path: str, value: str, problems: Sequence[str]) -> None:
    if not problems:
        return
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    raise SelectorError(f'{path}: Invalid value: "{quoted}": {"; ".join(problems)}')


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """`metadata.name=x,status.phase!=Running`: (field, value, wanted equal)."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        _check_length(text)
        terms = []
        for term in sorted(_split_terms(text)):  # which decides what is complained about first
            if not term:
                continue
            found = _COMPARISON.search(term)
            if found is None:
                raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
            field, value = term[: found.start()], _unescape(term[found.end() :])
            if field or value:  # a bare operator asks for nothing
                terms.append((field, value, found[0] != "!="))
        return cls(tuple(terms))

    def exact(self, field: str) -> str | None:
        """The value a field is required to equal, when the selector says so once."""
        for name, value, equal in self.terms:
            if name == field and equal:
                return value
        return None

    def matches(self, value_of: Callable[[str], str]) -> bool:
        return all((value_of(field) == value) is equal for field, value, equal in self.terms)


def _split_terms(text: str) -> list[str]:
    """At every comma that is not escaped."""
    if "\\" not in text:
        return text.split(",")
    terms, position = [], 0
    while True:
        found = _TERM.match(text, position)
        assert found is not None  # it matches the empty text too
        terms.append(found[0])
        position = found.end() + 1
        if position > len(text):
            return terms


def _unescape(value: str) -> str:
    if not _SPECIAL.search(value):
        return value
    out, escaped = "", False
    for char in value:
        if escaped:
            if char not in "\\,=":
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{char}")
            out += char
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(char)}")
        else:
            out += char
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return out
