"""Writes the files of a new plugin, driver or provider: `kubeqos qrm new`, `kubeqos cci new`, `kubeqos provider new`.

Each of the three protocols brings its own texts; how a name becomes a module, a class and a folder is said here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kubeqos.errors import InputError


def facts(name: str, resource: str = "") -> dict[str, str]:
    """What the texts of a part called `name` may use: its module, its type, its environment variable, its resource."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    kind = "".join(word.capitalize() for word in words)
    return {
        "module": "_".join(words),
        "type": kind if kind[:1].isalpha() else f"New{kind}",
        "env": "_".join(words).upper(),
        "resource": resource or f"example.com/{name}",
    }


def plain_name(name: str, what: str) -> str:
    """`name`, if it can name a module and a resource; `what` it would name is for the error."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise InputError(f"{name!r} cannot be a {what}'s name", remedy="use lower-case letters, digits and dashes")
    return name


def write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write `texts` (by file name) into `folder`, unless one of them is there already; returns the files."""
    files = [folder / file for file in texts]
    for file in files:
        if file.exists():
            raise InputError(f"{file} exists already", remedy="choose another name or folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    return files
