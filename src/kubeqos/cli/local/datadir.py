"""The option that says which cluster on this machine is meant: for `up`, `down`, `status`, `demo` and plugins."""

from __future__ import annotations

from pathlib import Path

import click

from kubeqos.cluster.instance import DEFAULT_DATA_DIR

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    envvar="KUBEQOS_DATA_DIR",
    callback=lambda _context, _option, value: value.expanduser(),
    help="Where the cluster keeps everything.",
)
