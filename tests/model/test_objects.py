"""Views look at what Go clients write: a list that is not set is null there, from bytes as from a tree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeqos.errors import InputError
from kubeqos.model.objects import NodeView, PodView, View
from kubeqos.rules.storage import CsiNodeView


@pytest.mark.parametrize(
    ("view", "raw"),
    [
        (CsiNodeView, {"metadata": {"name": "n"}, "spec": {"drivers": None}}),
        (PodView, {"metadata": {"name": "p", "labels": None}, "spec": {"containers": None, "tolerations": None}}),
        (NodeView, {"metadata": {"name": "n"}, "spec": {"taints": None}, "status": {"conditions": None}}),
    ],
)
def test_null_is_not_set(view: type[View], raw: dict[str, Any]) -> None:
    assert view.read(json.dumps(raw).encode()) == view.of(raw)


def test_what_is_wrong_is_told_with_its_place() -> None:
    with pytest.raises(InputError) as told:
        PodView.read(b'{"spec": {"containers": "none"}}')
    assert told.value.where == "spec.containers"
