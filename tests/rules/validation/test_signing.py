"""Requests for certificates are read: the texts are those of a real server (tests/stock/test_same_requests.py)."""

from __future__ import annotations

import base64

import pytest

from kubeqos.rules.fielderror import FieldError
from kubeqos.rules.validation.stored.signing import check_request, check_stub_request, check_trust_bundle
from tests.apiserver.examples import stub_request, trust_anchor
from tests.stock import signing

NO_REQUEST = "PEM block type must be CERTIFICATE REQUEST"
WHY = {
    "nothing": NO_REQUEST,
    "text": NO_REQUEST,
    "a certificate": NO_REQUEST,
    "another block first": NO_REQUEST,
    "no end": NO_REQUEST,
    "no base64": NO_REQUEST,
    "ends differ": NO_REQUEST,
    "not in one line": NO_REQUEST,
    "forged": "x509: ECDSA verification failure",
    "forged, rsa": "crypto/rsa: verification error",
    "forged, ed25519": "x509: Ed25519 verification failure",
    "an empty block": "asn1: syntax error: sequence truncated",
    "half": "asn1: syntax error: data truncated",
    "one byte": "asn1: syntax error: truncated tag or length",
    "more": "asn1: syntax error: trailing data",
    "no length": "asn1: syntax error: indefinite length found (not DER)",
    "a long length": "asn1: structure error: non-minimal length",
    "a length of zeros": "asn1: structure error: superfluous leading zeros in length",
    "a length that is cut": "asn1: syntax error: truncated tag or length",
    "an endless length": "asn1: structure error: length too large",
    "a tag of many bytes": "asn1: syntax error: integer is not minimally encoded",
    "a small tag in many bytes": "asn1: syntax error: non-minimal tag",
    "a tag that is cut": "asn1: syntax error: truncated base 128 integer",
    "a tag that is too large": "asn1: structure error: base 128 integer too large",
    "a tag without an end": "asn1: structure error: base 128 integer too large",
}
MISMATCHES = ("an octet string", "letters", "a large tag")


@pytest.mark.parametrize(("what", "sent"), signing.requests().items(), ids=list(signing.requests()))
def test_what_is_wrong_with_a_request(what: str, sent: bytes) -> None:
    out: list[FieldError] = []
    check_request(out, "spec.request", base64.b64encode(sent).decode())
    if what in MISMATCHES:
        assert out[0].detail.startswith("asn1: structure error: tags don't match (16 vs {class:")
        assert out[0].detail.partition("certificateRequest @")[2].isdigit()
    else:
        assert [one.detail for one in out] == ([WHY[what]] if what in WHY else [])


def test_a_request_that_a_kubelet_would_not_send() -> None:
    out: list[FieldError] = []
    check_stub_request(out, "spec.stubPKCS10Request", stub_request())
    assert out == []
    check_stub_request(out, "spec.stubPKCS10Request", base64.b64encode(b"x").decode())
    assert [one.body for one in out] == ["Invalid value: must be a valid PKCS#10 CSR"]


def test_a_bundle_holds_authorities_and_each_once() -> None:
    anchor = trust_anchor()
    for bundle, why in (
        (anchor, []),
        ("", ["at least one trust anchor must be provided"]),
        (anchor * 2, ["duplicate trust anchor (indices [0 1])"]),
        (anchor + signing.pem(b"x", "PUBLIC KEY").decode(), ["entry 1 has bad block type: PUBLIC KEY"]),
    ):
        out: list[FieldError] = []
        check_trust_bundle(out, "spec.trustBundle", bundle)
        assert [one.detail for one in out] == why
