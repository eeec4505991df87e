"""`kubeqos install`: kubeqos for an existing Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path

import click

from kubeqos import __version__
from kubeqos.stock.names import CONTAINERD_CONFIG, RESTART_CONTAINERD


@click.command("install")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("--image", default=f"kubeqos:{__version__}", show_default=True, help="The image of the Containerfile.")
@click.option("--classes", type=click.Path(path_type=Path), help="The classes of the nodes (classes.yaml).")
@click.option("--node-config", type=click.Path(path_type=Path), help="A NodeConfiguration: nodes hand out cores, too.")
@click.option(
    "--runtime-config",
    metavar="FILE",
    is_flag=False,
    flag_value=str(CONTAINERD_CONFIG),
    help="Let agents turn on the validator of required plugins in containerd's settings; "
    f"where these are on the nodes is {CONTAINERD_CONFIG} unless given, and an empty text lets them not.",
)
@click.option(
    "--restart-runtime",
    metavar="COMMAND",
    is_flag=False,
    flag_value=RESTART_CONTAINERD,
    help="Let them restart containerd for it, too, by this command; by systemd unless given.",
)
@click.option("--dry-run", is_flag=True, help="Print the manifests and change nothing.")
@click.option("--chart", type=click.Path(path_type=Path), help="Write a Helm chart into this folder; change nothing.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    image: str,
    classes: Path | None,
    node_config: Path | None,
    runtime_config: str | None,
    restart_runtime: str | None,
    dry_run: bool,
    chart: Path | None,
) -> None:
    """Install kubeqos into a Kubernetes cluster, or bring it up to date.

    Our kinds, a controller and a scheduler (Deployments) and an agent on each node (DaemonSet), in the namespace
    kubeqos-system.
    """
    from kubeqos.codec import encode_yaml
    from kubeqos.stock import installation

    # What no node could take is not given to any.
    settings = {}
    if classes is not None:
        from kubeqos.cri.enforcing.host import V2
        from kubeqos.cri.providers.config import parse_classes

        settings["kubeqos-classes"] = _text(classes)
        parse_classes(settings["kubeqos-classes"], str(classes), V2)
    if node_config is not None:
        from kubeqos.stock.cores.assembly import read_configuration

        settings["kubeqos-node-configuration"] = _text(node_config)
        read_configuration(node_config, "any")
    if runtime_config is not None:
        settings[installation.RUNTIME] = _runtime(runtime_config, restart_runtime)
    elif restart_runtime is not None:
        raise click.UsageError("--restart-runtime is for --runtime-config")
    if chart is not None:
        _write_chart(chart, image, settings)
        return
    if dry_run:
        made = installation.objects(image, {**installation.EMPTY, **settings})
        click.echo("---\n".join(map(encode_yaml, made)), nl=False)
        return

    import asyncio

    asyncio.run(_install(kubeconfig, context, image, settings))


def _runtime(config: str, restart: str | None) -> str:
    """The file `runtime.yaml`; empty where agents are to change nothing."""
    from kubeqos.codec import encode_yaml
    from kubeqos.stock.validator import parse_settings

    if not config:
        return ""
    text = encode_yaml({"config": config, **({"restart": restart} if restart else {})})
    parse_settings(text, "--runtime-config")
    return text


def _write_chart(folder: Path, image: str, settings: dict[str, str]) -> None:
    from kubeqos.errors import InputError
    from kubeqos.stock.chart import chart

    for name, text in chart(__version__, image, settings):
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        except OSError as error:
            raise InputError(f"cannot write the chart: {error}", where=str(folder / name)) from error
    click.echo(f"wrote a chart; install it by: helm install qos {folder}")


def _text(path: Path) -> str:
    from kubeqos.errors import InputError

    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path.name}: {error}", where=str(path)) from error


async def _install(kubeconfig: Path | None, context: str | None, image: str, settings: dict[str, str]) -> None:
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.installer import install

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    try:
        async for said in install(api, image, settings):
            click.echo(said)
    finally:
        await api.close()
