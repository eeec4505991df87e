"""Requests for certificates, broken in many ways: a real server and ours say the same, word by word."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.apiserver.examples import trust_anchor
from tests.stock import signing
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers

pytestmark = needs_stock("kube-apiserver", "etcd")

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All"
BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles?dryRun=All"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


@pytest.mark.parametrize(("what", "sent"), signing.requests().items(), ids=list(signing.requests()))
def test_both_read_a_request_the_same_way(servers: tuple[Stock, Ours], what: str, sent: bytes) -> None:
    spec = {"request": base64.b64encode(sent).decode(), "signerName": "x.example/y", "usages": ["client auth"]}
    theirs, ours = (server.call("POST", REQUESTS, {"metadata": {"name": "x"}, "spec": spec}) for server in servers)
    assert (theirs[0], theirs[1].get("message")) == (ours[0], ours[1].get("message"))
    assert (theirs[0] == 201) == (what in READ)


READ = ("right", "right, rsa", "right, ed25519", "headers", "text before", "two", "windows")


def test_both_read_bundles_of_authorities_the_same_way(servers: tuple[Stock, Ours]) -> None:
    anchor = trust_anchor()
    key = signing.pem(b"x", "PUBLIC KEY").decode()
    garbage = signing.pem(b"x", "CERTIFICATE").decode()
    headers = anchor.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nA: b\n\n", 1)
    cases = [anchor, "", "text", anchor * 2, anchor + trust_anchor() + anchor, anchor + key, garbage + key, headers]
    for bundle in cases:
        obj = {"metadata": {"name": "x"}, "spec": {"trustBundle": bundle}}
        theirs, ours = (server.call("POST", BUNDLES, obj) for server in servers)
        assert (theirs[0], theirs[1].get("message")) == (ours[0], ours[1].get("message")), bundle
