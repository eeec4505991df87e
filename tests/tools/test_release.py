"""What a release is made of says the same everywhere: the version, the changelog, image, workflow and manual."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from _pytest.mark.expression import Expression

from kubeqos import __version__
from kubeqos.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The Containerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/kubeqos/__init__.py"


def test_the_changelog_knows_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" and __version__ in headings


def test_the_image_is_made_of_what_is_here_and_does_not_run_as_root() -> None:
    found = instructions()
    assert {name for name, _ in found} <= INSTRUCTIONS
    for name, words in found:
        if name == "COPY" and not words.startswith("--from"):
            *sources, _ = words.split()
            assert all((ROOT / source).exists() for source in sources), words
    (volume,) = [words for name, words in found if name == "VOLUME"]
    assert any(
        name == "RUN" and f"--owner kubeqos --group kubeqos --mode 700 {volume}" in words for name, words in found
    )
    users = [words for name, words in found if name == "USER"]
    assert users and users[-1] not in ("root", "0")
    assert [words for name, words in found if name == "ENTRYPOINT"] == ['["kubeqos"]']


def test_the_workflow_runs_targets_that_exist() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    wanted = {word for step in steps for word in re.findall(r"make (\S+)", step.get("run", ""))}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert wanted and wanted <= targets
    assert {"check", "test", "dist", "docs"} <= wanted


def test_every_test_belongs_to_a_target_of_its_own() -> None:
    """Whatever marks it has: a test that only `make test-all` runs is run by nobody."""
    text = (ROOT / "Makefile").read_text()
    (campaigns,) = re.findall(r"^CAMPAIGNS := (.+)$", text, re.MULTILINE)
    recipes = dict(re.findall(r"^(test[a-z-]*):.*\n((?:\t.*\n)+)", text, re.MULTILINE))
    chosen = {name: re.findall(r'-m "([^"]+)"', recipe) for name, recipe in recipes.items() if name != "test-all"}
    assert {"test", "test-campaigns", "test-vm"} <= set(chosen)
    homes = ({"stock"}, {"vm"}, set())
    for marks in (home | more for home in homes for more in (set(), {"slow"}, {"containerd"}, {"slow", "containerd"})):
        takers = []
        for name, (expression,) in chosen.items():
            plain = expression.replace("$(CAMPAIGNS)", campaigns).replace("$(if $(CORE), and not slow)", "")
            if Expression.compile(plain).evaluate(lambda mark, **_: mark in marks):  # noqa: B023 - asked at once
                takers.append(name)
        assert takers, f"no target runs tests with the marks {sorted(marks)}"


def test_the_manual_names_every_command_that_help_lists() -> None:
    text = (ROOT / "docs" / "kubeqos.1").read_text()
    for name in COMMANDS:
        assert f".B {name}\n".replace("-", "\\-") in text, name
    assert f"kubeqos {__version__}" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not on PATH")
def test_the_manual_is_well_formed() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-K", "utf8", str(ROOT / "docs" / "kubeqos.1")], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
