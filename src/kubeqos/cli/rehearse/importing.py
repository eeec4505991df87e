"""`kubeqos import`: the nodes and pods of a real cluster as a scenario for `kubeqos simulate` and the dashboard."""

from __future__ import annotations

import click

from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit
from kubeqos.manifests import read


@click.command("import")
@asks()
@click.option(
    "-f", "--filename", "files", multiple=True, help="What `kubectl get nodes,pods -A -o json` printed; - for a pipe."
)
@click.option("--duration", default="1h", show_default=True, help="How long the scenario goes on.")
@click.option("-o", "--output", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(target: Target, files: tuple[str, ...], duration: str, form: str) -> None:
    """Print a scenario in which everything that runs in a cluster is where it is now.

    Without -f it is the cluster of the kubeconfig, of any kind: nodes and pods are read, nothing is changed. Of pods
    only what decides where they can run is kept. What a scenario cannot hold is said on standard error.
    """
    from kubeqos.simulation.importing import imported

    if files:
        objects = [manifest.raw for manifest in read(files)]
    else:
        objects = [
            {**raw, "kind": kind}
            for kind, path in (("Node", "/api/v1/nodes"), ("Pod", "/api/v1/pods"))
            for raw in target.api.items(path)
        ]
    made = imported(objects, duration=duration)
    for line in made.lost:
        click.echo(f"not carried: {line}", err=True)
    emit(made.document, form)
