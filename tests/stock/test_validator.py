"""The validator of required plugins in containerd's files: turned on beside what is there, off without a trace."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kubeqos.errors import KubeqosError
from kubeqos.stock import validator
from kubeqos.stock.validator import RuntimeSettings, has_validator, is_on, parse_settings, remove, running, write
from tests.stock.containerd2 import configuration

CONFIG = Path("/etc/containerd/config.toml")
PLAIN = 'version = 3\nroot = "/somewhere"\n[plugins."io.containerd.nri.v1.nri"]\n  disable = false\n'
OFF = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = false\n'
ON = OFF.replace("false", "true")


def tree(root: Path) -> dict[str, str]:
    """Every file and folder, and what is in it."""
    return {str(one.relative_to(root)): one.read_text() if one.is_file() else "" for one in root.rglob("*")}


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "etc" / "containerd").mkdir(parents=True)
    return tmp_path / "etc" / "containerd"


@pytest.mark.parametrize(
    ("text", "folder", "files"),
    [
        (PLAIN, False, {"config.toml", "conf.d", "conf.d/kubeqos.toml"}),
        (PLAIN, True, {"config.toml", "conf.d", "conf.d/kubeqos.toml"}),
        (
            'imports = ["/etc/containerd/conf.d/*.toml"]\n' + PLAIN,
            False,
            {"config.toml", "conf.d", "conf.d/kubeqos.toml"},
        ),
        ('imports = ["more/*.toml"]\n' + PLAIN, True, {"config.toml", "conf.d", "more", "more/kubeqos.toml"}),
        (None, False, {"config.toml"}),
    ],
)
def test_it_is_turned_on_and_off_without_a_trace(
    tmp_path: Path, etc: Path, text: str | None, folder: bool, files: set[str]
) -> None:
    if text is not None:
        (etc / "config.toml").write_text(text)
        (etc / "config.toml").chmod(0o640)
    if folder:
        (etc / "conf.d").mkdir()
    before = tree(etc)
    assert not is_on(CONFIG, tmp_path)
    path = write(CONFIG, tmp_path, "7/1/boot")
    assert path is not None and is_on(CONFIG, tmp_path)
    assert set(tree(etc)) == files
    assert validator.waits_for(CONFIG, tmp_path, "7/1/boot") and not validator.waits_for(CONFIG, tmp_path, "8/2/boot")
    written = tree(etc)
    assert write(CONFIG, tmp_path, "8/2/boot") == path
    assert tree(etc) == written, "a second time changes nothing"
    if text is not None:
        assert written["config.toml"].endswith(text)
        assert (etc / "config.toml").stat().st_mode & 0o777 == 0o640
    assert path in remove(CONFIG, tmp_path)
    assert tree(etc) == before
    assert remove(CONFIG, tmp_path) == []


def test_what_others_have_turned_on_is_theirs(tmp_path: Path, etc: Path) -> None:
    (etc / "config.toml").write_text(PLAIN + ON)
    before = tree(etc)
    assert write(CONFIG, tmp_path, "7/1/boot") is None
    assert remove(CONFIG, tmp_path) == []
    assert tree(etc) == before


def test_what_others_have_changed_stays(tmp_path: Path, etc: Path) -> None:
    (etc / "config.toml").write_text(PLAIN)
    path = write(CONFIG, tmp_path, "7/1/boot")
    assert path is not None
    path.write_text(path.read_text() + '  required_plugins = ["mine"]\n')
    (etc / "config.toml").write_text((etc / "config.toml").read_text() + "oom_score = 1\n")
    before = tree(etc)
    assert remove(CONFIG, tmp_path) == []
    assert tree(etc) == before
    path.unlink()
    path.write_text("# somebody's\n")
    with pytest.raises(KubeqosError, match="not what kubeqos wrote"):
        write(CONFIG, tmp_path, "7/1/boot")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('imports = ["/opt/one.toml"]\n' + PLAIN, "imports other files"),
        ("]", "cannot read the runtime's settings"),
        ('imports = ["/etc/containerd/conf.d/*.toml"]\n' + PLAIN, "turns the validator off"),
    ],
)
def test_where_it_cannot_be_turned_on_nothing_is_said_to_be_on(tmp_path: Path, etc: Path, text: str, said: str) -> None:
    (etc / "config.toml").write_text(text)
    (etc / "conf.d").mkdir()
    (etc / "conf.d" / "zz.toml").write_text(OFF)
    before = tree(etc)
    with pytest.raises(KubeqosError, match=said):
        write(CONFIG, tmp_path, "7/1/boot")
    assert tree(etc) == before


def test_a_link_is_not_followed(tmp_path: Path, etc: Path) -> None:
    (etc / "real.toml").write_text(PLAIN)
    (etc / "config.toml").symlink_to("real.toml")
    with pytest.raises(KubeqosError, match="is a link"):
        write(CONFIG, tmp_path, "7/1/boot")


def test_imports_are_followed_in_containerds_order(tmp_path: Path, etc: Path) -> None:
    (etc / "config.toml").write_text('imports = ["a.toml", "/etc/containerd/d/*.toml", "gone.toml"]\n' + PLAIN)
    (etc / "a.toml").write_text('imports = ["config.toml"]\n' + ON)
    assert is_on(CONFIG, tmp_path) is True
    (etc / "d").mkdir()
    (etc / "d" / "b.toml").write_text(OFF)
    assert is_on(CONFIG, tmp_path) is False, "the later one holds"
    assert is_on(Path("/etc/none"), tmp_path) is None
    (etc / "config.toml").write_text(configuration(Path("/x"), Path("/x/s")))
    assert is_on(CONFIG, tmp_path) is True


@pytest.mark.parametrize(
    ("runtime", "version", "said"),
    [
        ("containerd", "v2.2.0", ""),
        ("containerd", "2.4.2", ""),
        ("containerd", "v2.1.4", "2.2 and newer"),
        ("containerd", "dev", "2.2 and newer"),
        ("cri-o", "1.34.0", "its own settings"),
    ],
)
def test_which_runtimes_have_it(runtime: str, version: str, said: str) -> None:
    found = has_validator(runtime, version)
    assert said in found and bool(said) is bool(found)


def test_what_agents_may_do() -> None:
    assert parse_settings("", "x") is None
    assert parse_settings("config: /a\nrestart: b c\n", "x") == RuntimeSettings(Path("/a"), "b c")
    for text, said in {"config: a\n": "absolute", "restart: b\n": "no config", "confg: /a\n": "did you mean"}.items():
        with pytest.raises(KubeqosError) as refused:
            parse_settings(text, "x")
        assert said in "\n".join(refused.value.lines())


def test_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert running(one) == running(other) != "unknown", "the same process, since the same moment"
