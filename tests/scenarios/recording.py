"""Golden outputs: what a command says, at 80 and 200 columns, on a terminal and in a pipe, in one file per command."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.scenarios.terminal import ROOT, on_terminal, piped

FOLDER = Path(__file__).parent / "golden"
COLUMNS = (80, 200)
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"\(×\d+\)"), "(×<count>)"),
    (re.compile(r" +\d+\.\d s\b"), " <seconds>"),
    (re.compile(r"\(\d+\.\d ms\)"), "(<took>)"),
    (re.compile(r"\(process \d+\)"), "(process <pid>)"),
    (re.compile(r"#/login/[\w-]+"), "#/login/<code>"),
    (re.compile(r"(?:SOURCES)?/[\w./-]*bin/python[\d.]*"), "PYTHON"),
)

Prepare = Callable[[Path], None]


def recorded(words: str, env: dict[str, str], until: str, prepare: Prepare) -> str:
    """All variants of one command's output, equal ones together. Each has a FOLDER of its own.

    What talks to the same CLUSTER runs one after another.
    """
    runs = [(columns, place) for columns in COLUMNS for place in ("pipe", "terminal")]

    def run(columns: int, place: str) -> str:
        with tempfile.TemporaryDirectory(prefix="kubeqos-") as folder:
            prepare(Path(folder))
            cluster = env.get("CLUSTER", "")
            asked = [word.replace("FOLDER", folder).replace("CLUSTER", cluster) for word in words.split()]
            text = (piped if place == "pipe" else on_terminal)(asked, env, columns, until=until)
            for path, name in (
                (folder, "FOLDER"),
                (cluster, "CLUSTER"),
                (str(ROOT), "SOURCES"),
            ):
                text = text.replace(path, name) if path else text
            return text

    with ThreadPoolExecutor(1 if "CLUSTER" in env else len(runs)) as pool:
        texts = list(pool.map(run, *zip(*runs, strict=True)))
    variants: dict[str, list[str]] = {}
    for (columns, place), text in zip(runs, texts, strict=True):
        for mask, instead in MASKS:
            text = mask.sub(instead, text)
        variants.setdefault(text, []).append(f"{columns} {place}")
    told = [f"=== {', '.join(names)}\n{text}" for text, names in variants.items()]
    return f"$ kubeqos {words}\n" + "".join(told)


def compare(
    name: str, words: str, env: dict[str, str], until: str = "", prepare: Prepare = lambda folder: None
) -> None:
    """Hold a command against its file; `until` says which text of a program that runs on is the last one wanted."""
    path = FOLDER / f"{name}.txt"
    found = recorded(words, env, until, prepare)
    if os.environ.get("KUBEQOS_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()
