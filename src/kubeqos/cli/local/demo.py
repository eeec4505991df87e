"""`kubeqos demo`: each proposal's story against the running cluster, with every command shown and every
result checked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.local.stories import STAGE, STORIES, Step, Story
from kubeqos.cluster.instance import Instance
from kubeqos.errors import ConfigurationError

_STEP_SECONDS = 20.0
_NAMES = tuple(story.name for story in STORIES)


@click.command("demo")
@data_dir_option
@click.option("--pause", is_flag=True, help="Wait for Enter after every step.")
@click.option("--story", "wanted", type=click.Choice(_NAMES), multiple=True, help="Only this one.")
def command(data_dir: Path, pause: bool, wanted: tuple[str, ...]) -> None:
    """Walk through the five proposals on the cluster that `kubeqos up` started."""
    instance = Instance(data_dir)
    running = instance.running()
    if running is None:
        raise ConfigurationError(
            "no cluster is running", where=str(data_dir), remedy=f"start one: kubeqos up --detach{instance.option}"
        )
    if not running.stories:
        raise ConfigurationError(
            f"the stories are played on the nodes {', '.join(sorted(STAGE))}, and this cluster has others",
            where=str(data_dir),
            remedy="start a second cluster beside it: kubeqos up --detach --data-dir DIR --port 0",
        )
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        click.echo("kubectl is not on PATH: its commands below are carried out by kubeqos itself.")
    stage = Stage(instance, kubectl, pause)
    stories = [story for story in STORIES if not wanted or story.name in wanted]
    failed = [story.name for story in stories if not stage.play(story)]
    click.echo()
    if failed:
        click.echo(f"{len(failed)} of {len(stories)} stories went wrong: {', '.join(failed)}")
        raise click.exceptions.Exit(1)
    told = "The story went as its proposal promises." if len(stories) == 1 else ""
    click.echo(told or f"All {len(stories)} stories went as the proposals promise.")


class Stage:
    """Where stories are played: one cluster, a namespace for each story."""

    def __init__(self, instance: Instance, kubectl: str | None, pause: bool) -> None:
        self._option = instance.option
        self._kubeconfig = instance.kubeconfig
        self._kubectl = kubectl
        self._pause = pause
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(instance.kubeconfig),
            "KUBECACHEDIR": str(instance.data_dir / "kubectl-cache"),
        }

    def play(self, story: Story) -> bool:
        """Tell one story; whether everything came as it must."""
        click.echo(f"\n{'═' * 78}\n{story.name}: {story.title}\n{'═' * 78}")
        namespace = f"demo-{story.name.lower()}"
        self._run(["kubectl", "delete", "namespace", namespace, "--ignore-not-found", "--wait"], "")
        self._run(["kubectl", "create", "namespace", namespace], "")
        try:
            return all(self._step(step, namespace) for step in story.steps)
        finally:
            self._run(["kubectl", "delete", "namespace", namespace, "--wait=false"], "")

    def _step(self, step: Step, namespace: str) -> bool:
        shown = step.command.format(option=self._option)
        click.echo(f"\n{step.say}")
        if step.manifest:
            click.echo("\n".join(f"  | {line}" for line in step.manifest.strip().splitlines()))
        click.echo(f"  $ {shown}")
        words = self._words(shlex.split(shown), namespace)
        deadline = time.monotonic() + _STEP_SECONDS
        while True:
            code, output = self._run(words, step.manifest)
            missing = [pattern for pattern in step.expect if not re.search(pattern, output)]
            good = not missing and (code != 0) == step.refused
            # Only looking may be repeated; what changes something is done once.
            if good or step.manifest or not _looks(shown) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        click.echo("\n".join(f"  {line}" for line in output.strip().splitlines()))
        if not good:
            click.echo(f"  WRONG: expected {' and '.join(missing) or 'the other exit code'}")
        elif self._pause:
            click.pause("  (Enter)")
        return good

    def _words(self, words: list[str], namespace: str) -> list[str]:
        if words[0] == "kubectl":
            return ["kubectl", *words[1:], "-n", namespace]
        program = [sys.executable, "-m", "kubeqos.cli.main", *words[1:]]
        return [*program, "-n", namespace] if words[1] in ("why", "describe", "quota") else program

    def _run(self, words: list[str], manifest: str) -> tuple[int, str]:
        if words[0] == "kubectl" and self._kubectl is None:
            from kubeqos.cli.local import standin

            return standin.run(self._kubeconfig, words[1:], manifest)
        done = subprocess.run(
            words, env=self._environment, input=manifest, capture_output=True, text=True, timeout=90, check=False
        )
        return done.returncode, done.stdout + done.stderr


def _looks(command: str) -> bool:
    return command.startswith(("kubectl get", "kubeqos why", "kubeqos map", "kubeqos describe", "kubeqos quota"))
