"""`kubeqos edit`: an object in an editor and back, whole, so that no field is lost on the way.

`kubectl edit` computes a patch by its compiled types and gives up on a field that they lack (`qosResources`). Here the
object that comes back from the editor is the object that is sent, at the version that was read.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import click

from kubeqos.cli.change.resources import named
from kubeqos.cli.connection import Target, asks
from kubeqos.client.errors import ApiError
from kubeqos.codec import JsonObject, YamlError, decode_yaml_all, encode_yaml
from kubeqos.errors import InputError, KubeqosError

_HEADER = (
    "# Edit the object below. Lines that begin with # are ignored, and an empty file cancels the edit.\n"
    "# If the server refuses what you save, this file is opened again with its reasons.\n#\n"
)


class EditFailed(KubeqosError):
    """What was written in the editor could not be sent."""


@click.command("edit")
@asks("namespace")
@click.option("--subresource", default="", metavar="NAME", help="Edit this part: resize for a running pod's classes.")
@click.argument("words", nargs=-1, required=True, metavar="TYPE NAME | TYPE/NAME")
def command(target: Target, subresource: str, words: tuple[str, ...]) -> None:
    """Edit an object of the API server in your editor ($KUBE_EDITOR, $EDITOR, else vi).

    Unlike `kubectl edit` it keeps and changes QoS classes in pods, templates, quotas and limit ranges.
    """
    found = named(target, words)
    path = f"{found.path}/{subresource}" if subresource else found.path
    obj = target.api.get(found.path)
    (obj.get("metadata") or {}).pop("managedFields", None)
    with tempfile.NamedTemporaryFile("w", prefix="kubeqos-edit-", suffix=".yaml", delete=False) as file:
        copy = Path(file.name)
    warnings = _edit(target, path, obj, copy)
    copy.unlink()
    if warnings is None:
        click.echo("Edit cancelled, no changes made.", err=True)
        return
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"{found.shown} edited")


def _edit(target: Target, path: str, obj: JsonObject, copy: Path) -> list[str] | None:
    """Open the editor until the server takes what comes back; None when nothing was changed."""
    text, reasons, before = encode_yaml(obj), "", ""
    while True:
        copy.write_text(_HEADER + reasons + text)
        _open(copy)
        text = _uncommented(copy.read_text())
        if not text.strip():
            return None
        if reasons and text == before:
            raise EditFailed(
                reasons.replace("# ", "").rstrip("#\n"),
                where=str(copy),
                remedy="your changes are kept in that file: mend it and apply it, or edit again",
            )
        try:
            edited = _read(text, copy)
            return None if edited == obj else target.api.write("PUT", path, edited)[1]
        except (ApiError, InputError) as error:
            reasons, before = "".join(f"# {line}\n" for line in str(error).splitlines()) + "#\n", text


def _open(file: Path) -> None:
    editor = os.environ.get("KUBE_EDITOR") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(file)], check=False)
    except OSError as error:
        remedy = "set KUBE_EDITOR or EDITOR to a program that is installed"
        raise EditFailed(f"cannot run the editor {editor}: {error.strerror}", remedy=remedy) from error
    if done.returncode:
        raise EditFailed(f"the editor {editor} ended with {done.returncode}", remedy="nothing was changed")


def _uncommented(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _read(text: str, file: Path) -> JsonObject:
    try:
        documents = list(decode_yaml_all(text))
    except YamlError as error:
        raise InputError(f"not YAML: {error}", where=str(file), remedy="mend it") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("not one object", where=str(file), remedy="leave exactly one object in the file")
    return documents[0]
