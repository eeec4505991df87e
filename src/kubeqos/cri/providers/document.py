"""YAML that remembers its lines, read strictly.

`Doc` is one node of a parsed file. Its readers raise one `ConfigurationError` that names the file, the line, the path
of keys, and what would be right: an unknown key with the nearest known one, a wrong type with the expected one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NoReturn

import yaml

from kubeqos.errors import ConfigurationError, InputError
from kubeqos.model.quantity import Quantity

_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Doc:
    """One YAML node with where it stands."""

    node: yaml.Node
    source: str
    path: str = ""

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}  {self.path}".rstrip()

    def fail(self, what: str, remedy: str = "") -> NoReturn:
        raise ConfigurationError(f"{self.path or 'document'}: {what}", where=self.where, remedy=remedy or None)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:null"

    def items(self) -> dict[str, Doc]:
        """A mapping with any keys (names chosen by the user)."""
        if self.is_null:
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            self.fail("expected a mapping")
        out: dict[str, Doc] = {}
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                Doc(key, self.source, self.path).fail("a key must be a plain name")
            name = str(key.value)
            child = Doc(value, self.source, f"{self.path}.{name}" if self.path else name)
            if name in out:
                Doc(key, self.source, child.path).fail("this key appears twice", "keep one of them")
            out[name] = child
        return out

    def fields(self, known: Collection[str]) -> dict[str, Doc]:
        """A mapping with a fixed set of keys; any other key is an error with a suggestion."""
        out = self.items()
        for name, child in out.items():
            if name not in known:
                child.fail("unknown key", suggest(name, known))
        return out

    def elements(self) -> Iterator[Doc]:
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail("expected a list")
        for number, item in enumerate(self.node.value):
            yield Doc(item, self.source, f"{self.path}[{number}]")

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.is_null:
            self.fail("expected a text")
        return str(self.node.value)

    def boolean(self) -> bool:
        value = self.text().lower()
        if value not in _TRUTH:
            self.fail(f"expected true or false, found {value!r}")
        return _TRUTH[value]

    def integer(self, low: int, high: int) -> int:
        value = self.text()
        if not value.lstrip("-").isdecimal() or not low <= int(value) <= high:
            self.fail(f"expected a whole number from {low} to {high}, found {value!r}")
        return int(value)

    def quantity(self) -> int:
        """A Kubernetes quantity of bytes or operations: 64Mi, 10M, 500."""
        try:
            value = Quantity.parse(self.text()).value()
        except InputError as error:
            self.fail(f"{self.text()!r} is not a quantity ({error})", "write it like 64Mi, 10M or 500")
        if value < 0:
            self.fail(f"{self.text()!r} is negative")
        return value


def suggest(name: str, known: Collection[str]) -> str:
    """`did you mean …?` for the nearest known name, else the list of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        near = [k for k in known if k.lower() == name.lower()]
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"


def parse_document(text: str, source: str) -> Doc:
    """The root node of one YAML document."""
    try:
        node = yaml.compose(text if text.strip() else "{}", Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        raise ConfigurationError(
            f"not valid YAML: {error.problem or error}", where=f"{source}:{line}", remedy="fix the syntax of this line"
        ) from error
    return Doc(node, source)
