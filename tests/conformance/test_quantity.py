"""Every recorded quantity: parsing, printing, rounding to thousandths, and as an entry of a quota."""

from __future__ import annotations

import pytest

from kubeqos.model.quantity import Quantity, QuantityError
from tests.conformance.pipeline import post
from tests.conformance.recorded import cases

CASES = cases("quantity")
CHUNKS = 8
PATH = "/api/v1/namespaces/default/resourcequotas?dryRun=All"


def quota(resource: str, token: str) -> bytes:
    head = b'{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"'
    return head + resource.encode() + b'":' + token.encode() + b"}}}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_tokens_are_read_and_printed_as_kubernetes_does(chunk: int):
    wrong = []
    for case in CASES[chunk::CHUNKS]:
        try:
            got = str(Quantity.from_json(case["json"].encode()))
        except QuantityError as error:
            got = error.what
            accepted = False
        else:
            accepted = True
        if accepted != case["accepted"] or (accepted and got != case["canonical"]):
            wrong.append((case["json"], case.get("canonical") or case.get("error"), got))
        elif not accepted and got not in case.get("error", got):
            wrong.append((case["json"], case["error"], got))
    assert wrong == []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_quota_takes_or_refuses_them_as_kubernetes_does(chunk: int):
    wrong = []
    for case in CASES[chunk::CHUNKS]:
        wanted = case["quota"]
        answer = post(PATH, quota("requests.cpu", case["json"]))
        got = {"code": answer.code, "message": answer.message}
        if answer.obj is not None:
            amount = Quantity.from_json(case["json"].encode()).round_up_milli()
            got |= {"canonical": answer.obj["spec"]["hard"]["requests.cpu"], "integer": amount.is_integer}
        if any(wanted.get(key) != value for key, value in got.items()):
            wrong.append((case["json"], wanted, got))
    assert wrong == []
