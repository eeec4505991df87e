"""`kubeqos install`: kubeqos for an existing Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path

import click

from kubeqos import __version__


@click.command("install")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("--image", default=f"kubeqos:{__version__}", show_default=True, help="The image of the Containerfile.")
@click.option("--classes", type=click.Path(path_type=Path), help="The classes of the nodes (classes.yaml).")
@click.option("--dry-run", is_flag=True, help="Print the manifests and change nothing.")
def command(kubeconfig: Path | None, context: str | None, image: str, classes: Path | None, dry_run: bool) -> None:
    """Install kubeqos into a Kubernetes cluster, or bring it up to date.

    Our kinds, a controller (Deployment) and an agent on each node (DaemonSet), in the namespace kubeqos-system.
    """
    from kubeqos.codec import encode_yaml
    from kubeqos.errors import InputError
    from kubeqos.stock import installation

    text = None
    if classes is not None:
        from kubeqos.cri.enforcing.host import V2
        from kubeqos.cri.providers.config import parse_classes

        try:
            text = classes.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the classes: {error}", where=str(classes)) from error
        parse_classes(text, str(classes), V2)  # what no node could take is not given to any
    if dry_run:
        click.echo("---\n".join(map(encode_yaml, installation.objects(image, text or "resources: {}\n"))), nl=False)
        return

    import asyncio

    asyncio.run(_install(kubeconfig, context, image, text))


async def _install(kubeconfig: Path | None, context: str | None, image: str, classes: str | None) -> None:
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.installer import install

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    try:
        async for said in install(api, image, classes):
            click.echo(said)
    finally:
        await api.close()
