"""From a pod's claims to drivers and parameters, and what admission says about them."""

from __future__ import annotations

import json
from typing import Any

from kubeqos.cci.claims.fetching import fetch_claims
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_CLASSES, Resource
from kubeqos.model.objects import PodView
from kubeqos.topology.claims.asks import Wrong, asks_of, check_config, check_pod
from kubeqos.topology.claims.resolving import Objects, ResolvedClaim, Unresolved, resolve
from tests.cci.world import KEP_CLAIM

CLASS = {"metadata": {"name": "cpu-resources"}, "driverName": "reference.cci.kubeqos.io"}
SPEC = {"resourceClassName": "cpu-resources", "parametersRef": {"kind": "ConfigMap", "name": "cfg"}}
TEMPLATE = {"metadata": {"name": "compute"}, "spec": {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}}
CLAIM = {"metadata": {"name": "mine", "namespace": "default", "uid": "claim-uid"}, "spec": SPEC}
CONFIG = {"metadata": {"name": "cfg"}, "data": {"config.json": KEP_CLAIM}}


def pod(*claims: dict[str, Any], **resources: Any) -> PodView:
    return PodView.of(
        {
            "metadata": {"name": "hpc", "namespace": "default", "uid": "pod-uid"},
            "spec": {"resourceClaims": list(claims), "containers": [{"name": "main", "resources": resources}]},
        }
    )


BY_TEMPLATE = {"name": "cores", "source": {"resourceClaimTemplateName": "compute"}}
BY_NAME = {"name": "cores", "resourceClaimName": "mine"}


class Cluster:
    """Objects that can be read, and a list of what was."""

    def __init__(self, *objects: tuple[Resource, dict[str, Any]]) -> None:
        self.objects = {(resource, one["metadata"]["name"]): one for resource, one in objects}
        self.reads: list[str] = []

    async def get(self, resource: Resource, name: str, namespace: str = "", *, subresource: str = "") -> dict[str, Any]:
        self.reads.append(f"{resource.kind} {name}")
        if (resource, name) not in self.objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return self.objects[resource, name]


async def found(view: PodView, *objects: tuple[Resource, dict[str, Any]]) -> ResolvedClaim | Unresolved:
    return (await fetch_claims(Cluster(*objects), view))["cores"]  # type: ignore[arg-type]


EVERYTHING = (
    (RESOURCE_CLASSES, CLASS),
    (RESOURCE_CLAIM_TEMPLATES, TEMPLATE),
    (RESOURCE_CLAIMS, CLAIM),
    (CONFIG_MAPS, CONFIG),
)


async def test_a_template_leads_to_driver_and_parameters() -> None:
    claim = await found(pod(BY_TEMPLATE), *EVERYTHING)
    assert claim == ResolvedClaim(
        "cores",
        "default",
        "hpc-cores",
        "pod-uid/cores",
        "cpu-resources",
        "reference.cci.kubeqos.io",
        KEP_CLAIM,
        'ConfigMap "default/cfg", config.json',
    )


async def test_a_claim_that_a_controller_made_wins_over_its_template() -> None:
    metadata = {"name": "hpc-cores", "namespace": "default", "uid": "made-uid"}
    made = {**CLAIM, "metadata": {**metadata, "ownerReferences": [{"uid": "pod-uid"}]}}
    claim = await found(pod(BY_TEMPLATE), *EVERYTHING, (RESOURCE_CLAIMS, made))
    assert isinstance(claim, ResolvedClaim) and claim.claim_uid == "made-uid"
    foreign = {**CLAIM, "metadata": metadata}
    claim = await found(pod(BY_TEMPLATE), *EVERYTHING, (RESOURCE_CLAIMS, foreign))
    assert claim == Unresolved('ResourceClaim "default/hpc-cores" exists already and belongs to somebody else')


async def test_an_existing_claim_by_name() -> None:
    claim = await found(pod(BY_NAME), *EVERYTHING)
    assert isinstance(claim, ResolvedClaim) and (claim.claim_name, claim.claim_uid) == ("mine", "claim-uid")


