"""YAML that remembers its lines, read strictly: the one reader of everything that people configure by file.

`Doc` is one node of a parsed file. Its readers raise one error that names the file, the line, the path of keys, and
what would be right: an unknown key with the nearest known one, a wrong type with the expected one. Used for node,
scheduler and class configurations and for what `kubeqos simulate` is given; values of the domain (quantities, CPU
lists, durations) are read by `kubeqos.model.reading`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from kubeqos.codec import YamlError, compose_yaml, construct_yaml, encode_json
from kubeqos.errors import ConfigurationError, KubeqosError

T = TypeVar("T")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Doc:
    """One YAML node with where it stands, and which error a mistake in it is."""

    node: yaml.Node
    source: str
    path: str = ""
    error: type[KubeqosError] = ConfigurationError

    @classmethod
    def of(cls, value: Any, source: str) -> Doc:
        """A document made of a value: what a flag said, in the place of a file's setting."""
        return cls(compose_yaml(encode_json(value).decode()), source)

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def where(self) -> str:
        place = self.source if self.source.startswith("--") else f"{self.source}:{self.line}"
        return f"{place}  {self.path}".rstrip()

    def fail(self, what: str, remedy: str = "") -> NoReturn:
        raise self.error(f"{self.path or 'document'}: {what}", where=self.where, remedy=remedy or None)

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
                replace(self, node=key).fail("a key must be a plain name")
            name = str(key.value)
            child = replace(self, node=value, path=f"{self.path}.{name}" if self.path else name)
            if name in out:
                replace(child, node=key).fail("this key appears twice", "keep one of them")
            out[name] = child
        return out

    def over(self, other: Doc) -> Doc:
        """This mapping with the members of another one that it does not have."""
        mine, others = self.items(), other.items()
        if not isinstance(self.node, yaml.MappingNode) or not isinstance(other.node, yaml.MappingNode):
            return self if mine or not others else other
        added = [(key, value) for key, value in other.node.value if key.value not in mine]
        node = yaml.MappingNode(self.node.tag, [*self.node.value, *added], self.node.start_mark, self.node.end_mark)
        return replace(self, node=node)

    def with_member(self, name: str, member: Doc) -> Doc:
        """This mapping with another value of a key that it has."""
        assert isinstance(self.node, yaml.MappingNode)
        pairs = [(key, member.node if key.value == name else value) for key, value in self.node.value]
        return replace(self, node=yaml.MappingNode(self.node.tag, pairs, self.node.start_mark, self.node.end_mark))

    def fields(self, known: Collection[str]) -> dict[str, Doc]:
        """A mapping with a fixed set of keys; any other key is an error with a suggestion."""
        out = self.items()
        for name, child in out.items():
            if name not in known:
                child.fail("unknown key", suggest(name, known))
        return out

    def required(self, fields: dict[str, Doc], key: str) -> Doc:
        """A member that must be there."""
        if key not in fields:
            self.fail(f"no {key}", f"add the key {key}")
        return fields[key]

    def elements(self) -> Iterator[Doc]:
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail("expected a list")
        for number, item in enumerate(self.node.value):
            yield replace(self, node=item, path=f"{self.path}[{number}]")

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
        if not value.removeprefix("-").isdecimal() or not low <= int(value) <= high:
            self.fail(f"expected a whole number from {low} to {high}, found {value!r}")
        return int(value)

    def one_of(self, known: Collection[str]) -> str:
        """A text out of a fixed set."""
        value = self.text()
        if value not in known:
            self.fail(f"{value!r} is none of {', '.join(known)}", suggest(value, known))
        return value

    def parsed(self, parse: Callable[[str], T], remedy: str = "") -> T:
        """A text that another reader understands; what that reader objects to is reported here."""
        try:
            return parse(self.text())
        except KubeqosError as error:
            self.fail(error.what, error.remedy or remedy)

    def plain(self) -> Any:
        """The node as JSON values, for members that are passed on as they are."""
        try:
            return construct_yaml(self.node)
        except YamlError as error:
            self.fail(str(error))


def suggest(name: str, known: Collection[str]) -> str:
    """`did you mean …?` for the nearest known name, else the list of them."""
    near = [k for k in known if k.lower() == name.lower()] or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"


def parse_document(text: str, source: str, error: type[KubeqosError] = ConfigurationError) -> Doc:
    """The root node of one YAML document."""
    try:
        node = compose_yaml(text)
        return Doc(compose_yaml("{}") if node is None else node, source, error=error)
    except YamlError as problem:
        line = problem.position[0] if problem.position else 1
        raise error(
            f"not valid YAML: {problem.what}", where=f"{source}:{line}", remedy="fix the syntax of this line"
        ) from problem


def read_document(path: Path, what: str, error: type[KubeqosError] = ConfigurationError) -> Doc:
    """The document in a file; `what` names it in the error when it cannot be read."""
    try:
        return parse_document(path.read_text(), str(path), error)
    except OSError as problem:
        raise error(f"cannot read the {what}: {problem.strerror}", where=str(path)) from problem
    except UnicodeDecodeError as problem:
        raise error(f"the {what} is not UTF-8 text", where=str(path)) from problem


def check_kind(doc: Doc, fields: dict[str, Doc], api_version: str, kind: str) -> None:
    """Refuse a document that says it is something else, or does not say what it is."""
    for key, wanted in (("apiVersion", api_version), ("kind", kind)):
        if key not in fields:
            doc.fail(f"not a {kind}", f"set apiVersion: {api_version} and kind: {kind}")
        if fields[key].text() != wanted:
            fields[key].fail(f"{fields[key].text()!r} is not {wanted}", f"set {key}: {wanted}")
