"""Write tools/published.txt: what the Go sources of Kubernetes' API say about a type beyond what the models say.

`python -m tools.gotypes FOLDER` reads a Go module cache that holds k8s.io/api and its siblings (`go mod download` puts
them there) and follows the kinds named in `schema_facts.PUBLISHED`. The result is checked in, so that nobody needs Go
to build or test: one type per paragraph, one field per line, as in types.txt, with the field's protobuf number first.
`schemagen` makes types.txt and the table of field numbers from it. Run it for a new release of Kubernetes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools import schema_facts as facts

TARGET = Path(__file__).with_name("published.txt")
RELEASE = "v0.37.1"
HOMES = {
    "meta": "apimachinery@{}/pkg/apis/meta",
    "apiextensions": "apiextensions-apiserver@{}/pkg/apis/apiextensions",
    "apiregistration": "kube-aggregator@{}/pkg/apis/apiregistration",
}
SCALARS = {
    "string": "string", "bool": "bool", "int": "int64", "int32": "int32", "int64": "int64", "float64": "float",
    "uint32": "int64", "[]byte": "bytes", "types.UID": "string(types.UID)", "types.NodeName": "string(types.NodeName)",
    "resource.Quantity": "quantity", "intstr.IntOrString": "intstr", "metav1.Time": "time", "Time": "time",
    "metav1.MicroTime": "microtime", "MicroTime": "microtime", "runtime.RawExtension": "any", "JSON": "any",
    "metav1.FieldsV1": "any", "FieldsV1": "any", "JSONSchemaPropsOrArray": "any", "JSONSchemaPropsOrBool": "any",
    "JSONSchemaPropsOrStringArray": "any", "interface{}": "any", "any": "any",
}  # fmt: skip
STRUCT = re.compile(r"^type (\w+) (struct ?\{\}?|[^\n{]+)$")
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([^\s`]+(?:\s*\{\})?)\s+`([^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')
IMPORT = re.compile(r'^(?:\t|import )(?:(\w+) )?"(k8s\.io/[^"]+)"', re.MULTILINE)


@dataclass
class GoField:
    """One field of a struct, as its source says it."""

    name: str
    type: str
    tags: dict[str, str]
    notes: list[str]


@dataclass
class Package:
    """The types of one Go package."""

    key: str
    structs: dict[str, list[GoField]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


def read_package(cache: Path, key: str) -> Package:
    """All types of a package such as core/v1."""
    group, _, version = key.partition("/")
    home = HOMES.get(group, f"api@{{}}/{group}").format(RELEASE)
    found = Package(key)
    folder = cache / "k8s.io" / home / version
    for path in sorted((*folder.glob("*types*.go"), *folder.glob("group_version.go"))):
        text = path.read_text(encoding="utf-8")
        for alias, target in IMPORT.findall(text):
            found.imports[alias or target.rpartition("/")[2]] = target
        _read_types(found, text.splitlines())
    return found


def _read_types(found: Package, lines: list[str]) -> None:
    comments: list[str] = []
    current: list[GoField] | None = None
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("//"):
            comments.append(stripped.removeprefix("//").strip())
        elif current is not None:
            if line == "}":
                current = None
            elif match := FIELD.match(line):
                current.append(GoField(match[1] or "", match[2], dict(TAG.findall(match[3])), comments))
            comments = [] if stripped else comments
        elif match := STRUCT.match(line):
            name, body = match[1], match[2]
            found.notes[name] = comments
            if body.startswith("struct"):
                fields = found.structs[name] = []
                current = fields if body == "struct {" else None
            else:
                found.named[name] = body.strip().removeprefix("= ")
            comments = []
        elif stripped:
            comments = []


class Reader:
    """Follows references from the kinds that are named, and describes every type it meets."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.packages: dict[str, Package] = {}
        self.types: dict[str, list[str]] = {}

    def package(self, key: str) -> Package:
        if key not in self.packages:
            self.packages[key] = read_package(self.cache, key)
        return self.packages[key]

    def visit(self, package: Package, name: str) -> str:
        key = f"{package.key}.{name}"
        if key not in self.types:
            lines = self.types[key] = []
            atomic = any("structType=atomic" in note for note in package.notes[name])
            for each in package.structs[name]:
                self._field(package, each, lines)
            self.types[key] = sorted(lines)
            if atomic:
                self.types[key].insert(0, "atomic")
        return key

    def _field(self, package: Package, each: GoField, lines: list[str]) -> None:
        name, *options = each.tags.get("json", "").split(",")
        number = each.tags["protobuf"].split(",")[1] if "protobuf" in each.tags else "0"
        if name == "-":
            return
        if not name and each.type.endswith("TypeMeta"):
            lines += ["apiVersion 0 string", "kind 0 string"]
            return
        if not name:  # an embedded struct: its fields are fields of this one
            home, embedded = self._home(package, each.type.lstrip("*"))
            self.visit(home, embedded)
            lines.append(f"<{embedded}> {number} {home.key}.{embedded}")
            lines += self._embedded(home, embedded)
            return
        spec = self._spec(package, each.type.lstrip("*"))
        pointer = each.type.startswith("*")
        flags = self._flags(package, each, spec, pointer, options)
        required = _required(each.notes, options)
        lines.append(" ".join([name + ("!" if required else ""), number, spec, *flags]))

    def _embedded(self, home: Package, name: str) -> list[str]:
        """The lines of an embedded struct, whose numbers count only inside of it."""
        out = []
        for line in self.types[f"{home.key}.{name}"]:
            if line.startswith("<") or line == "atomic":
                continue
            title, _, rest = line.split(" ", 2)
            out.append(f"{title} 0 {rest}")
        return out

    def _home(self, package: Package, name: str) -> tuple[Package, str]:
        alias, _, short = name.rpartition(".")
        if not alias:
            return package, short
        path = package.imports[alias]
        if path.startswith("k8s.io/apimachinery/pkg/apis/meta/"):
            return self.package("meta/" + path.rpartition("/")[2]), short
        return self.package("/".join(path.split("/")[-2:])), short

    def _spec(self, package: Package, name: str) -> str:
        name = name.lstrip("*")
        if name in SCALARS:
            return SCALARS[name]
        if name.startswith("[]"):
            return "[]" + self._spec(package, name[2:])
        if name.startswith("map["):
            return "{}" + self._spec(package, name.partition("]")[2])
        home, short = self._home(package, name)
        if short in home.structs:
            if f"metav1.{short}" in SCALARS and home.key == "meta/v1":
                return SCALARS[f"metav1.{short}"]
            return self.visit(home, short)
        inner = home.named.get(short)
        if inner is None:
            raise SystemExit(f"{package.key}: no type {name}")
        if inner == "string":
            return f"string({short})"
        return self._spec(home, inner)

    def _flags(self, package: Package, each: GoField, spec: str, pointer: bool, options: list[str]) -> list[str]:
        notes = each.notes
        flags = []
        if strategy := each.tags.get("patchStrategy"):
            flags.append(f"patch={strategy}")
        if key := each.tags.get("patchMergeKey"):
            flags.append(f"key={key}")
        kind = next((note.partition("=")[2] for note in notes if note.startswith("+listType=")), "")
        keys = [note.partition("=")[2] for note in notes if note.startswith("+listMapKey=")]
        if kind in ("map", "set") and spec.startswith("[]"):
            flags.append(f"list={kind}" + (":" + ",".join(keys) if keys else ""))
        if any(note.startswith(("+mapType=atomic", "+structType=atomic")) for note in notes):
            flags.append("map=atomic")
        scalar = not spec.startswith(("[]", "{}")) and "/" not in spec
        kept = pointer and scalar and spec not in ("time", "microtime", "any")
        if kept or spec in facts.KEPT_LISTS:
            flags.append("zero=keep")
        if _always(spec, pointer, options, _required(notes, options)):
            flags.append("write=always")
        return flags


def _required(notes: list[str], options: list[str]) -> bool:
    if "+optional" in notes:
        return False
    return "+required" in notes or not ({"omitempty", "omitzero"} & set(options))


def _always(spec: str, pointer: bool, options: list[str], required: bool) -> bool:
    """Whether Go writes a field that is not set: structs without a pointer, and what does not say omitempty."""
    if "omitzero" in options:
        return False
    struct = "/" in spec and not spec.startswith(("[]", "{}"))
    if struct:
        return not pointer
    if spec in ("time", "microtime"):
        return not pointer or "omitempty" not in options
    return "omitempty" not in options and not required


def main(arguments: list[str]) -> int:
    """Write the table."""
    cache = Path(arguments[0])
    reader = Reader(cache)
    for _, _, package, kind, has_list in (*facts.PUBLISHED, *facts.KINDS):
        if package == "resource_v1alpha1":  # the proposal's own, which was never published in this form
            continue
        home = reader.package(package.replace("_", "/"))
        for name in (kind, f"{kind}List") if has_list else (kind,):
            reader.visit(home, name)
    blocks = ["\n".join([key, *lines]) for key, lines in sorted(reader.types.items())]
    target = Path(arguments[1]) if len(arguments) > 1 else TARGET
    target.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
