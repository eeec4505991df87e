"""Every command in README and docs runs and prints what the page says; links lead somewhere; the site is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kubeqos.codec import decode_yaml_all
from tests.docs.pages import ROOT, Session, blocks, has_sessions, matches, needs_cluster, pages, play, steps
from tests.scenarios.cluster import KUBECTL

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@contextmanager
def cluster() -> Iterator[Path]:
    """`kubeqos up`, as a reader of the page would have it; in a folder with a short name, as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="kubeqos-") as name, started(Path(name)) as kubeconfig:
        yield kubeconfig


@contextmanager
def started(folder: Path) -> Iterator[Path]:
    log = folder / "up.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.main", "up", "--data-dir", str(folder / "cluster"), "--port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            stdout=written,
            stderr=written,
        )
    try:
        while not re.search(r"^ready in ", log.read_text(), re.MULTILINE):
            if process.poll() is not None:
                pytest.fail(f"the cluster did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield folder / "cluster" / "kubeconfig"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("page", [page for page in pages() if has_sessions(page)], ids=named)
def test_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    if not needs_cluster(page):
        with Session(folder, None) as session:
            wrong = play(page, session)
    elif KUBECTL is None:
        pytest.skip("kubectl is not on PATH")
    else:
        with cluster() as kubeconfig, Session(folder, kubeconfig) as session:
            wrong = play(page, session)
    assert not wrong, "\n\n".join(wrong)


def test_what_a_page_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    with Session(tmp_path, None) as session:
        output, code = session.run("sleep 1000 > /dev/null 2>&1 & echo $!")
        pid = int(output)
        assert code == 0 and running(pid), "it is there for the next command"
        assert session.run(f"kill -0 {pid}") == ("", 0)
    assert not running(pid)


def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Also what ignores a polite request, and what keeps the command's output open."""
    stubborn = "bash -c \"trap '' TERM; sleep 1000; true\" & echo $!; wait"
    with Session(tmp_path, None, command_seconds=1.0) as session:
        output, code = session.run(stubborn)
    pid, _, rest = output.partition("\n")
    assert (rest, code) == ("(not over after 1 s, and ended)\n", 124)
    assert not running(int(pid))


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("page", pages(), ids=named)
def test_commands_are_marked(page: Path) -> None:
    """A console block without a prompt would look as if it were tested."""
    for block in blocks(page):
        if block.language == "console":
            assert steps(block), f"{named(page)}:{block.line}: no `$ ` in a console block; write ```sh"
            assert block.rest in ("", "cluster"), f"{named(page)}:{block.line}: unknown mark {block.rest!r}"


@pytest.mark.parametrize("page", pages(), ids=named)
def test_yaml_is_yaml(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            assert decode_yaml_all(block.text), f"{named(page)}:{block.line}"


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for block in blocks(page):
        text = text.replace(block.text, "")
    for target in LINK.findall(text):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{named(page)} links to {target}"


def test_every_page_is_in_the_navigation_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed: list[str] = []

    def walk(entries: list[object]) -> None:
        for entry in entries:
            assert isinstance(entry, dict), "every entry has a title"
            for target in entry.values():
                walk(target) if isinstance(target, list) else listed.append(target)

    walk(site["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in pages()[1:])


def test_the_site_builds(tmp_path: Path) -> None:
    """As `make docs` does; strictly, so that a dead link or anchor is an error."""
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert "five proposals" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    ("expected", "actual", "agrees"),
    [
        (["a"], "a\n", True),
        (["a"], "b\n", False),
        (["a … c"], "a b c\n", True),
        (["a", "…", "z"], "a\nb\nc\nz\n", True),
        (["a", "…", "z"], "a\nz\n", True),
        (["a", "…", "z"], "a\nb\n", False),
        ([], "", True),
        ([], "surprise\n", False),
        (["a.c"], "abc\n", False),
        (["a", ""], "a\n", True),
    ],
)
def test_how_output_is_compared(expected: list[str], actual: str, agrees: bool) -> None:
    assert matches(expected, actual) is agrees
