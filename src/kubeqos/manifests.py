"""Reading manifests from files, directories and standard input, for every command that takes `-f`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeqos.codec import JsonError, YamlError, decode_json, decode_yaml_all
from kubeqos.errors import InputError

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and where it was read."""

    raw: dict[str, Any]
    source: str

    @property
    def kind(self) -> str:
        return str(self.raw.get("kind", ""))

    @property
    def name(self) -> str:
        metadata = self.raw.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def read(paths: Iterable[str]) -> list[Manifest]:
    """Every object in the files, directories or `-` named, lists unpacked, in order."""
    found = [manifest for path in paths for manifest in _read_path(path)]
    if not found:
        raise InputError("no objects found", where=", ".join(paths), remedy="name a file with at least one object")
    return found


def _read_path(path: str) -> Iterator[Manifest]:
    if path == "-":
        yield from _documents(sys.stdin.read(), "standard input")
        return
    place = Path(path)
    if place.is_dir():
        for file in sorted(entry for entry in place.iterdir() if entry.suffix in SUFFIXES):
            yield from _documents(_text(file), str(file))
        return
    yield from _documents(_text(place), path)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: not UTF-8 text") from error


def parse(text: str, source: str) -> list[Manifest]:
    """Every object in a text; `source` names it in errors."""
    return list(_documents(text, source))


def _documents(text: str, source: str) -> Iterator[Manifest]:
    try:
        documents = _json(text) or decode_yaml_all(text)
    except YamlError as error:
        where = source if error.position is None else f"{source}:{error.position[0]}:{error.position[1]}"
        raise InputError(f"not valid YAML: {error.what}", where=where) from error
    for document in documents:
        yield from _objects(document, source)


def _json(text: str) -> list[Any]:
    """What kubectl prints of a large cluster is read in seconds as JSON, and in minutes as YAML, which it is too."""
    if not text.startswith("{"):
        return []
    try:
        return [decode_json(text.encode())]
    except JsonError:
        return []  # YAML may begin so as well


def _objects(document: Any, source: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise InputError("a manifest must be an object with apiVersion and kind", where=source)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError("Object 'Kind' is missing", where=source, remedy="add apiVersion and kind to the object")
    if kind == "List" or (kind.endswith("List") and isinstance(document.get("items"), list)):
        for item in document.get("items") or ():
            yield from _objects(item, source)
        return
    yield Manifest(document, source)
