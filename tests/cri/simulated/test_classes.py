"""QoS-class resources on the simulated runtime: every CRI message of KEP-3008."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeqos.cri.enforcing.host import V2
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.config import parse_classes
from kubeqos.cri.runtime import class_of
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.cri.simulated.classes import read_classes
from kubeqos.errors import ConfigurationError
from kubeqos.model.hardware.named import split80
from tests.cri.pods import container, pod, update

TABLE = """
resources:
  rdt: {provider: named, mutable: true, default: silver, capacity: {gold: 2}, classes: [gold, silver]}
  blockio: {provider: named, classes: [fast, slow]}
  network: {provider: named, level: pod, capacity: {premium: 1}, classes: [premium, basic]}
"""


class Node:
    def __init__(self) -> None:
        self.runtime = SimulatedRuntime(split80(), read_classes(TABLE, "classes.yaml"), clock=VirtualClock())

    async def start(self, *, sandbox_classes: dict[str, str] | None = None, **classes: str) -> str:
        config = pod(classes=sandbox_classes)
        sandbox = await self.runtime.run_pod_sandbox(config)
        identity = await self.runtime.create_container(sandbox, container(command=["app"], classes=classes), config)
        await self.runtime.start_container(identity)
        return identity

    async def classes(self, identity: str) -> dict[str, str]:
        self.runtime.core.validate()
        status = (await self.runtime.container_status(identity)).status
        return {q.name: class_of(q) for q in status.resources.qos_resources}

    async def refused(self, code: Code, request: cri.UpdateContainerResourcesRequest) -> str:
        with pytest.raises(CallError) as refusal:
            await self.runtime.update_container_resources(request)
        assert refusal.value.code is code
        return refusal.value.details


@pytest.fixture
def node() -> Node:
    return Node()


async def test_the_runtime_advertises_its_classes(node: Node) -> None:
    info = (await node.runtime.status()).status.resources
    shown = {r.name: (r.mutable, [(c.name, c.capacity) for c in r.classes]) for r in info.container_qos_resources}
    assert shown == {
        "rdt": (True, [("gold", 2), ("silver", 0)]),
        "blockio": (False, [("fast", 0), ("slow", 0)]),
    }
    assert [r.name for r in info.pod_qos_resources] == ["network"]


async def test_a_status_shows_requests_and_implicit_defaults(node: Node) -> None:
    asked = await node.start(rdt="gold", blockio="slow")
    silent = await node.start()
    assert await node.classes(asked) == {"rdt": "gold", "blockio": "slow"}
    assert await node.classes(silent) == {"rdt": "silver", "blockio": ""}


async def test_a_sandbox_has_pod_level_classes(node: Node) -> None:
    sandbox = await node.runtime.run_pod_sandbox(pod(classes={"network": "premium"}))
    status = (await node.runtime.pod_sandbox_status(sandbox)).status
    assert [(q.name, class_of(q)) for q in status.qos_resources] == [("network", "premium")]
    with pytest.raises(CallError, match="class 'premium' of QoS resource 'network' is full: 1 of 1 in use"):
        await node.runtime.run_pod_sandbox(pod(classes={"network": "premium"}))
    await node.runtime.stop_pod_sandbox(sandbox)
    assert await node.runtime.run_pod_sandbox(pod(classes={"network": "premium"}))


async def test_implicit_defaults_follow_the_configuration(node: Node) -> None:
    silent, asked = await node.start(), await node.start(rdt="gold")
    changed = (
        TABLE.replace("default: silver", "default: gold")
        + "  ulimits: {provider: named, mutable: true, default: many, "
    )
    node.runtime.set_offers(read_classes(changed + "classes: [many]}\n", "classes.yaml"))
    assert await node.classes(silent) == {"rdt": "gold", "blockio": "", "ulimits": "many"}
    node.runtime.set_offers(
        read_classes(TABLE.replace("capacity: {gold: 2}, classes: [gold, ", "classes: ["), "classes.yaml")
    )
    assert (await node.classes(asked))["rdt"] == "gold", "who has a class keeps it when it is no longer offered"
    with pytest.raises(CallError, match="class 'gold' of QoS resource 'rdt' is retired"):
        await node.start(rdt="gold")


async def test_capacity_counts_containers_that_are_alive(node: Node) -> None:
    first, _ = await node.start(rdt="gold"), await node.start(rdt="gold")
    with pytest.raises(CallError) as full:
        await node.start(rdt="gold")
    assert full.value.code is Code.RESOURCE_EXHAUSTED
    await node.runtime.stop_container(first)
    third = await node.start(rdt="gold")
    assert await node.classes(third) == {"rdt": "gold", "blockio": ""}


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"turbo": "on"}, "container QoS resource 'turbo' is not available; this runtime has: blockio, rdt"),
        ({"network": "basic"}, "container QoS resource 'network' is not available"),
        ({"rdt": "platinum"}, "QoS resource 'rdt' has no class 'platinum'; it has: gold, silver"),
        ({"rdt": ""}, "QoS resource 'rdt' has no class ''"),
    ],
)
async def test_what_is_not_offered_fails_creation_and_leaves_nothing(
    node: Node, classes: dict[str, str], message: str
) -> None:
    config = pod()
    sandbox = await node.runtime.run_pod_sandbox(config)
    with pytest.raises(CallError) as refused:
        await node.runtime.create_container(sandbox, container(classes=classes), config)
    assert (refused.value.code, message in refused.value.details) == (Code.INVALID_ARGUMENT, True)
    assert not await node.runtime.list_containers()
    assert await node.runtime.create_container(sandbox, container(), config), "the name is still free"


async def test_the_pods_qos_class_is_information_and_fails_nothing(node: Node) -> None:
    sandbox = await node.runtime.run_pod_sandbox(pod(classes={"pod-qos": "Burstable", "network": "basic"}))
    status = (await node.runtime.pod_sandbox_status(sandbox)).status
    assert [(entry.name, class_of(entry)) for entry in status.qos_resources] == [("network", "basic")]


async def test_a_resource_is_requested_once(node: Node) -> None:
    config = pod()
    sandbox = await node.runtime.run_pod_sandbox(config)
    wanted = container(classes={"rdt": "gold"})
    wanted.qos_resources.add(**{"name": "rdt", "class": "silver"})
    with pytest.raises(CallError, match="requested twice"):
        await node.runtime.create_container(sandbox, wanted, config)


async def test_a_mutable_class_moves_and_capacity_moves_with_it(node: Node) -> None:
    first = await node.start(rdt="gold")
    await node.runtime.update_container_resources(update(first, classes={"rdt": "silver"}))
    assert (await node.classes(first))["rdt"] == "silver"
    for _ in range(2):
        await node.start(rdt="gold")
    assert "is full" in await node.refused(Code.RESOURCE_EXHAUSTED, update(first, classes={"rdt": "gold"}))
    assert (await node.classes(first))["rdt"] == "silver"


async def test_an_immutable_class_fails_the_update_before_anything_changes(node: Node) -> None:
    identity = await node.start(rdt="gold", blockio="fast")
    request = update(identity, classes={"rdt": "silver", "blockio": "slow"}, cpuset_cpus="1", cpu_shares=77)
    assert "cannot be changed" in await node.refused(Code.FAILED_PRECONDITION, request)
    assert await node.classes(identity) == {"rdt": "gold", "blockio": "fast"}
    assert (await node.runtime.container_status(identity)).status.resources.linux == cri.LinuxContainerResources()


async def test_a_bad_cpuset_fails_the_update_of_classes_too(node: Node) -> None:
    identity = await node.start(rdt="gold")
    await node.refused(Code.INVALID_ARGUMENT, update(identity, classes={"rdt": "silver"}, cpuset_cpus="99"))
    assert (await node.classes(identity))["rdt"] == "gold"


async def test_naming_the_class_that_a_container_has_is_no_change(node: Node) -> None:
    identity = await node.start(blockio="fast")
    await node.runtime.update_container_resources(update(identity, classes={"blockio": "fast"}))
    assert (await node.classes(identity))["blockio"] == "fast"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resources: {rdt: {provider: named, level: contianer, classes: []}}", "did you mean 'container'?"),
        ("resources: {rdt: {provider: named}}", "add the key classes"),
        ("resources: {a: {provider: named, default: x, classes: [y]}}", "no class 'x'"),
        ("resources: {a: {provider: named, classes: [y, y]}}", "class 'y' is named twice"),
        ("resources: {pod-qos: {provider: named, classes: []}}", "belongs to Kubernetes"),
        (
            "resources:\n  a: {provider: named, level: pod, classes: []}\n  a: {provider: named, classes: []}",
            "this key appears twice",
        ),
        ("resource: []", "did you mean 'resources'?"),
        ("resources: [{name: a}]", "write each resource as `NAME: {provider: …}`"),
        ("resources: {a: {provider: named, capacity: {b: -1}, classes: [b]}}", "whole number"),
        ("resources: {a: {provider: turbo}}", "write its classes out: provider: named"),
    ],
)
def test_a_wrong_table_is_one_clear_message(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        read_classes(text, "classes.yaml")
    assert message in "\n".join(wrong.value.lines())
    assert "classes.yaml" in (wrong.value.where or "")


def test_the_file_of_a_real_node_is_understood() -> None:
    """One form: what the relay's guide shows is offered by a simulated machine as well."""
    guide = (Path(__file__).parents[3] / "docs" / "relay.md").read_text()
    text = re.findall(r"```yaml\n(resources:.*?)```", guide, re.DOTALL)[0]
    found = {offer.name: [info.name for info in offer.classes] for offer in read_classes(text, "classes.yaml")}
    assert found["rdt"] == ["gold", "silver", "bronze"]
    assert found["blockio"] == ["slow", "fast"]
    assert found["example.com/shelf"] == ["upper", "lower"]
    real = parse_classes(text, "classes.yaml", V2)
    assert tuple(resource.offer for resource in real.resources.values()) == read_classes(text, "classes.yaml")
