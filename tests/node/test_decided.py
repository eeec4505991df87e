"""What a node decided comes into the records of its pods: admission, refusal, eviction with its ranking, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS, resource_named
from kubeqos.model import decisions as d
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.api.events import MOST_LEFT, NodeEvents
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.run import serve_node
from kubeqos.topology.alignment.hints import Policy
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import container, resources
from tests.node.test_live import bound, running_agent, until

RECORDS = resource_named("PodDecisions", "decisions.kubeqos.io")
LOAD = "simulate.kubeqos.io/load"
MEMORY = sum(node.memory_bytes for node in laptop8().nodes)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


async def told(api: HttpApi, name: str, kind: type[d.Decision]) -> Any:
    """The last decision of this type in a pod's record, as soon as it is there."""

    async def look() -> Any:
        try:
            record = d.PodDecisions.of(await api.get(RECORDS, name, "default"))
        except ApiError as error:
            assert error.not_found
            return None
        found = [one for one in record.decisions if isinstance(one, kind)]
        return found[-1] if found else None

    return await until(f"{kind.__name__} of {name}", look)


async def test_hints_and_who_chose_what(server: LiveServer, tmp_path: Path) -> None:
    policies = {"cpu_manager_policy": "static", "topology_policy": Policy.RESTRICTED}
    async with running_agent(server, tmp_path, reserved_cpus=CpuSet.of(0), **policies) as (_, api):
        await api.create(PODS, bound("pinned", container(resources=resources(cpu="2", memory="64Mi"))))
        pinned = await told(api, "pinned", d.NodeAdmission)
        (merge,) = pinned.hints
        assert (merge.containers, merge.result, merge.preferred) == (("main",), "0", True)
        assert merge.offers == (d.HintOffer("cpu", "cpu", ("0",)),)
        (given,) = pinned.containers[0].resources
        assert (given.resource, given.by) == ("cpu", "the cpu manager") and given.given.startswith("exclusive CPUs")
        await api.delete(PODS, "pinned", "default", grace_seconds=0)  # room for those below


async def test_admission_and_refusal(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):
        await api.create(PODS, bound("fits", container(resources=resources(cpu="1", memory="64Mi"))))
        fits = await told(api, "fits", d.NodeAdmission)
        assert (fits.node, fits.admitted, fits.by) == ("n1", True, "node n1")
        await api.create(PODS, bound("huge", container(resources=resources(cpu="100", memory="64Mi"))))
        huge = await told(api, "huge", d.NodeAdmission)
        assert (huge.admitted, huge.reason) == (False, "OutOfcpu")
        assert "requested: 100000" in huge.message


async def test_both_sides_of_room_for_a_critical_pod(server: LiveServer, tmp_path: Path) -> None:
    async with running_agent(server, tmp_path) as (_, api):
        await api.create(PODS, bound("plain", container(resources=resources(cpu="7", memory="64Mi"))))
        assert (await told(api, "plain", d.NodeAdmission)).admitted
        critical = bound("critical", container(resources=resources(cpu="7", memory="64Mi")))
        critical["spec"]["priorityClassName"] = "system-node-critical"
        await api.create(PODS, critical)
        preempted = await told(api, "plain", d.Preempted)
        assert (str(preempted.preemptor), preempted.node) == ("default/critical", "n1")
        assert [str(one) for one in (await told(api, "critical", d.Preemption)).victims] == ["default/plain"]


@pytest.mark.proves("eviction")
async def test_an_eviction_names_everybody_in_line_and_why_others_stay(server: LiveServer, tmp_path: Path) -> None:
    async with (
        running_agent(server, tmp_path) as (agent, api),
        serve_node(agent, ServiceSettings(housekeeping_seconds=0.2)),
    ):
        modest = container(resources={"requests": {"memory": "1Gi"}})
        await api.create(PODS, bound("modest", modest, annotations={LOAD: "memory=64Mi"}))
        over = container(resources={"requests": {"memory": "64Mi"}})
        await api.create(PODS, bound("over", over, annotations={LOAD: "memory=1Gi"}))
        greedy = f"memory={MEMORY // 2**20 - 1024 - 100}Mi"
        await api.create(PODS, bound("greedy", container(), annotations={LOAD: greedy}))
        evicted = await told(api, "greedy", d.Eviction)
        assert evicted.signal in ("memory.available", "allocatableMemory.available")
        assert evicted.because.startswith("BestEffort, priority 0, uses ") and evicted.threshold and evicted.available
        ranking = {one.pod.name: (one.place, one.because) for one in evicted.ranking}
        assert ranking["greedy"] == (1, evicted.because)
        assert ranking["over"][0] == 2 and ranking["over"][1].startswith("Burstable, ")
        assert ranking["modest"][0] == 0 and "not more than it asked for" in ranking["modest"][1]


async def test_a_restart_tells_the_limit_and_the_use(server: LiveServer, tmp_path: Path) -> None:
    async with (
        running_agent(server, tmp_path) as (agent, api),
        serve_node(agent, ServiceSettings(housekeeping_seconds=0.1)),
    ):
        small = container(resources={"limits": {"memory": "64Mi"}})
        await api.create(PODS, bound("grows", small, annotations={LOAD: "memory=20Mi growth=20Mi/s"}))
        ended = await told(api, "grows", d.Restart)
        assert (ended.container, ended.reason, ended.exit_code) == ("main", "OOMKilled", 137)
        assert ended.memory_limit == "64Mi" and ended.memory_use


def test_people_are_told_names_where_others_say_uids() -> None:
    heard: list[tuple[str, str]] = []
    events = NodeEvents(None, "n1", lambda reason, message: heard.append((reason, message)))
    uid, told = "2f0e3f1c-98a1-4a53-9c9c-3b1b8a6ad0aa", "container app: what 2f0e3f1c-98a1-4a53-9c9c-x holds"
    events.met(uid, "default/web")
    events.node("Drift", f"pod {uid} {told}")
    assert heard.pop() == ("Drift", f"pod default/web {told}")
    events.parted(uid)
    events.node("Drift", f"pod {uid} {told}")
    assert heard.pop() == ("Drift", f"pod default/web {told}"), "what it held may be given back late"
    for number in range(MOST_LEFT):
        events.met(str(number), "default/another")
        events.parted(str(number))
    events.node("Drift", f"pod {uid} {told}")
    assert heard.pop() == ("Drift", f"pod {uid} {told}")
