"""Generates the protobuf code (`make proto`); `python -m tools.protogen --check` sees that it is current.

Every `.proto` under src/kubeqos becomes `*_pb2.py`, `*_pb2_grpc.py` (if it has services) and their type stubs
beside it. The code is checked in, so that installing kubeqos needs no compiler. It is made with an old
grpcio-tools on purpose: generated code refuses to run on a protobuf older than its generator.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
# Import paths follow the package, so that the modules generated from two files find each other.
PACKAGE = "kubeqos"
SERVICE = re.compile(r"^service ", re.MULTILINE)


class GenerationError(Exception):
    """protoc refused a file; it has said why on stderr."""


def protos(source: Path) -> list[str]:
    """The .proto files of a source tree, as protoc names them."""
    return sorted(str(path.relative_to(source)) for path in (source / PACKAGE).rglob("*.proto"))


def generate(source: Path, out: Path) -> None:
    """Write the code of every .proto file of `source` into the same folders under `out`."""
    from grpc_tools import protoc

    tools = Path(sys.executable).parent
    arguments = [
        "protoc",
        f"-I{source}",
        f"-I{resources.files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={tools / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={tools / 'protoc-gen-mypy_grpc'}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *protos(source),
    ]
    if protoc.main(arguments) != 0:
        raise GenerationError("protoc failed; see its messages above")
    for name in protos(source):
        stem = name.removesuffix(".proto")
        code, stub = out / f"{stem}_pb2_grpc.py", out / f"{stem}_pb2_grpc.pyi"
        if SERVICE.search((source / name).read_text()):
            stub.write_text("# ruff: noqa\n# fmt: off\n" + stub.read_text())
        else:
            code.unlink()
            stub.unlink()


def contents(root: Path) -> dict[str, bytes]:
    """All generated files under a source root, by relative path."""
    found = (path for pattern in GENERATED for path in (root / PACKAGE).rglob(pattern))
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def differences(source: Path) -> list[str]:
    """What `generate` would change in `source`, one line each; empty when the checked-in code is current."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(source, Path(scratch))
        wanted = contents(Path(scratch))
    have = contents(source)
    return [
        *(f"missing: {name}" for name in sorted(wanted.keys() - have.keys())),
        *(f"stale: {name}" for name in sorted(wanted.keys() & have.keys()) if wanted[name] != have[name]),
        *(f"left over: {name}" for name in sorted(have.keys() - wanted.keys())),
    ]


def main(arguments: list[str] | None = None, *, source: Path = SOURCE) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m tools.protogen", description="generate the protobuf code")
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the code is stale")
    options = parser.parse_args(arguments)
    try:
        found = differences(source)
        for line in found:
            print(line)
        if options.check:
            if found:
                print("the generated protobuf code is not current: run `make proto` and commit the result")
            return 1 if found else 0
        for name in contents(source):
            (source / name).unlink()
        generate(source, source)
    except GenerationError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
