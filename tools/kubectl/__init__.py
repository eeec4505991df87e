"""The real kubectl where a machine has none: built once from its released Go modules, kept outside the tree.

`python -m tools.kubectl` (`make kubectl`) prints where it is, and builds it first if it must; the tests look for it
with `find_kubectl`. The version is the one that go.mod names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent
_REQUIRED = re.compile(r"^\s+k8s\.io/kubectl v0\.(\d+\.\d+)$", re.MULTILINE)
_GO = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_SWITCHES_ITSELF = (1, 21)
"""Since this version Go fetches the newer Go that a module asks for."""


def version() -> str:
    """kubectl's own way to say it: the module k8s.io/kubectl v0.37.2 is kubectl v1.37.2."""
    found = _REQUIRED.search((SOURCE / "go.mod").read_text())
    assert found is not None, "go.mod requires k8s.io/kubectl"
    return f"v1.{found[1]}"


def built() -> Path:
    """Where the one that we build is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kubeqos" / "bin" / version() / "kubectl"


def find_kubectl() -> str | None:
    """The machine's own, else the one that was built, else none."""
    return shutil.which("kubectl") or shutil.which(str(built()))


def build(go: str) -> Path:
    """Compile it (some minutes); nobody ever sees half a program."""
    target = built()
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".kubectl-{os.getpid()}")
    about = "k8s.io/component-base/version"
    stamps = {"gitVersion": version(), "gitMajor": "1", "gitMinor": version().split(".")[1], "gitTreeState": "clean"}
    flags = " ".join(["-s", "-w", *(f"-X {about}.{name}={value}" for name, value in stamps.items())])
    words = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", flags, "-o", str(half), "."]
    try:
        subprocess.run(words, cwd=SOURCE, env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}, check=True)
        half.rename(target)
    finally:
        half.unlink(missing_ok=True)
    return target


def unsuitable(go: str | None) -> str:
    """Why this machine cannot build it; nothing if it can."""
    found = _GO.search((SOURCE / "go.mod").read_text())
    assert found is not None, "go.mod names its Go"
    needed = int(found[1]), int(found[2])
    remedy = f"install Go {needed[0]}.{needed[1]} or newer, or kubectl {version()} itself, and put it on PATH"
    if go is None:
        return f"kubectl is not on PATH, and neither is Go to build it: {remedy}"
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    here = re.match(r"go(\d+)\.(\d+)", said)
    if here is None or (int(here[1]), int(here[2])) < min(needed, _SWITCHES_ITSELF):
        return f"kubectl is not on PATH, and {said.strip() or go} is too old to build it: {remedy}"
    return ""


def main() -> int:
    """Say where kubectl is, after building it where there is none."""
    found = find_kubectl()
    if found is None:
        go = shutil.which("go")
        problem = unsuitable(go)
        if problem:
            print(problem, file=sys.stderr)
            return 1
        print(f"building kubectl {version()} (some minutes, once)", file=sys.stderr)
        try:
            found = str(build(str(go)))
        except subprocess.CalledProcessError as error:
            print(f"building kubectl failed: {error}", file=sys.stderr)
            return 1
    print(found)
    return 0
