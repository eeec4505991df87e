"""Completion: `kubeqos completion SHELL` prints click's script, `kubectl_complete-qos` answers kubectl.

kubectl runs an executable of that name on the PATH with the words typed so far, the last being the one to
complete, and reads `value<TAB>description` lines and a directive (a bit field) on the last line, as its own
hidden `__complete` prints them (kubectl, Plugins: Using the kubectl-completion for plugins).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from kubeqos.errors import InputError

DEFAULT, NO_FILES = 0, 4
_FILES = frozenset({"file", "dir"})


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes kubeqos in a SHELL.

    For example `source <(kubeqos completion bash)`. For `kubectl qos`, kubectl's own completion asks
    `kubectl_complete-qos`, which is installed beside it.
    """
    from kubeqos.cli.main import application

    kind = get_completion_class(shell)
    if kind is None:
        raise InputError(f"no completion for {shell}")
    click.echo(kind(application, {}, "kubeqos", "_KUBEQOS_COMPLETE").source())


def kubectl_main() -> None:
    """The executable `kubectl_complete-qos`."""
    click.echo(answer(sys.argv[1:]))


def answer(words: Sequence[str]) -> str:
    """What kubectl is told about the words typed after `kubectl qos`."""
    from kubeqos.cli.main import application

    *before, incomplete = words or [""]
    found = ShellComplete(application, {}, "kubectl qos", "").get_completions(list(before), incomplete)
    plain = [item for item in found if item.type not in _FILES]
    directive = DEFAULT if len(plain) < len(found) else NO_FILES
    return "\n".join([*map(_line, plain), f":{directive}"])


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)
