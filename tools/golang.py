"""Programs that exist as Go modules alone: compiled once by version, kept in a cache outside the tree.

`tools.kubectl` and `tools.stock` say which programs; this knows how Go is found, asked for its age and called.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_GO = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_SWITCHES_ITSELF = (1, 21)
"""Since this version Go fetches the newer Go that a module asks for."""


def cache() -> Path:
    """Where programs are kept that somebody built or fetched for the tests."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubeqos"


def required(source: Path, module: str) -> str:
    """The version of a module that the go.mod in a folder requires."""
    found = re.search(rf"^(?:require|\s)\s*{re.escape(module)} (v\S+)$", (source / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, f"{source / 'go.mod'} requires {module}"
    return found[1]


def kubernetes_stamps(version: str) -> Mapping[str, str]:
    """What Kubernetes' programs say of themselves, which a plain build leaves at v0.0.0."""
    stamps = {"gitVersion": version, "gitMajor": "1", "gitMinor": version.split(".")[1], "gitTreeState": "clean"}
    places = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{place}.{name}": value for place in places for name, value in stamps.items()}


def unsuitable(go: str | None, source: Path) -> str:
    """Why this machine's Go cannot build what is in a folder; nothing if it can."""
    found = _GO.search((source / "go.mod").read_text())
    assert found is not None, "go.mod names its Go"
    needed = int(found[1]), int(found[2])
    if go is None:
        return f"Go is not on PATH: install Go {needed[0]}.{needed[1]} or newer"
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    here = re.match(r"go(\d+)\.(\d+)", said)
    if here is None or (int(here[1]), int(here[2])) < min(needed, _SWITCHES_ITSELF):
        return f"{said.strip() or go} is too old: install Go {needed[0]}.{needed[1]} or newer"
    return ""


def compile_to(target: Path, source: Path, words: Sequence[str], package: str, stamps: Mapping[str, str]) -> None:
    """Compile a package with Go's words for it (`go build`, say); nobody ever sees half a program."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}-{os.getpid()}")
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in stamps.items())])
    command = [*words, "-mod=readonly", "-ldflags", flags, "-o", str(half), package]
    try:
        subprocess.run(command, cwd=source, env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}, check=True)
        half.rename(target)
    finally:
        half.unlink(missing_ok=True)
