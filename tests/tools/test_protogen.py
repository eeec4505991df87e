"""The generated protobuf code is current, and the check would notice if it were not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import protogen


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one .proto file and its generated code."""
    folder = tmp_path / "kubeqos" / "plugins" / "proto"
    folder.mkdir(parents=True)
    shutil.copy(protogen.SOURCE / "kubeqos/plugins/proto/pluginregistration.proto", folder)
    assert protogen.main([], source=tmp_path) == 0
    return tmp_path


def test_the_checked_in_code_is_current() -> None:
    assert protogen.differences(protogen.SOURCE) == []


def test_generating_twice_gives_the_same_bytes(tree: Path) -> None:
    first = protogen.contents(tree)
    assert protogen.main([], source=tree) == 0
    assert protogen.contents(tree) == first
    assert protogen.main(["--check"], source=tree) == 0


def test_an_edited_proto_makes_the_check_fail(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = tree / "kubeqos/plugins/proto/pluginregistration.proto"
    proto.write_text(proto.read_text().replace("string error = 2", "string reason = 2"))
    assert protogen.main(["--check"], source=tree) == 1
    said = capsys.readouterr().out
    assert "stale: kubeqos/plugins/proto/pluginregistration_pb2.py" in said
    assert "make proto" in said


def test_code_without_its_proto_is_reported_and_removed(tree: Path) -> None:
    orphan = tree / "kubeqos/plugins/proto/gone_pb2.py"
    orphan.write_text("")
    assert protogen.differences(tree) == ["left over: kubeqos/plugins/proto/gone_pb2.py"]
    assert protogen.main([], source=tree) == 0
    assert not orphan.exists()


def test_a_file_without_services_gets_no_service_code(tree: Path) -> None:
    proto = tree / "kubeqos/plugins/proto/plain.proto"
    proto.write_text('syntax = "proto3";\nmessage Plain {\n  string text = 1;\n}\n')
    assert protogen.main([], source=tree) == 0
    assert (proto.parent / "plain_pb2.py").exists()
    assert not (proto.parent / "plain_pb2_grpc.py").exists()


def test_a_broken_proto_is_an_error_and_leaves_the_code_alone(tree: Path) -> None:
    before = protogen.contents(tree)
    (tree / "kubeqos/plugins/proto/broken.proto").write_text('syntax = "proto3"; message {')
    assert protogen.main([], source=tree) == 2
    assert protogen.contents(tree) == before
