"""Selector objects: what they select."""

import pytest

from kubeqos.model.labels import selects

WEB = {"app": "web", "tier": "front", "replicas": "3"}


def expression(operator, *values, key="app"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        (expression("In", "web", "db"), True),
        (expression("In", "db"), False),
        (expression("In", "x", key="absent"), False),
        (expression("NotIn", "db"), True),
        (expression("NotIn", "x", key="absent"), True),
        (expression("Exists"), True),
        (expression("Exists", key="absent"), False),
        (expression("DoesNotExist", key="absent"), True),
        (expression("Gt", "2", key="replicas"), True),
        (expression("Lt", "2", key="replicas"), False),
        (expression("Gt", "2"), False),
        (expression("Gt", "1", "2", key="replicas"), False),
        (expression("Bogus", "web"), False),
        ({"matchLabels": {"app": "web"}, **expression("NotIn", "web")}, False),
    ],
)
def test_a_selector_selects_labels(selector, selected):
    assert selects(selector, WEB) is selected
