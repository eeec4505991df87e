"""What an API server is told of the webhooks."""

from __future__ import annotations

import pytest

from kubeqos.stock.control.registration import Address, configurations, published

SERVICE = Address("kubeqos-webhook", "kubeqos-system")


def test_only_namespaces_that_opted_in_depend_on_it() -> None:
    for _, body in configurations(SERVICE, b"ca", "kubeqos-system"):
        enforced, offered = body["webhooks"]
        assert (enforced["failurePolicy"], offered["failurePolicy"]) == ("Fail", "Ignore")
        [opted, ours] = enforced["namespaceSelector"]["matchExpressions"]
        assert opted == {"key": "qos.kubeqos.io/enforce", "operator": "In", "values": ["true"]}
        assert ours["values"] == ["kube-system", "kubeqos-system"]
        assert offered["namespaceSelector"]["matchExpressions"][0]["operator"] == "NotIn"
        assert published(body) == b"ca"


def test_nothing_is_published_where_the_webhooks_do_not_agree() -> None:
    [(_, one), _] = configurations(SERVICE, b"one", "a")
    [(_, two), _] = configurations(SERVICE, b"two", "a")
    assert published({"webhooks": [one["webhooks"][0], two["webhooks"][1]]}) == b""
    assert published({}) == b""


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        (SERVICE, ["kubeqos-webhook.kubeqos-system.svc", "kubeqos-webhook.kubeqos-system.svc.cluster.local"]),
        (Address(url="https://127.0.0.1:9443"), ["127.0.0.1"]),
        (Address(url="https://hooks.example"), ["hooks.example"]),
        (Address(url="https://[::1]:9443/x"), ["::1"]),
    ],
)
def test_the_certificate_is_for_the_address(address: Address, hosts: list[str]) -> None:
    assert address.hosts == hosts
