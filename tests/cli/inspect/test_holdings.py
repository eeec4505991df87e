"""What a pod holds, as `classes`, `describe` and `why` show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.cci.manager import CciManager
from kubeqos.cli.inspect.classes import summed
from kubeqos.cli.inspect.describe import node_text
from kubeqos.cli.inspect.why import as_text
from kubeqos.model.annotations.published import Kept
from kubeqos.model.hardware.named import kep80
from kubeqos.model.objects import NodeView, PodView
from kubeqos.node.api.nodestatus import map_annotations
from kubeqos.plugins.managers import Grant
from kubeqos.topology.alignment.hints import ANYWHERE
from kubeqos.views.usage import class_use, holders
from kubeqos.views.why import story
from tests.cci.test_properties import Direct
from tests.cci.world import exclusive
from tests.cci.world import pod as claiming

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


def test_why_tells_what_classes_count_against_and_what_the_runtime_gave() -> None:
    given = [{"name": "rdt", "class": "gold"}, {"name": "blockio", "class": "slow"}, {"name": "numa", "class": ""}]
    status = {
        **MOVING["status"],
        "containerStatuses": [{"name": "main", "qosResources": given}],
        "qosResources": [{"name": "network", "class": "normal"}],
    }
    lines = as_text(story({**MOVING, "status": status}, [], NODE)).splitlines()
    assert "  counts     on n1: rdt=exclusive 1 of 1, rdt=gold 1 of 2" in lines
    assert [line for line in lines if line.startswith("  default ")] == [
        "  default    network=normal, by the runtime; counts against nothing",
        "  default    main: blockio=slow, by the runtime; counts against nothing",
        "  default    main: numa=<system default>, by the runtime; counts against nothing",
    ]


async def test_why_tells_which_of_its_own_cpus_a_container_runs_on(tmp_path: Path) -> None:
    """Three threads of a claim own two cores: the fourth is nobody's."""
    manager = CciManager(kep80(), tmp_path)
    Direct(manager, kep80())
    owner = claiming("owner", exclusive(3))
    [(ref, _)] = owner.containers()
    assert isinstance(await manager.allocate(owner, ref, ANYWHERE), Grant)
    shown = map_annotations(kep80(), [manager], [owner], Kept(), lambda _: Grant())
    lines = as_text(story(owner.raw, [], {"metadata": {"name": "n1", "annotations": shown}})).splitlines()
    assert "  cpus       main: 0-3 (its own; nobody runs on 3)" in lines


def test_who_holds_a_class_and_how_he_stands_to_it() -> None:
    waits = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    mover = {**MOVING, "status": {**MOVING["status"], "conditions": [waits]}}
    found = list(holders([PodView.of(mover)], {"n1": NodeView.of(NODE)}))
    assert [(one.pod, one.cls, one.count, one.standing) for one in found] == [
        ("mover", "exclusive", 1, "waits for it (Deferred)"),
        ("mover", "gold", 1, "leaves it"),
    ]
    still = {**MOVING, "spec": {**MOVING["spec"]}, "status": {"phase": "Running"}}
    assert [one.standing for one in holders([PodView.of(still)], {})] == ["has it"]


def test_why_tells_how_a_container_ended_the_last_time() -> None:
    limited = {"name": "main", "resources": {"limits": {"memory": "64Mi"}}}
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    raw = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [limited]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "restartCount": 2, "state": {"running": {}}, "lastState": killed}],
        },
    }
    facts = story(raw, [])
    line = "main: running, 2 restarts, the last ended OOMKilled exit code 137: over its memory limit of 64Mi"
    assert f"  container  {line}" in as_text(facts).splitlines()
    killed["terminated"]["message"] = "the node was out of memory, and oom_score 1335 the highest of 3 containers"
    assert "its memory limit" not in as_text(story(raw, []))
