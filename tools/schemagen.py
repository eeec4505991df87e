"""Write model/schema/{types,descriptions}.txt and apiserver/protobuf/numbers.txt from the published models and tables.

The tables are schema_facts.py (what the models leave out), schema_proposals.py (what the KEPs add) and published.txt
(what the Go sources say, by gotypes.py: all of a type that only kinds in `schema_facts.PUBLISHED` lead to, and of every
type the field numbers). Run it after a new release of lightkube-models: `python tools/schemagen.py`. The files are
checked in, so that the command line needs no model package to start. `--check` only says whether they are up to date.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import schema_facts as facts
import schema_proposals as proposals

SOURCES = Path(__file__).parents[1] / "src" / "kubeqos"
TARGETS = (
    SOURCES / "model" / "schema" / "types.txt",
    SOURCES / "model" / "schema" / "descriptions.txt",
    SOURCES / "apiserver" / "protobuf" / "numbers.txt",
)
PRIMITIVES = {
    "str": "string",
    "int": "int32",
    "bool": "bool",
    "float": "float",
    "dict": "{}string",
    "Dict": "any",
    "Time": "time",
    "MicroTime": "microtime",
    "FieldsV1": "any",
    "RawExtension": "any",
    "Quantity": "quantity",
    "IntOrString": "intstr",
}
PARAMETER = re.compile(r"\* \*\*(\w+)\*\* ``[^`]*`` - (.*)")

Fields = list[tuple[str, str]]


class Generator:
    """Follows references from the kinds that are served and describes every type it meets."""

    def __init__(self) -> None:
        self.types: dict[str, Fields] = {}
        self.docs: dict[str, dict[str, str]] = {}
        self.atomic: set[str] = set()
        self.go = read_published()
        self.from_go = False
        """Set while kinds are followed whose types published.txt describes."""
        self.statuses: set[str] = set()
        """Types of the field `status` of such kinds."""

    def visit(self, package: str, name: str) -> str:
        """The key of a type, which is described first if it was not met before."""
        key = f"{package.replace('_', '/')}.{name}"
        if key not in self.types:
            self.types[key] = []
            if key in proposals.ADDED_TYPES:
                about, added = proposals.ADDED_TYPES[key]
                self.docs[key] = {"": about}
                self._add(key, added)
            elif self.from_go:
                self._from_go(key, package, name)
                self._add(key, proposals.ADDED_FIELDS.get(key, []))
            else:
                self._published(key, package, name)
                self._add(key, proposals.ADDED_FIELDS.get(key, []))
        return key

    def _published(self, key: str, package: str, name: str) -> None:
        model = getattr(importlib.import_module(f"lightkube.models.{package}"), name)
        self.docs[key], spoken = parse_docstring(model.__doc__ or "")
        renamed = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
        for attribute, annotation in model.__annotations__.items():
            field = renamed.get(attribute, attribute)
            optional = annotation.startswith("Optional[")
            inner = annotation[len("Optional[") : -1] if optional else annotation
            owner = f"{name}.{field}"
            spec = self._spec(package, owner, inner)
            self.types[key].append((field if optional else field + "!", spec))
            self.docs[key][field] = spoken.get(attribute, spoken.get(field, ""))

    def _from_go(self, key: str, package: str, name: str) -> None:
        home = f"lightkube.models.{package.replace('/', '_')}"
        module = importlib.import_module(home) if importlib.util.find_spec(home) else None
        about, spoken = parse_docstring(getattr(getattr(module, name, None), "__doc__", None) or "")
        self.docs[key] = {**about, **spoken}
        if self.go[key].atomic:
            self.atomic.add(key)
        for field, spec in self.go[key].fields:
            target = re.sub(r"^(\[\]|\{\})*", "", spec.split(" ")[0])
            if key in self.statuses and field.endswith("!") and spec in ("bool", "int32", "int64"):
                # Go writes the numbers of a status that nobody has reported yet.
                field, spec = field.rstrip("!"), f"{spec} write=always"
            self.types[key].append((field, spec))
            if field == "status" and "/" in target:
                self.statuses.add(target)
            if "/" in target:
                self.visit(*target.rsplit(".", 1))

    def _spec(self, package: str, owner: str, annotation: str) -> str:
        spec = facts.FIELD_TYPES.get(owner) or self._type(package, owner, annotation)
        flags = [facts.LISTS.get(owner, ""), facts.OBJECT_STRATEGY.get(owner, "")]
        flags += ["map=atomic"] if owner in facts.ATOMIC_MAPS else []
        flags += write_flags(owner)
        if owner in facts.DEFAULTS:
            flags.append(f"default={facts.DEFAULTS[owner]}")
        return " ".join([spec, *filter(None, flags)])

    def _type(self, package: str, owner: str, annotation: str) -> str:
        if annotation.startswith("List["):
            return "[]" + self._type(package, owner, annotation[len("List[") : -1])
        module, _, name = annotation.rpartition(".")
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            return self.visit(module or package, name)
        if primitive == "int32" and owner in facts.INT64:
            return "int64"
        if primitive == "string" and owner in facts.STRING_TYPES:
            return f"string({facts.STRING_TYPES[owner]})"
        if primitive == "{}string":
            return "{}" + facts.MAP_VALUES.get(owner, "string")
        return primitive

    def _add(self, key: str, added: list[tuple[str, str, str]]) -> None:
        for field, spec, about in added:
            owner = f"{key.rpartition('.')[2]}.{field.rstrip('!')}"
            self.types[key].append((field, " ".join([spec, *write_flags(owner)])))
            self.docs[key][field.rstrip("!")] = about
            target = spec.split(" ")[0].removeprefix("[]")
            if "/" in target:
                package, _, name = target.rpartition(".")
                self.visit(package.replace("/", "_"), name)


def write_flags(owner: str) -> list[str]:
    """How the field is written back: `zero=keep` keeps a zero value, `write=always` writes it when it is not set."""
    flags = ["zero=keep"] if owner in facts.KEEP_ZERO else []
    return flags + (["write=always"] if owner in facts.ALWAYS_WRITTEN else [])


def parse_docstring(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The description of a type, and of each parameter, with line breaks folded."""
    about: list[str] = []
    fields: dict[str, list[str]] = {}
    current = about
    for line in (raw.strip() for raw in text.splitlines()):
        if match := PARAMETER.match(line):
            current = fields.setdefault(match[1], [])
            line = match[2]
        elif line == "**parameters**":
            continue
        if line:
            current.append(line)
    return {"": " ".join(about)}, {name: " ".join(lines) for name, lines in fields.items()}


