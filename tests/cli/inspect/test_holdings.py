"""What a pod holds, as `classes`, `describe` and `why` show it."""

from __future__ import annotations

from typing import Any

from kubeqos.cli.inspect.classes import summed
from kubeqos.cli.inspect.describe import node_text
from kubeqos.cli.inspect.usage import class_use
from kubeqos.cli.inspect.why import as_text, story
from kubeqos.model.objects import PodView

NODE: dict[str, Any] = {
    "metadata": {"name": "n1"},
    "status": {
        "qosResources": {
            "containerQoSResources": [
                {"name": "rdt", "classes": [{"name": "gold", "capacity": 2}, {"name": "exclusive", "capacity": 1}]}
            ]
        }
    },
}
MOVING: dict[str, Any] = {
    "metadata": {"name": "mover", "namespace": "default", "uid": "u1"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "main", "resources": {"qosResources": [{"name": "rdt", "class": "exclusive"}]}}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "qosResources": [{"name": "rdt", "class": "gold"}]}],
    },
}


def test_a_pod_between_two_classes_is_shown_in_both() -> None:
    rows = [line.split() for line in summed(class_use([NODE], [MOVING])).splitlines()]
    assert ["rdt", "gold", "container", "1", "2", "1", "1"] in rows
    assert ["rdt", "exclusive", "container", "1", "1", "1", "0"] in rows
    text = node_text(NODE, [PodView.of(MOVING)])
    assert "gold (1/2)  exclusive (1/1)" in text
    assert "main:rdt=gold+exclusive" in text


def test_why_tells_what_a_pod_holds() -> None:
    assert "  holds      main:rdt=gold+exclusive" in as_text(story(MOVING, [])).splitlines()
    ended = {**MOVING, "status": {**MOVING["status"], "phase": "Failed"}}
    assert "holds" not in as_text(story(ended, []))
