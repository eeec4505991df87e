"""How much of a pod's memory is protected, from the node's cgroups to what `why` and `describe` print."""

from __future__ import annotations

from pathlib import Path

from kubeqos.cli.inspect.describe import node_text, pod_text
from kubeqos.cli.inspect.why import as_text
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.model.annotations.published import Assignments, Protected, decode_assignments, encode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION
from kubeqos.node.api.nodestatus import map_annotations
from kubeqos.views.why import story
from tests.node.pods import container, pod
from tests.node.world import World

MIB = 1 << 20
SHORT = Protected(120 * MIB, 64 * MIB, "/kubepods has 67108864 effective bytes and its children ask for 125829120")


def test_why_and_describe_say_what_is_protected_and_why_not_more() -> None:
    shown = encode_assignments(Assignments(protected={"default/web": SHORT, "default/db": Protected(MIB, MIB)}))
    assert decode_assignments(shown).protected["default/web"] == SHORT
    node = {"metadata": {"name": "n1", "annotations": {ASSIGNMENTS_ANNOTATION: shown}}}
    text = as_text(story(pod("web"), [], node))
    assert f"  memory     64Mi protected from reclaim of 120Mi asked: {SHORT.because}" in text.splitlines()
    assert "  memory     1Mi protected from reclaim" in as_text(story(pod("db"), [], node)).splitlines()
    assert "memory  " not in as_text(story(pod("other"), [], node))
    assert f"Memory:     64Mi protected from reclaim of 120Mi asked: {SHORT.because}" in pod_text(pod("web"), node)
    assert "Memory:" not in pod_text(pod("other"), node)
    described = node_text(node, [])
    assert "Protected memory:" in described and SHORT.because in described


async def test_a_node_publishes_what_its_cgroups_protect(tmp_path: Path) -> None:
    tree = tmp_path / "cgroup"
    tree.mkdir()
    (tree / "cgroup.controllers").write_text("cpu memory")
    asks = {"requests": {"memory": "64Mi"}}
    async with World(tmp_path, cgroup_fs=tree) as node:
        uid = await node.start(pod("web", container(resources=asks), uid="b"))
        assert node.agent.cgroups is not None
        assert node.agent.cgroups.protected == {uid: Protected(64 * MIB, 64 * MIB)}
        # A class of its container protects more than the request: everything above follows.
        inner = tree / "kubepods/burstable/podb/main"
        inner.mkdir()
        (inner / "memory.min").write_text(str(100 * MIB))
        PodCgroups(Host(tree, version=2)).weigh("/kubepods/burstable/podb", "sandbox", {"memory"})
        await node.agent.cgroups.reconcile()
        assert (tree / "kubepods/memory.min").read_text() == str(100 * MIB)
        pods = [one.admitted for one in node.agent.core.pods.values()]
        found = map_annotations(
            node.machine, node.agent.managers, pods, node.agent.cgroups.kept, node.agent.admission.grant
        )
        published = decode_assignments(found[ASSIGNMENTS_ANNOTATION]).protected
        assert published == {"default/web": Protected(100 * MIB, 100 * MIB)}
