"""The entry point: one click application whose subcommands are imported only when they are called.

Installed twice, as `kubeqos` and as the kubectl plugin `kubectl-qos`. Every error ends in one funnel that
prints what, where and what to do; a traceback never reaches a user.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos import __version__
from kubeqos.errors import KubeqosError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Mapping[str, tuple[str, str]] = {
    "up": ("kubeqos.cli.local.up", "Start a cluster on this machine."),
    "down": ("kubeqos.cli.local.down", "Stop the cluster on this machine."),
    "status": ("kubeqos.cli.local.status", "Show whether the cluster on this machine runs."),
    "demo": ("kubeqos.cli.local.demo", "Walk through the five proposals on the cluster on this machine."),
    "classify": (
        "kubeqos.cli.rehearse.classify",
        "Show a pod's QoS class, effective resources, cgroup values and classes.",
    ),
    "check": ("kubeqos.cli.rehearse.check", "Check a set of manifests together, as a server would."),
    "convert": (
        "kubeqos.cli.rehearse.convert",
        "Turn manifests with class fields into those of a stock cluster, and back.",
    ),
    "resctrl": ("kubeqos.cli.local.resctrl", "Show cache and memory bandwidth by class, as resctrl has it."),
    "classes": ("kubeqos.cli.inspect.classes", "Show QoS classes: capacity and use over all nodes."),
    "quota": ("kubeqos.cli.inspect.quota", "Show quotas as bars, with their scopes and classes."),
    "describe": ("kubeqos.cli.inspect.describe", "Describe a node, a pod or a quota, with classes."),
    "why": ("kubeqos.cli.inspect.why", "Tell why a pod is where it is, waits, failed or was evicted."),
    "story": ("kubeqos.cli.inspect.story", "Tell what the node of a pod did for it, step by step."),
    "map": ("kubeqos.cli.inspect.map", "Draw a node's NUMA nodes, caches and cores with their owners."),
    "podresources": (
        "kubeqos.cli.inspect.podresources",
        "Show what a node's containers were given, and what it could give.",
    ),
    "dashboard": ("kubeqos.cli.inspect.dashboard", "Show the cluster live, in a browser."),
    "top": ("kubeqos.cli.inspect.top", "Show what nodes, pods and classes use."),
    "autoscale": (
        "kubeqos.cli.rehearse.autoscale",
        "Decide how many nodes of which group a cluster needs, its QoS classes included.",
    ),
    "simulate": ("kubeqos.cli.rehearse.simulate", "Rehearse a change on a copy of the cluster."),
    "import": ("kubeqos.cli.rehearse.importing", "Turn the nodes and pods of a real cluster into a scenario."),
    "defrag": ("kubeqos.cli.change.defrag", "Plan which pods to move so that a node's free CPUs lie together."),
    "edit": ("kubeqos.cli.change.edit", "Edit an object in your editor; keeps the fields that kubectl does not know."),
    "rollout": ("kubeqos.cli.change.rollout", "Roll a deployment back to an earlier revision, classes included."),
    "bench": ("kubeqos.cli.bench", "Measure this machine, beside the targets."),
    "apiserver": ("kubeqos.cli.parts.apiserver", "Run the API server alone."),
    "plugin": ("kubeqos.cli.extend.plugin", "Run a built-in resource plugin, or look into it."),
    "qrm": ("kubeqos.cli.extend.qrm", "Make and test resource plugins."),
    "controllers": ("kubeqos.cli.parts.controllers", "Run the controllers alone, against any API server."),
    "install": ("kubeqos.cli.stock.install", "Install kubeqos into a Kubernetes cluster, or bring it up to date."),
    "doctor": ("kubeqos.cli.stock.doctor", "Tell what a Kubernetes cluster or a node lacks for kubeqos."),
    "uninstall": ("kubeqos.cli.stock.uninstall", "Take kubeqos out of a Kubernetes cluster."),
    "agent": ("kubeqos.cli.parts.agent", "Give the pods of a stock node their QoS classes, through NRI."),
    "controller": ("kubeqos.cli.parts.controller", "Give a stock Kubernetes cluster QoS classes, quotas and webhooks."),
    "scheduler": ("kubeqos.cli.parts.scheduler", "Run the scheduler alone, against any API server."),
    "cci": ("kubeqos.cli.extend.cci", "Write, check and inspect compute drivers and their claims."),
    "driver": ("kubeqos.cli.extend.driver", "Run a built-in compute driver."),
    "provider": ("kubeqos.cli.extend.provider", "Make and test class providers."),
    "completion": ("kubeqos.cli.completion", "Print a script that completes kubeqos in a shell."),
    "node": ("kubeqos.cli.parts.node", "Run a node agent, on a container runtime or on a simulated machine."),
    "relay": ("kubeqos.cli.parts.relay", "Give any container runtime QoS-class resources."),
    "relay-hook": ("kubeqos.cli.parts.relay_hook", "Print the OCI hook that lets no container run outside its class."),
    "runtime": ("kubeqos.cli.parts.runtime", "Run or inspect a simulated container runtime."),
    "version": ("kubeqos.cli.version", "Show the version of this program and of the API server."),
}

TASKS: Mapping[str, tuple[str, ...]] = {
    "A cluster on this machine": ("up", "status", "resctrl", "demo", "down"),
    "Ask a cluster": ("why", "story", "describe", "top", "map", "podresources", "classes", "quota", "dashboard"),
    "Change a cluster": ("edit", "rollout", "defrag"),
    "Try before you apply": ("check", "classify", "convert", "simulate", "autoscale", "import"),
    "Run a part alone": ("apiserver", "controllers", "scheduler", "node", "relay", "relay-hook", "runtime"),
    "Use a Kubernetes cluster": ("doctor", "install", "uninstall", "controller", "agent"),
    "Extend it": ("plugin", "qrm", "driver", "cci", "provider"),
    "Other": ("bench", "completion", "version"),
}
"""The commands by what one wants to do, in the order in which `--help` lists them."""


class LazyGroup(click.Group):
    """Lists commands from the table and imports a command's module when it is invoked."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the command that was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=COMMANDS[name][1]) for name in sorted(COMMANDS) if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = {name for names in TASKS.values() for name in names}
        rest = tuple(name for name in self.list_commands(ctx) if name not in told)
        width = max(map(len, COMMANDS))
        for task, listed in {**TASKS, "Other": (*TASKS["Other"], *rest)}.items():
            with formatter.section(task):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in listed if name in COMMANDS])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubeqos")
