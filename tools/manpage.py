"""The manual page `kubeqos(1)`, from the commands themselves: `tools.docgen` writes it to docs/kubeqos.1."""

from __future__ import annotations

import importlib
import re

import click

from kubeqos import __version__
from kubeqos.cli.main import COMMANDS, TASKS

FILES = (
    ("~/.kubeqos", "The cluster that `kubeqos up` runs: its objects, certificates and kubeconfig."),
    ("~/.kube/config", "Which cluster other commands talk to, as kubectl reads it; KUBECONFIG names another."),
)
_USAGE = ".I command\n[\\fIoption\\fR ...]"
ENVIRONMENT = (
    ("KUBECONFIG", "The kubeconfig to use."),
    ("NO_COLOR", "No colour, also on a terminal."),
    ("KUBEQOS_DEBUG", "Where something goes wrong inside, show where."),
)


def manual() -> str:
    """The whole page in man macros."""
    parts = [
        f'.TH KUBEQOS 1 "" "kubeqos {__version__}" "User Commands"',
        ".SH NAME\nkubeqos \\- QoS-aware resource management for Kubernetes",
        f".SH SYNOPSIS\n.B kubeqos\n{_USAGE}\n.br\n.B kubectl qos\n{_USAGE}",
        ".SH DESCRIPTION\n"
        + _text(
            "Pod QoS classes, scoped quotas, QoS-class resources, resource plugins and compute drivers as one system: "
            "on a cluster on this machine, or beside an unmodified Kubernetes. Commands that talk to a cluster take "
            "kubectl's --kubeconfig, --context, -n, -A and -l."
        ),
        ".SH COMMANDS",
        *(_task(task, names) for task, names in TASKS.items()),
        ".SH FILES\n" + _pairs(FILES),
        ".SH ENVIRONMENT\n" + _pairs(ENVIRONMENT),
        ".SH EXIT STATUS\n" + _text("0 on success, 1 where something is wrong, 2 for a wrong command line."),
        ".SH SEE ALSO\n.BR kubectl (1)",
    ]
    return "\n".join(parts) + "\n"


def _task(task: str, names: tuple[str, ...]) -> str:
    return "\n".join([f".SS {_escaped(task)}", *(_command(name) for name in names if name in COMMANDS)])


def _command(name: str) -> str:
    found: click.Command = importlib.import_module(COMMANDS[name][0]).command
    usage = " ".join(found.collect_usage_pieces(click.Context(found, info_name=name)))
    about = " ".join(re.split(r"\n\s*\n", (found.help or COMMANDS[name][1]).replace("\b", "").strip())[0].split())
    below = f" Subcommands: {', '.join(sorted(found.commands))}." if isinstance(found, click.Group) else ""
    return f".TP\n.B {_escaped(name)}\n.I {_escaped(usage)}\n.br\n{_text(about + below)}"


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f".TP\n.B {_escaped(name)}\n{_text(about)}" for name, about in pairs)


def _text(words: str) -> str:
    """A line of text; one that would begin like a macro does not."""
    escaped = _escaped(words)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(words: str) -> str:
    return words.replace("\\", "\\e").replace("-", "\\-").replace("`", "").replace("…", "...")
