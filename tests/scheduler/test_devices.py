"""Pods with claims of devices (resource.k8s.io/v1): never bound without them, and told who allocates them."""

from __future__ import annotations

from kubeqos.scheduler.effects import Bind, Report
from tests.scheduler.test_core import Story, node, pod

CLAIM = [{"name": "gpu", "resourceClaimName": "gpu"}]
TOLD = 'ResourceClaim "default/gpu" asks for devices (resource.k8s.io/v1), which this scheduler does not allocate'


def story() -> Story:
    made = Story()
    made.core.node_changed(node("n1"), "n1", made.now)
    return made


def told(made: Story) -> str:
    [effect] = made.decide()
    assert isinstance(effect, Report)
    return effect.message


def test_a_claim_of_devices_is_left_to_who_allocates_it() -> None:
    made = story()
    made.see(pod("p", resourceClaims=CLAIM), pod("q"))
    first, second = made.decide()
    assert isinstance(first, Report)
    assert first.message == 'waiting for claims: ResourceClaim "default/gpu" does not exist'
    assert isinstance(second, Bind)
    made.core.claims.of_devices("ResourceClaim", "default/gpu", there=True)
    made.core.claims_changed(made.now)
    assert told(made).startswith(TOLD)
    made.core.claims.of_devices("ResourceClaim", "default/gpu", there=False)
    made.core.claims_changed(made.now)
    assert told(made) == first.message


def test_where_there_are_no_claims_of_cores_all_are_of_devices() -> None:
    made = story()
    made.core.claims.served = False
    made.see(pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
    assert told(made).startswith('ResourceClaimTemplate "default/t" asks for devices')
