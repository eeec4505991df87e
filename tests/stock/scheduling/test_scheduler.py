"""The scheduler of the embedded home on objects of a stock cluster: reports and annotations decide as fields do."""

from __future__ import annotations

from kubeqos.scheduler.core import Bind, Evict, Report
from tests.stock.scheduling.stories import NUMA, POOL_FULL, POOLS, WEB, Told, node, pod, report


def test_a_class_is_where_a_report_says() -> None:
    told = Told(node("a"), node("b"), report("b", slow=1))
    [bound] = told.decides(pod("one", asked="blockio=slow"))
    assert isinstance(bound, Bind) and bound.node == "b"
    [waits] = told.decides(pod("two", asked="blockio=slow"))
    assert isinstance(waits, Report)
    assert "1 QoS class blockio=slow exhausted (1/1 used), 1 QoS resource blockio not available" in waits.message


def test_a_report_may_come_before_its_node_and_after_it_and_go() -> None:
    told = Told(report("a", slow=0), node("a"))
    [bound] = told.decides(pod("one", asked="blockio=slow"))
    assert isinstance(bound, Bind)
    told.core.report_changed(None, "a", 0.0)
    [waits] = told.decides(pod("two", asked="blockio=slow"))
    assert isinstance(waits, Report)
    told.tell(report("a", slow=0))
    assert [one.pod.name for one in told.core.step(100.0) if isinstance(one, Bind)] == ["two"]


def test_pools_and_numa_nodes_are_those_of_the_report() -> None:
    told = Told(node("pools"), node("numa"), report("pools", POOLS), report("numa", NUMA))
    wide = [one for one in told.decides(pod("wide", "4")) if isinstance(one, Bind)]
    assert [one.node for one in wide] == ["pools"], "no NUMA node of the other has four CPUs"
    told = Told(node("pools"), report("pools", POOLS))
    first, second = told.decides(pod("one", "1", annotations=WEB), pod("two", "1", annotations=WEB))
    assert isinstance(first, Bind)
    assert isinstance(second, Report) and POOL_FULL in second.message


def test_pods_of_others_count_and_the_less_important_make_room() -> None:
    told = Told(node("a"), report("a", slow=1))
    told.tell(pod("other", asked="blockio=slow", on="a", schedulerName="default-scheduler"))
    evicted, waits = told.decides(pod("vital", asked="blockio=slow", priority=1000))
    assert isinstance(evicted, Evict) and evicted.victim.name == "other"
    assert isinstance(waits, Report) and waits.nominated == "a"


def test_the_freest_node_of_a_class_is_preferred() -> None:
    told = Told(node("a"), node("b"), report("a", slow=4), report("b", slow=4))
    told.tell(pod("other", asked="blockio=slow", on="a", schedulerName="default-scheduler"))
    [bound] = told.decides(pod("one", asked="blockio=slow"))
    assert isinstance(bound, Bind) and bound.node == "b"
    assert "classes" in bound.because


def test_devices_are_left_to_the_clusters_own_scheduler() -> None:
    claims = [{"name": "cores", "resourceClaimName": "cores"}]
    told = Told(node("a"))
    told.tell(pod("other", "1", on="a", resourceClaims=claims))
    [waits] = told.decides(pod("one", "1", resourceClaims=claims))
    assert (
        isinstance(waits, Report)
        and "asks for devices (resource.k8s.io/v1), which this scheduler does not allocate" in waits.message
    )
    assert told.core.cluster.column("cpu").used.sum() == 1000