async def test_a_claim_that_is_being_deleted_is_for_those_that_use_it() -> None:
    going = {**CLAIM, "metadata": {**CLAIM["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    rest = [each for each in EVERYTHING if each[0] is not RESOURCE_CLAIMS]
    claim = await found(pod(BY_NAME), *rest, (RESOURCE_CLAIMS, going))
    assert claim == Unresolved('ResourceClaim "default/mine" is being deleted')
    used = {**going, "status": {"reservedFor": [{"resource": "pods", "name": "hpc", "uid": "pod-uid"}]}}
    assert isinstance(await found(pod(BY_NAME), *rest, (RESOURCE_CLAIMS, used)), ResolvedClaim)


async def test_what_is_missing_is_named_and_may_still_come() -> None:
    for kept, text in (
        ((), 'ResourceClaim "default/mine" does not exist'),
        (EVERYTHING[2:3], "ResourceClass \"cpu-resources\" of claim 'mine' does not exist"),
        (EVERYTHING[:3], 'ConfigMap "default/cfg" does not exist'),
    ):
        assert await found(pod(BY_NAME), *kept) == Unresolved(text)
    assert await found(pod(BY_TEMPLATE)) == Unresolved('ResourceClaimTemplate "default/compute" does not exist')
    empty = {**CONFIG, "data": {}}
    assert await found(pod(BY_NAME), *EVERYTHING[:3], (CONFIG_MAPS, empty)) == Unresolved(
        "ConfigMap \"default/cfg\" has no key 'config.json'"
    )


async def test_other_kinds_of_parameters_cannot_be_read() -> None:
    odd = {**CLAIM, "spec": {**SPEC, "parametersRef": {"kind": "Core", "apiGroup": "example.com", "name": "x"}}}
    claim = await found(pod(BY_NAME), (RESOURCE_CLASSES, CLASS), (RESOURCE_CLAIMS, odd))
    assert claim == Unresolved("parametersRef names a example.com/Core; only a ConfigMap can be read", retry=False)


async def test_a_class_may_have_the_parameters() -> None:
    plain = {**CLAIM, "spec": {"resourceClassName": "cpu-resources"}}
    with_default = {**CLASS, "parametersRef": {"kind": "ConfigMap", "name": "cfg", "namespace": "infra"}}
    claim = await found(pod(BY_NAME), (RESOURCE_CLASSES, with_default), (RESOURCE_CLAIMS, plain), (CONFIG_MAPS, CONFIG))
    assert isinstance(claim, ResolvedClaim) and claim.source == 'ConfigMap "infra/cfg", config.json'


async def test_a_pod_without_claims_costs_no_reads() -> None:
    cluster = Cluster()
    assert await fetch_claims(cluster, pod()) == {} and cluster.reads == []  # type: ignore[arg-type]
    objects: Objects = {}
    assert resolve(pod(BY_TEMPLATE), objects) == (
        ("ResourceClaim", "default", "hpc-cores"),
        ("ResourceClaimTemplate", "default", "compute"),
    )


async def test_admission_points_into_the_config_map() -> None:
    broken = {**CONFIG, "data": {"config.json": KEP_CLAIM.replace('],\n    "cpu', ']\n    "cpu')}}
    view = pod(BY_NAME, claims=[{"name": "cores"}], requests={"cpu": "25"}, limits={"cpu": "25"})
    claims = {"cores": await found(view, *EVERYTHING[:3], (CONFIG_MAPS, broken))}
    [error] = check_pod(view, claims)
    assert error.message == (
        'spec.containers[0].resources.claims[0].name: Invalid value: "cores": ConfigMap "default/cfg", config.json: '
        "line 10, column 6: expected ',' or '}' here, before '\"cpu attributes\"'\n   10 |     ]\n      |      ^"
    )
    assert check_config(CONFIG["data"]) == () and len(check_config(broken["data"])) == 1  # type: ignore[arg-type]
    assert check_config({})[0].message.startswith("data[config.json]: Required value")


async def test_cores_match_requests_and_limits() -> None:
    claims = {"cores": await found(pod(BY_NAME), *EVERYTHING)}
    use = [{"name": "cores"}]
    assert check_pod(pod(BY_NAME, claims=use, requests={"cpu": "25"}, limits={"cpu": "25000m"}), claims) == ()
    wrong = check_pod(pod(BY_NAME, claims=use, requests={"cpu": "24"}), claims)
    assert [error.message for error in wrong] == [
        'spec.containers[0].resources.requests[cpu]: Invalid value: "24": '
        "must be 25, the cores of the container's claims",
        "spec.containers[0].resources.limits[cpu]: Required value: must be 25, the cores of the container's claims",
    ]


async def test_a_range_is_a_burstable_pods() -> None:
    burst = {**CONFIG, "data": {"config.json": json.dumps({"cores": ["6-8"]})}}
    claims = {"cores": await found(pod(BY_NAME), *EVERYTHING[:3], (CONFIG_MAPS, burst))}
    view = pod(BY_NAME, claims=[{"name": "cores"}], requests={"cpu": "6"}, limits={"cpu": "8"})
    assert check_pod(view, claims) == ()


def annotated(policy: str, **resources: Any) -> PodView:
    view = {
        "metadata": {
            "name": "telco",
            "namespace": "default",
            "uid": "u",
            "annotations": {"cci.resources.alpha.kubernetes.io/container.main": policy},
        },
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    return PodView.of(view)


def test_policies_need_a_number_of_cores() -> None:
    view = annotated("cci-exclusive")
    wrong = asks_of(view, view.spec.containers[0], "spec.containers[0]", {})
    assert isinstance(wrong, Wrong) and "policy 'cci-exclusive' takes the number of cores from here" in str(wrong)
    view = annotated("cci-exclusive", requests={"cpu": "1500m"}, limits={"cpu": "1500m"})
    wrong = asks_of(view, view.spec.containers[0], "spec.containers[0]", {})
    assert isinstance(wrong, Wrong) and "must be the same whole number" in str(wrong)


def test_shared_policies_round_up_and_burst() -> None:
    view = annotated("cci-shared", requests={"cpu": "1500m"}, limits={"cpu": "4"})
    asks = asks_of(view, view.spec.containers[0], "spec.containers[0]", {})
    assert isinstance(asks, tuple) and (asks[0].parameters.least, asks[0].parameters.most) == (2, 4)


def test_a_container_has_claims_or_a_policy() -> None:
    view = annotated("cci-shared", claims=[{"name": "cores"}], requests={"cpu": "1"})
    wrong = asks_of(view, view.spec.containers[0], "spec.containers[0]", {})
    assert isinstance(wrong, Wrong) and "use one of them" in str(wrong)


def test_a_claim_that_the_pod_does_not_name() -> None:
    view = pod(claims=[{"name": "cores"}])
    assert "pod has no claim 'cores'" in check_pod(view, {})[0].message
