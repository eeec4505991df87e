"""The table of kinds: every room that knows kinds knows these, and says the same about them."""

from __future__ import annotations

import pytest

from kubeqos.apiserver.registry.kinds import KINDS as SERVED
from kubeqos.client.resources import Resource, resource_named, stored_resources
from kubeqos.client.resources import resource_of as client_resource_of
from kubeqos.model import schema
from kubeqos.model.kinds import RESOURCES, ApiResource, resource_of


def named(each: ApiResource) -> tuple[object, ...]:
    return (each.group, each.version, each.plural, each.kind, each.namespaced, each.short, each.stored)


def test_the_server_serves_what_the_table_lists_and_nothing_else() -> None:
    assert [named(each) for each in SERVED] == [named(each) for each in RESOURCES]


def test_clients_know_what_the_table_lists() -> None:
    found = [client_resource_of(each.api_version, each.kind) for each in RESOURCES]
    assert [named(each) for each in found if each is not None] == [named(each) for each in RESOURCES]
    assert resource_named("ResourceClaim", "resource.k8s.io").version == "v1alpha1"  # of two the first


def test_every_entry_is_the_only_one_of_its_kind_and_of_its_path() -> None:
    assert len({(each.group, each.version, each.kind) for each in RESOURCES}) == len(RESOURCES)
    assert len({(each.group, each.version, each.plural) for each in RESOURCES}) == len(RESOURCES)


def test_no_short_name_means_two_things() -> None:
    short = [(name, each.plural) for each in RESOURCES for name in each.short]
    assert len({name for name, _ in short}) == len(set(short))  # events have two groups and one name
    short = [name for name, _ in short]
    assert not {each.plural for each in RESOURCES} & set(short)


@pytest.mark.parametrize("each", [each for each in RESOURCES if each.stored], ids=lambda each: each.plural)
def test_what_is_stored_has_a_schema(each: ApiResource) -> None:
    assert (each.group, each.version, each.kind) in schema.kinds()


@pytest.mark.parametrize(
    ("api_version", "kind", "plural"),
    [
        ("v1", "Pod", "pods"),
        ("apps/v1", "Deployment", "deployments"),
        ("resource.k8s.io/v1alpha1", "ResourceClaim", "resourceclaims"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
        ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
        ("apps/v1beta1", "Deployment", None),
        ("apps/v1", "Pod", None),
        ("v1", "PodList", None),
        ("", "Pod", None),
    ],
)
def test_a_manifest_names_its_resource(api_version: str, kind: str, plural: str | None) -> None:
    found, of_client = resource_of(api_version, kind), client_resource_of(api_version, kind)
    assert (found.plural if found else None) == plural
    assert (of_client.plural if of_client else None) == plural


def test_what_is_only_asked_is_not_stored() -> None:
    stored = {each.kind for each in stored_resources()}
    assert {"Pod", "ClusterRole", "ResourceClaim"} <= stored
    assert not {"Binding", "TokenReview", "SubjectAccessReview", "PodMetrics"} & stored
    assert "Node" not in {each.kind for each in stored_resources(namespaced=True)}
    assert {each.kind for each in stored_resources(namespaced=False)} >= {"Node", "Namespace", "PriorityClass"}


def test_resources_are_equal_by_what_they_name() -> None:
    assert Resource("", "v1", "pods", "Pod") == resource_named("Pod")
    assert Resource("", "v1", "pods", "Pod", namespaced=False) != resource_named("Pod")
    assert len({Resource("", "v1", "pods", "Pod"), resource_named("Pod")}) == 1
