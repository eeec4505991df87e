"""The real kubectl where a machine has none: built once from its released Go modules, kept outside the tree.

`python -m tools.kubectl` (`make kubectl`) prints where it is, and builds it first if it must; the tests look for it
with `find_kubectl`. The version is the one that go.mod names.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools import golang

SOURCE = Path(__file__).parent


def version() -> str:
    """kubectl's own way to say it: the module k8s.io/kubectl v0.37.2 is kubectl v1.37.2."""
    return golang.required(SOURCE, "k8s.io/kubectl").replace("v0.", "v1.", 1)


def built() -> Path:
    """Where the one that we build is, or will be."""
    return golang.cache() / "bin" / version() / "kubectl"


def find_kubectl() -> str | None:
    """The machine's own, else the one that was built, else none."""
    return shutil.which("kubectl") or shutil.which(str(built()))


def main() -> int:
    """Say where kubectl is, after building it where there is none (some minutes)."""
    found = find_kubectl()
    if found is None:
        go = shutil.which("go")
        if problem := golang.unsuitable(go, SOURCE):
            remedy = f"or kubectl {version()} itself, and put it on PATH"
            print(f"kubectl is not on PATH, and cannot be built: {problem}, {remedy}", file=sys.stderr)
            return 1
        print(f"building kubectl {version()} (some minutes, once)", file=sys.stderr)
        try:
            golang.compile_to(built(), SOURCE, [str(go), "build"], ".", golang.kubernetes_stamps(version()))
        except subprocess.CalledProcessError as error:
            print(f"building kubectl failed: {error}", file=sys.stderr)
            return 1
        found = str(built())
    print(found)
    return 0