@dataclasses.dataclass
class GoType:
    """A type in published.txt."""

    atomic: bool = False
    fields: Fields = dataclasses.field(default_factory=list)
    numbers: dict[str, str] = dataclasses.field(default_factory=dict)


def read_published() -> dict[str, GoType]:
    """The types in published.txt by their keys."""
    found = {}
    for paragraph in Path(__file__).with_name("published.txt").read_text(encoding="utf-8").split("\n\n"):
        key, *lines = paragraph.rstrip("\n").split("\n")
        one = found[key] = GoType()
        for line in lines:
            if line == "atomic":
                one.atomic = True
                continue
            name, number, spec = line.split(" ", 2)
            if number != "0":
                one.numbers[name.rstrip("!")] = number
            if not name.startswith("<"):
                one.fields.append((name, spec))
    return found


def field_numbers(generator: Generator) -> str:
    """One type per line: its fields with their protobuf numbers, embedded structs in angle brackets."""
    lines = []
    for key, found in sorted(generator.go.items()):
        pairs = sorted(found.numbers.items(), key=lambda item: int(item[1]))
        lines.append(" ".join([key, *(f"{name}={number}" for name, number in pairs)]))
    return "\n".join(lines) + "\n"


def render(generator: Generator) -> tuple[str, str, str]:
    """The three files: structure (one type per paragraph, one field per line), descriptions in the same order, and
    field numbers."""
    kinds = []
    for generator.from_go, table in ((False, facts.KINDS), (True, facts.PUBLISHED)):
        kinds += [
            f"{group or '-'} {version} {name} {generator.visit(package, name)}"
            for group, version, package, kind, has_list in table
            for name in ((kind, f"{kind}List") if has_list else (kind,))
        ]
    blocks = ["\n".join(sorted(kinds))]
    docs = []
    for key in sorted(generator.types):
        lines = [f"{name} {spec}" for name, spec in sorted(generator.types[key])]
        marked = key.rpartition(".")[2] in facts.ATOMIC_TYPES or key in generator.atomic
        atomic = " atomic" if marked else ""
        blocks.append("\n".join([key + atomic, *lines]))
        about = generator.docs[key]
        docs.append("\n".join([f"{key} {about['']}", *(f"{n} {d}" for n, d in sorted(about.items()) if n and d)]))
    return "\n\n".join(blocks) + "\n", "\n\n".join(docs) + "\n", field_numbers(generator)


def main(arguments: list[str]) -> int:
    """Write the files, or with --check compare them."""
    stale = False
    for path, text in zip(TARGETS, render(Generator()), strict=True):
        if "--check" in arguments:
            stale |= not path.exists() or path.read_text(encoding="utf-8") != text
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print("the schema is out of date: run python tools/schemagen.py", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
