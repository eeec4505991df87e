"""`kubeqos edit` when the server, the file or the editor says no; `kubeqos rollout undo` as a decision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cli.change.rollout import CannotRollBack, rollback
from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server
from tests.shared import commands


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("edit") / "data", FeatureGates.parse("QOSResources=true")) as server:
        server.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "one"}, "data": {"a": "b"}})
        yield server


def edit(live: LiveServer, editor: str, *words: str) -> tuple[str, int]:
    done = commands.run("edit", *words, env={**os.environ, "KUBECONFIG": str(live.kubeconfig), "KUBE_EDITOR": editor})
    return done.stdout + done.stderr, done.returncode


def script(folder: Path, *turns: str) -> str:
    """An editor that does something else each time it is opened."""
    program = folder / "editor.sh"
    cases = "\n".join(f"{number}) {turn} ;;" for number, turn in enumerate(turns, 1))
    count = folder / "count"
    program.write_text(
        f'#!/bin/sh\nn=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo $n > {count}\ncp "$1" {folder}/seen$n\n'
        f"case $n in\n{cases}\nesac\n"
    )
    program.chmod(0o755)
    return str(program)


def test_what_is_refused_is_opened_again_with_the_reason(live: LiveServer, tmp_path: Path) -> None:
    editor = script(tmp_path, "sed -i 's/a: b/a: [b]/' $1", "sed -i 's/a: \\[b\\]/a: c/' $1")
    assert edit(live, editor, "configmap/one") == ("configmap/one edited\n", 0)
    assert "# " in (tmp_path / "seen2").read_text().split("#\n")[1]
    assert live.call("GET", "/api/v1/namespaces/default/configmaps/one").body["data"] == {"a": "c"}


def test_what_stays_refused_is_kept_in_a_file(live: LiveServer, tmp_path: Path) -> None:
    said, code = edit(live, script(tmp_path, "echo '{' >> $1"), "configmap", "one")
    assert code == 1
    assert "not YAML" in said
    assert "your changes are kept in that file" in said
    kept = Path(said.split("at  ")[1].split("\n")[0])
    assert kept.read_text().endswith("{\n")
    kept.unlink()


def test_an_empty_file_cancels_and_a_missing_editor_is_named(live: LiveServer) -> None:
    assert edit(live, "truncate -s 0", "cm/one") == ("Edit cancelled, no changes made.\n", 0)
    said, code = edit(live, "no-such-editor", "cm/one")
    assert (code, said.splitlines()[0]) == (1, "Error: cannot run the editor no-such-editor: No such file or directory")
    assert edit(live, "false", "cm/one")[0].startswith("Error: the editor false ended with 1\n")
    assert "say TYPE NAME or TYPE/NAME" in edit(live, "true", "cm")[0]


def replica_set(revision: int, image: str, owner: str = "u1") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"web-{revision}",
            "annotations": {"deployment.kubernetes.io/revision": str(revision), "why": f"r{revision}"},
            "ownerReferences": [{"uid": owner}],
        },
        "spec": {"template": {"metadata": {"labels": {"pod-template-hash": "x"}}, "spec": {"image": image}}},
    }


def test_the_revision_before_is_the_default_and_its_notes_come_with_it() -> None:
    deployment: dict[str, Any] = {
        "metadata": {
            "name": "web",
            "uid": "u1",
            "annotations": {"deployment.kubernetes.io/revision": "2", "why": "r2"},
        },
        "spec": {"template": {"metadata": {}, "spec": {"image": "v2"}}},
    }
    sets = [replica_set(1, "v1"), replica_set(2, "v2"), replica_set(9, "v9", owner="u2")]
    back = rollback(deployment, sets, 0)
    assert back.revision == 1
    values = {one["path"]: one["value"] for one in back.patch}
    assert values["/spec/template/spec"] == {"image": "v1"}
    assert values["/metadata/annotations"] == {"deployment.kubernetes.io/revision": "2", "why": "r1"}
    assert rollback(deployment, sets, 2).patch == []
    with pytest.raises(CannotRollBack, match="no rollout history"):
        rollback(deployment, sets[1:], 0)
    with pytest.raises(CannotRollBack, match="revision 9 in history"):
        rollback(deployment, sets, 9)
    deployment["spec"]["paused"] = True
    with pytest.raises(CannotRollBack, match="paused"):
        rollback(deployment, sets, 0)
