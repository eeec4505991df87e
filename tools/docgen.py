"""Writes the reference pages under docs/reference and the man page from the code.

    python -m tools.docgen            write the pages
    python -m tools.docgen --check    say which of them are not what the code says

A test runs the check, so a page never tells what was true once.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from kubeqos.cli.main import COMMANDS
from kubeqos.gates import GATES
from tools.clusterpage import cluster_file
from tools.decisionpage import decisions
from tools.manpage import manual
from tools.nodepage import node_configuration
from tools.proven import proven_on
from tools.schema_proposals import ADDED_FIELDS, ADDED_TYPES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kubeqos"
FOLDER = ROOT / "docs" / "reference"
MANUAL = ROOT / "docs" / "kubeqos.1"
NOTE = "<!-- Written by tools/docgen.py from the code; change it there and run `python -m tools.docgen`. -->"

Row = list[str]


def table(headers: Row, rows: list[Row]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows])


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# -- gates -------------------------------------------------------------------------------------------------------------


def gates() -> str:
    """Every feature gate."""
    rows = [
        [
            code(gate.name),
            gate.stage.value,
            "on" if gate.default else "off",
            ", ".join(map(code, gate.needs)),
            gate.about,
        ]
        for gate in GATES.values()
    ]
    return (
        "# Feature gates\n\n"
        "Set with `--feature-gates A=true,B=false`; `AllAlpha` and `AllBeta` stand for every gate of a stage. A "
        "component run alone has the defaults below; `kubeqos up` turns on what its nodes need.\n\n"
        + table(["gate", "stage", "default", "needs", "what it brings"], rows)
    )


# -- flags -------------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its flags."""
    parts = [
        "# Commands and flags\n\nInstalled as `kubeqos` and as the kubectl plugin `kubectl qos`. Commands that talk to "
        "a cluster take kubectl's `--kubeconfig`, `--context`, `-n`, `-A` and `-l`. No colour in pipes or with "
        "`NO_COLOR`."
    ]
    for name in sorted(COMMANDS):
        found: click.Command = importlib.import_module(COMMANDS[name][0]).command
        parts += _command(found, f"kubeqos {name}")
    return "\n\n".join(parts)


def _command(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"## {path}\n\n{code(usage)}\n\n{_prose(command.help or '')}"
    rows = [
        [code(", ".join(sorted(option.opts + option.secondary_opts, key=len))), _value(option), option.help or ""]
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    if rows:
        yield table(["flag", "value", "about"], rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _command(below, f"{path} {name}")


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    kind = option.type
    shown = "\\|".join(kind.choices) if isinstance(kind, click.Choice) else option.metavar or kind.name
    if isinstance(kind, click.Choice) and type(kind) is not click.Choice:
        shown = kind.get_metavar(option, click.Context(click.Command("")))[1:-1].replace("|", "\\|")
    default = option.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool) and option.show_default
    return f"{shown}, default `{default}`".replace("\\|", "|") if plain and default != "" else shown.replace("\\|", "|")


# -- fields ------------------------------------------------------------------------------------------------------------


def fields() -> str:
    """What the proposals add to the API."""
    parts = [
        "# API fields\n\nWhat kubeqos serves beside Kubernetes' own API. Everything else is as in Kubernetes. "
        "A name in **bold** is required."
    ]
    parts.append("## Added to existing types")
    rows = [
        [code(kind), _field_name(name), code(spec.split()[0]), about]
        for kind, added in ADDED_FIELDS.items()
        for name, spec, about in added
    ]
    parts.append(table(["type", "field", "of type", "about"], rows))
    for kind, (about, members) in ADDED_TYPES.items():
        parts.append(f"## {kind}\n\n{about}")
        parts.append(
            table(
                ["field", "of type", "about"],
                [[_field_name(name), code(spec.split()[0]), text] for name, spec, text in members],
            )
        )
    return "\n\n".join(parts)


def _field_name(name: str) -> str:
    return f"**{code(name[:-1])}**" if name.endswith("!") else code(name)


# -- metrics and events, read from the source --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """Something the code names: where, what, and about it."""

    room: str
    name: str
    kind: str
    about: str


_METRICS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "Summary": "summary",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
    "HistogramMetricFamily": "histogram",
    "gauge": "gauge",
    "counter": "counter",
    "_counted": "counter",
}
_METRIC_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def metrics() -> str:
    """Every metric that a component declares."""
    found = {each for path in _sources() for each in _metrics_in(path)}
    rows = [
        [each.room, code(each.name + ("_total" if each.kind == "counter" else "")), each.kind, each.about]
        for each in sorted(found)
    ]
    return (
        "# Metrics\n\nServed in the Prometheus text format at `/metrics` of each component. Where Kubernetes has a "
        "name for something, that is used.\n\n" + table(["room", "metric", "kind", "about"], rows)
    )


def _metrics_in(path: Path) -> Iterator[Found]:
    for call, text_of in _calls(path):
        kind = _METRICS.get(_called(call))
        words = [text_of(each) for each in call.args[:2]]
        if kind and len(words) == 2 and all(words) and _METRIC_NAME.fullmatch(words[0]):
            yield Found(_room(path), words[0].removesuffix("_total"), kind, words[1])


_TYPES = ("Normal", "Warning")
_WARNING_CALLS = ("record_node", "_record_node", "NodeEvent", "emit", "_emit", "_tell")
_EVENT_CALLS = ("record", "Record", "Tell", "Event", *_WARNING_CALLS)
_REASON = re.compile(r"[A-Z][A-Za-z]{3,}")


def events() -> str:
    """Every reason that an event can have, where the code names it."""
    found = sorted({each for path in _sources() for each in _events_in(path)})
    rows = [[each.room, code(each.name), each.kind] for each in found]
    return (
        "# Events and reasons\n\nReasons of the events that components write; `kubectl get events` and `kubeqos why "
        "POD` show them with their messages. Reasons that a manager or plugin gives for refusing a pod are passed on "
        "as they are and are not listed.\n\n" + table(["room", "reason", "type"], rows)
    )


def _events_in(path: Path) -> Iterator[Found]:
    """Calls of `record` and constructors of events: a reason, beside the words Normal or Warning or their default."""
    for call, text_of in _calls(path):
        if _called(call) not in _EVENT_CALLS or _room(path) in ("store", "client"):
            continue
        if _called(call) == "_tell" and _room(path) != "qrm":  # elsewhere it is no event that is told
            continue
        texts = [text_of(each) for each in (*call.args, *(each.value for each in call.keywords))]
        usual = "Warning" if _called(call) in _WARNING_CALLS or _room(path) == "qrm" else "Normal"
        reason = next((text for text in texts if _REASON.fullmatch(text) and text not in _TYPES), None)
        if reason:
            yield Found(_room(path), reason, next((text for text in texts if text in _TYPES), usual), "")


# -- names -------------------------------------------------------------------------------------------------------------


def names() -> str:
    """Labels and annotations by which components speak to each other."""
    tree = ast.parse((SOURCE / "model" / "annotations" / "wellknown.py").read_text())
    rows = []
    for assigned, about in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(assigned, ast.AnnAssign)
            and isinstance(assigned.value, ast.Constant)
            and isinstance(about, ast.Expr)
            and isinstance(about.value, ast.Constant)
        ):
            rows.append([code(str(assigned.value.value)), " ".join(str(about.value.value).split())])
    return "# Labels and annotations\n\n" + table(["name", "about"], sorted(rows))