def application() -> None:
    """QoS-aware resource management for Kubernetes."""


def main() -> None:
    """Run the command line and turn every outcome into an exit code."""
    # Read when gRPC is imported: we never fork without exec, and its own log is not for users.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Read when numpy is imported: nothing here multiplies matrices, and a pool of idle threads takes its time to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    program = "kubectl qos" if Path(sys.argv[0]).name.startswith("kubectl-") else "kubeqos"
    try:
        outcome = application.main(prog_name=program, standalone_mode=False)
        sys.exit(outcome if isinstance(outcome, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        # The reader went away (`| head`): not our error, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        known = _known(error)
        if known is None and os.environ.get("KUBEQOS_DEBUG"):
            raise
        said = _worded(known) if known is not None else _unexpected(error)
        print("\n".join(said), file=sys.stderr)
        sys.exit(1)


def _known(error: BaseException) -> KubeqosError | None:
    """The error to tell, also where several tasks failed together."""
    if isinstance(error, KubeqosError):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for each in inner if (found := _known(each)) is not None), None)


def _unexpected(error: BaseException) -> list[str]:
    """A bug of ours, in a form that can be reported."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return [
        f"Error: something went wrong inside kubeqos: {type(error).__name__}: {error}",
        "  set KUBEQOS_DEBUG=1 to see where, and please report it",
    ]


def _worded(error: KubeqosError) -> list[str]:
    """An error as the user reads it; what an API server refused is said as kubectl says it."""
    first, *rest = error.lines()
    reason = getattr(error, "reason", "")
    return [f"Error from server ({reason}): {first}" if reason else f"Error: {first}", *rest]


if __name__ == "__main__":
    main()
