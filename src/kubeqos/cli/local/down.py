"""`kubeqos down`: stop the cluster that `kubeqos up` started."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cluster.instance import Instance, process_lives
from kubeqos.errors import KubeqosError

_STOP_SECONDS = 60.0


@click.command("down")
@data_dir_option
@click.option("--delete", is_flag=True, help="Delete the cluster's data as well.")
def command(data_dir: Path, delete: bool) -> None:
    """Stop the cluster and, with --delete, forget everything in it."""
    instance = Instance(data_dir)
    running = instance.running()
    if running is None:
        click.echo("nothing is running", err=True)
    else:
        click.echo(f"stopping process {running.pid}", err=True)
        os.kill(running.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while process_lives(running.pid):
            if time.monotonic() > deadline:
                raise KubeqosError(
                    f"process {running.pid} did not stop within {_STOP_SECONDS:.0f} s", where=str(instance.log_file)
                )
            time.sleep(0.05)
        click.echo("stopped")
    if delete and data_dir.exists():
        instance.prepare()  # refuses a directory that is not a cluster's
        # The volume of a container cannot go itself, only what is in it.
        for gone in data_dir.iterdir() if data_dir.is_mount() else (data_dir,):
            shutil.rmtree(gone) if gone.is_dir() and not gone.is_symlink() else gone.unlink()
        click.echo(f"deleted {data_dir}")