# -- the source --------------------------------------------------------------------------------------------------------


def _sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if not path.stem.endswith(("_pb2", "_pb2_grpc"))]


def _calls(path: Path) -> Iterator[tuple[ast.Call, Callable[[ast.expr], str]]]:
    """Every call, with what tells the text of an argument: a word as it stands, or one that has a name there."""
    tree = ast.parse(path.read_text())
    constants = _named(tree.body)
    for scope in ast.walk(tree):
        if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [each for each in ast.walk(scope) if isinstance(each, ast.expr | ast.stmt)]
            named = constants if isinstance(scope, ast.Module) else sorted(constants + _named(inside))
            for call in inside:
                if isinstance(call, ast.Call):
                    yield call, partial(_text, named=named)


def _named(statements: Iterable[ast.AST]) -> list[tuple[int, str, str]]:
    """Texts that are given a name: line, name, text."""
    return [
        (each.lineno, target.id, each.value.value)
        for each in statements
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        for target in each.targets
        if isinstance(target, ast.Name)
    ]


def _text(word: ast.expr, named: list[tuple[int, str, str]]) -> str:
    if isinstance(word, ast.Constant):
        return word.value if isinstance(word.value, str) else ""
    known = [
        text for line, name, text in named if isinstance(word, ast.Name) and name == word.id and line < word.lineno
    ]
    return known[-1] if known else ""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


PAGES: dict[str, Callable[[], str]] = {
    "gates": gates,
    "cli": commands,
    "api": fields,
    "metrics": metrics,
    "events": events,
    "names": names,
    "decisions": lambda: decisions(SOURCE / "model" / "decisions.py", table),
    "cluster-file": lambda: cluster_file(table),
    "node-configuration": lambda: node_configuration(table),
    "proven-on": lambda: proven_on(ROOT / "tests", table),
}


def written(page: str) -> str:
    """A page as it should be."""
    return f"{NOTE}\n\n{PAGES[page]()}\n"


def main(words: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = {FOLDER / f"{page}.md": written(page) for page in PAGES} | {MANUAL: manual()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        name = path.relative_to(ROOT)
        if "--check" in words:
            print(f"{name} is not what the code says: run python -m tools.docgen", file=sys.stderr)
        else:
            path.write_text(wanted[path])
            print(f"wrote {name}")
    return bool(stale) and "--check" in words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
