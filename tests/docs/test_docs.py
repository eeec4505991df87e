"""Every command in README and docs runs and prints what the page says; links lead somewhere; the site is complete."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml

from kubeqos.cli.main import application
from kubeqos.codec import decode_yaml_all
from tests.docs.pages import ROOT, WILD, Session, blocks, has_sessions, matches, needs_cluster, pages, play, steps
from tests.scenarios.cluster import KUBECTL

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@contextmanager
def cluster(home: Path) -> Iterator[Path]:
    """`kubeqos up`, as a reader of the page would have it: where it is by default, but on a free port."""
    log = home / "up.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.main", "up", "--data-dir", str(home / ".kubeqos"), "--port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            stdout=written,
            stderr=written,
        )
    try:
        while not re.search(r"^ready in ", log.read_text(), re.MULTILINE):
            if process.poll() is not None:
                pytest.fail(f"the cluster did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield home / ".kubeqos" / "kubeconfig"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
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
        with cluster(folder) as kubeconfig, Session(folder, kubeconfig) as session:
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


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=named)
def test_commands_that_are_not_run_are_spelled_right(page: Path) -> None:
    """Those that need root, or do not end, are at least commands with the options that they name."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else ():
            for words in invocations(line):
                assert misspelt(words) is None, f"{named(page)}:{block.line}: {line}: {misspelt(words)}"


def invocations(line: str) -> Iterator[list[str]]:
    """The words after every `kubeqos` of a line."""
    words = [word.rstrip(")") for word in shlex.split(line, comments=True) if word != WILD]
    starts = [number for number, word in enumerate(words) if word.endswith("kubeqos") and not word.startswith("-")]
    for start in starts:
        rest = words[start + 1 :]
        yield list(itertools.takewhile(lambda word: word not in ("|", "&&", ";"), rest))


def misspelt(words: list[str]) -> str | None:
    """What the command line would say of a command that does not exist, or not with these options."""
    command: click.Command = application
    context = None
    while True:
        try:
            context = command.make_context(command.name, list(words), parent=context)
        except (click.NoSuchOption, click.MissingParameter) as error:
            return error.format_message()
        except click.ClickException:
            return None  # a value that only the reader has, such as a file
        words = [*context._protected_args, *context.args]
        if not isinstance(command, click.Group) or not words:
            return None
        below = command.get_command(context, words[0])
        if below is None:
            return f"no command {words[0]!r}"
        command, words = below, words[1:]


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
    quiet = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
    }  # as `make docs` does: what is said of other versions is no error
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
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
