"""Deployments: what a ReplicaSet remembers, and what statuses say while a roll-out is under way. Time stands still."""

from __future__ import annotations

from typing import Any

from kubeqos.client.resources import PODS, REPLICATION_CONTROLLERS
from kubeqos.controllers.actions import Delete, Patch
from kubeqos.controllers.workloads import deployments, replicas
from kubeqos.controllers.workloads.deployments import REVISION_HISTORY
from tests.controllers.world import NOW, World


def progressing(world: World) -> tuple[str, str]:
    [found] = [one for one in world.deployment["status"]["conditions"] if one["type"] == "Progressing"]
    return found["reason"], found["message"]


def past(world: World) -> dict[str, Any]:
    found = {}
    for each in world.sets.values():
        image = each["spec"]["template"]["spec"]["containers"][0]["image"]
        found[image] = each["metadata"]["annotations"].get(REVISION_HISTORY)
    return found


def test_a_template_that_comes_back_remembers_the_numbers_it_had() -> None:
    world = World(1, revisionHistoryLimit=3)
    for image in ("v1", "v2", "v1", "v2", "v1"):
        world.set_image(image)
        world.settle()
    assert past(world) == {"v1": "1,3", "v2": "2"}


def test_the_oldest_numbers_are_forgotten() -> None:
    world = World(1)
    world.settle()
    [name] = world.sets
    notes = world.sets[name]["metadata"]["annotations"]
    notes[REVISION_HISTORY] = ",".join(str(number) for number in range(1000, 1400))
    kept = deployments._past(world.sets[name], 2000)[REVISION_HISTORY]
    assert kept.startswith("1001,")
    assert kept.endswith(",1399,1")
    assert len(kept) <= 2000


def test_the_number_of_a_roll_out_is_no_new_generation() -> None:
    world = World(1)
    found = deployments.desired(world.deployment, deployments.Sets(), [])
    [noted] = [one for one in found if isinstance(one, Patch)]
    assert (noted.subresource, list(noted.patch["metadata"])) == ("status", ["annotations"])


def test_one_that_recreates_says_that_it_is_on_its_way() -> None:
    world = World(2, strategy={"type": "Recreate"}, progressDeadlineSeconds=600)
    world.settle()
    assert progressing(world)[0] == "NewReplicaSetAvailable"
    [first] = world.sets
    world.set_image("v2")
    world.look_at_deployment()
    world.look_at_set(first)
    for name in list(world.pods):
        world.ends(name)
    world.look_at_set(first)
    world.look_at_deployment()
    [second] = set(world.sets) - {first}
    assert progressing(world) == ("NewReplicaSetCreated", f'Created new replica set "{second}"')
    world.settle()
    assert progressing(world) == ("NewReplicaSetAvailable", f'ReplicaSet "{second}" has successfully progressed.')


def test_pods_on_their_way_out_are_counted_and_nobody_knows_where_one_does_not_say() -> None:
    world = World(2)
    world.settle()
    assert world.deployment["status"]["terminatingReplicas"] == 0
    [name] = world.sets
    world.perform([Delete(PODS, "ns", world.active[0], "", "")])
    world.look_at_set(name)
    world.look_at_deployment()
    assert world.sets[name]["status"]["terminatingReplicas"] == 1
    assert world.deployment["status"]["terminatingReplicas"] == 1
    del world.sets[name]["status"]["terminatingReplicas"]
    world.look_at_deployment()
    assert world.deployment["status"].get("terminatingReplicas") is None
    other = replicas.standing(world.sets[name], REPLICATION_CONTROLLERS, world.pods_of(name), None, NOW).write
    assert other is None or "terminatingReplicas" not in other.patch["status"]
