"""What Kubernetes says about requests for certificates and about bundles of authorities: they are read, and checked.

The library that reads them is met only where somebody sends one, since every command line would wait for it.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from kubeqos.model.text.gopem import Block, blocks
from kubeqos.rules.fielderror import OMITTED, invalid, too_long
from kubeqos.rules.validation.common import Errors

if TYPE_CHECKING:
    from cryptography import x509

_MOST_BUNDLE, _MOST_REQUEST = 1 << 20, 10 * 1024
_UNIVERSAL_SEQUENCE = 0x30
_SHORT, _LONG_TAG, _MOST_TAG_BYTES, _MOST_LENGTH = 0x80, 0x1F, 5, 1 << 23
_PARAMETERS = (
    "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0"
    " timeType:0 set:false omitEmpty:false}"
)
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_MODULI = (3072, 4096)


class _Unreadable(ValueError):
    """No certificate request; the text is Go's."""


def check_request(out: Errors, path: str, value: Any) -> None:
    """`spec.request` of a CertificateSigningRequest: a request in PEM, signed with the key that it names."""
    if why := _wrong_request(_decoded(value)):
        out.append(invalid(path, value, why))


def _wrong_request(pem: bytes) -> str:
    found = next(blocks(pem), None)
    if found is None or found.type != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = _parsed(found.data)
    except _Unreadable as error:
        return str(error)
    return "" if request.is_signature_valid else _wrong_signature(request)


def _wrong_signature(request: x509.CertificateSigningRequest) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    match request.public_key():
        case rsa.RSAPublicKey():
            return "crypto/rsa: verification error"
        case ec.EllipticCurvePublicKey():
            return "x509: ECDSA verification failure"
        case _:
            return "x509: Ed25519 verification failure"


def _parsed(der: bytes) -> x509.CertificateSigningRequest:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    _check_frame(der)
    try:
        request = x509.load_der_x509_csr(der)
        request.public_key()
        return request
    except UnsupportedAlgorithm as error:
        raise _Unreadable("x509: cannot verify signature: algorithm unimplemented") from error
    except ValueError as error:
        raise _Unreadable(f"asn1: structure error: {error}") from error


def _check_frame(der: bytes) -> None:
    """The outermost element must be one sequence and nothing after it; whoever pastes half a request hears that."""
    if not der:
        raise _Unreadable("asn1: syntax error: sequence truncated")
    tag, after = _tag(der)
    length, start = _length(der, after)
    if der[0] != _UNIVERSAL_SEQUENCE:
        compound = "true" if der[0] & 0x20 else "false"
        found = f"{{class:{der[0] >> 6} tag:{tag} length:{length} isCompound:{compound}}}"
        raise _Unreadable(
            f"asn1: structure error: tags don't match (16 vs {found}) {_PARAMETERS} certificateRequest @{start}"
        )
    if start + length > len(der):
        raise _Unreadable("asn1: syntax error: data truncated")
    if start + length < len(der):
        raise _Unreadable("asn1: syntax error: trailing data")


def _tag(der: bytes) -> tuple[int, int]:
    """What the first element says that it is, and where its length stands; large numbers take several bytes."""
    if (short := der[0] & _LONG_TAG) != _LONG_TAG:
        return short, 1
    tag = 0
    for at, byte in enumerate(der[1:], 1):
        if at > _MOST_TAG_BYTES:
            raise _Unreadable("asn1: structure error: base 128 integer too large")
        if at == 1 and byte == _SHORT:
            raise _Unreadable("asn1: syntax error: integer is not minimally encoded")
        tag = tag << 7 | byte & 0x7F
        if byte < _SHORT:
            if tag < _LONG_TAG:
                raise _Unreadable("asn1: syntax error: non-minimal tag")
            if tag >> 31:
                raise _Unreadable("asn1: structure error: base 128 integer too large")
            return tag, at + 1
    raise _Unreadable("asn1: syntax error: truncated base 128 integer")


def _length(der: bytes, at: int) -> tuple[int, int]:
    """How long the first element says that it is, and where it starts."""
    if at >= len(der):
        raise _Unreadable("asn1: syntax error: truncated tag or length")
    if der[at] < _SHORT:
        return der[at], at + 1
    if der[at] == _SHORT:
        raise _Unreadable("asn1: syntax error: indefinite length found (not DER)")
    end, length = at + 1 + der[at] - _SHORT, 0
    for place in range(at + 1, end):
        if place >= len(der):
            raise _Unreadable("asn1: syntax error: truncated tag or length")
        if length >= _MOST_LENGTH:
            raise _Unreadable("asn1: structure error: length too large")
        length = length << 8 | der[place]
        if length == 0:
            raise _Unreadable("asn1: structure error: superfluous leading zeros in length")
    if length < _SHORT:
        raise _Unreadable("asn1: structure error: non-minimal length")
    return length, end


def check_stub_request(out: Errors, path: str, value: Any) -> None:
    """`spec.stubPKCS10Request` of a PodCertificateRequest: in DER, and only keys that a kubelet makes."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    der = _decoded(value)
    if len(der) > _MOST_REQUEST:
        out.append(too_long(path, _MOST_REQUEST))
        return
    try:
        request = _parsed(der)
    except _Unreadable:
        out.append(invalid(path, OMITTED, "must be a valid PKCS#10 CSR"))
        return
    match request.public_key():
        case ec.EllipticCurvePublicKey() as key if key.curve.name not in _CURVES:
            why = "elliptic public keys must use curve P256, P384, or P521"
            out.append(invalid(path, f"curve {key.curve.name}", why))
        case rsa.RSAPublicKey() as key if key.key_size not in _MODULI:
            out.append(invalid(path, f"{key.key_size}-bit modulus", "RSA keys must have modulus size 3072 or 4096"))
        case ec.EllipticCurvePublicKey() | rsa.RSAPublicKey() | ed25519.Ed25519PublicKey():
            if not request.is_signature_valid:
                out.append(invalid(path, OMITTED, "invalid signature"))
        case _:
            why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
            out.append(invalid(path, OMITTED, why))


def check_trust_bundle(out: Errors, path: str, value: Any) -> None:
    """`spec.trustBundle` of a ClusterTrustBundle: certificates of authorities, each of them once."""
    if len(value or "") > _MOST_BUNDLE:
        out.append(too_long(path, _MOST_BUNDLE))
        return
    found = list(blocks((value or "").encode()))
    wrong = [f"entry {index} {why}" for index, block in enumerate(found) if (why := _wrong_anchor(block))]
    if not found:
        wrong = ["at least one trust anchor must be provided"]
    elif not wrong:
        places: dict[bytes, list[int]] = {}
        for index, block in enumerate(found):
            places.setdefault(block.data, []).append(index)
        twice = (" ".join(map(str, at)) for at in places.values() if len(at) > 1)
        wrong = [f"duplicate trust anchor (indices [{at}])" for at in twice]
    out.extend(invalid(path, "<value omitted>", why) for why in wrong)


def _wrong_anchor(block: Block) -> str:
    from cryptography import x509

    if block.type != "CERTIFICATE":
        return f"has bad block type: {block.type}"
    if block.headers:
        return "has PEM block headers"
    try:
        constraints = x509.load_der_x509_certificate(block.data).extensions.get_extension_for_class(
            x509.BasicConstraints
        )
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except ValueError:
        return "does not parse as X.509"
    return "" if constraints.value.ca else "does not have the CA bit set"


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except (binascii.Error, ValueError):
        return b""
