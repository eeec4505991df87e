"""Names as people give them to commands: alone, or with their kind as kubectl prints it."""

from __future__ import annotations

import click
import pytest

from kubeqos.cli.names import plain


def read(said: str | None) -> str | None:
    command = click.Command("why")
    return plain("pod")(click.Context(command), click.Argument(["name"]), said)


@pytest.mark.parametrize("said", ["web", "pod/web", "pods/web", "po/web", "Pod/web"])
def test_a_pod_by_any_spelling(said: str) -> None:
    assert read(said) == "web"


@pytest.mark.parametrize("said", ["deployment/web", "pod/", "/web", "default/web", ""])
def test_another_kind_or_no_name_is_one_clear_line(said: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{said}' is no name of a pod: write NAME or pod/NAME"):
        read(said)


def test_no_name_stays_none() -> None:
    assert read(None) is None
