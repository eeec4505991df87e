"""The walk of a pod stays short: a change that makes it wander again is seen here."""

from __future__ import annotations

from tools import walk


async def test_a_create_switches_between_modules_at_most_half_as_often_as_it_did() -> None:
    found = await walk.create()
    assert found.figures.switches <= walk.TARGETS[walk.CREATE]
    assert "kubeqos.store.store" in found.called


async def test_a_pod_on_its_node_switches_between_modules_at_most_half_as_often_as_it_did() -> None:
    found = await walk.run()
    assert found.figures.switches <= walk.TARGETS[walk.NODE]
    assert {"kubeqos.node.agent", "kubeqos.node.pod.machine"} <= set(found.called)


async def test_a_switch_is_a_call_into_another_module() -> None:
    found = walk.Walk(called=["a", "a", "b", "a"])
    assert found.figures == walk.Figures(modules=2, switches=2)
