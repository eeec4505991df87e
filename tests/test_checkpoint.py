"""Checkpoints survive every crash point and say what was damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.checkpoint import Checkpoint
from kubeqos.codec import encode_json_sorted
from kubeqos.errors import StateError


class Crash(Exception):
    pass


def checkpoint(folder: Path, **more: Any) -> Checkpoint:
    return Checkpoint(folder / "state", format="test", version=1, **more)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    checkpoint(tmp_path).save({"pods": {"a": [1, 2]}})
    assert checkpoint(tmp_path).load().data == {"pods": {"a": [1, 2]}}


def test_a_state_that_is_text_already_is_saved_as_it_was_when_it_became_text(tmp_path: Path) -> None:
    state = {"pods": {"b": 1, "a": 2}}
    text = encode_json_sorted(state)
    state["pods"]["a"] = 3
    checkpoint(tmp_path).save_text(text)
    loaded = checkpoint(tmp_path).load()
    assert (loaded.data, loaded.set_aside) == ({"pods": {"a": 2, "b": 1}}, ())


def test_nothing_saved_is_nothing_loaded(tmp_path: Path) -> None:
    assert checkpoint(tmp_path).load().data is None


@pytest.mark.parametrize("step", ["write", "keep-previous", "rename", "sync-directory"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_state(tmp_path: Path, step: str) -> None:
    checkpoint(tmp_path).save("old")

    def crash(at: str) -> None:
        if at == step:
            raise Crash

    with pytest.raises(Crash):
        checkpoint(tmp_path, before_step=crash).save("new")
    loaded = checkpoint(tmp_path).load()
    assert loaded.data in ("old", "new")
    assert loaded.set_aside == ()


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"format": "other", "version": 1}', b"\xff\xfe", b'{"format":"test","version":9,"data":1}'],
)
def test_a_damaged_file_is_set_aside_and_the_previous_one_is_used(tmp_path: Path, damage: bytes) -> None:
    checkpoint(tmp_path).save("good")
    checkpoint(tmp_path).save("better")
    (tmp_path / "state").write_bytes(damage)
    loaded = checkpoint(tmp_path).load()
    assert (loaded.data, loaded.from_previous) == ("good", True)
    assert loaded.set_aside == ("state.damaged-1",)
    assert (tmp_path / "state.damaged-1").read_bytes() == damage


@given(st.data())
def test_one_flipped_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    checkpoint(folder).save({"a": 1, "b": ["x", "y"]})
    content = bytearray((folder / "state").read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "state").write_bytes(content)
    assert checkpoint(folder).load().data in (None, {"a": 1, "b": ["x", "y"]})


def test_an_unwritable_place_says_where(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        Checkpoint(tmp_path / "missing" / "state", format="test", version=1).save(1)
    assert "missing" in (caught.value.where or "")


def test_without_sync_a_save_is_still_whole_or_not_there(tmp_path: Path) -> None:
    steps: list[str] = []
    path = tmp_path / "state"
    state = Checkpoint(path, format="test", version=1, sync=False, before_step=steps.append)
    state.save({"a": 1})
    state.save({"a": 2})
    assert steps == ["write", "rename"] * 2
    assert state.load().data == {"a": 2}
    path.write_bytes(path.read_bytes()[:-9])
    assert Checkpoint(path, format="test", version=1, sync=False).load().set_aside == ("state.damaged-1",)
