"""Requests for certificates that are broken in one way each, and bundles of authorities: for both servers, and ours."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

DER = serialization.Encoding.DER
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])


def request(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return x509.CertificateSigningRequestBuilder().subject_name(_NAME).sign(key, algorithm).public_bytes(DER)


def pem(der: bytes, name: str = "CERTIFICATE REQUEST", headers: str = "") -> bytes:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {name}-----\n{headers}{body}-----END {name}-----\n".encode()


def forged(der: bytes) -> bytes:
    """As it was, but for another name than the one that was signed."""
    return der.replace(b"\x0c\x01x", b"\x0c\x01y")


def requests() -> dict[str, bytes]:
    """What `spec.request` may hold, by what is wrong with it."""
    curve, plain = request(ec.generate_private_key(ec.SECP256R1())), request(ed25519.Ed25519PrivateKey.generate())
    numbers = request(rsa.generate_private_key(65537, 2048))
    return {
        "right": pem(curve), "right, rsa": pem(numbers), "right, ed25519": pem(plain), "nothing": b"", "text": b"hello",
        "forged": pem(forged(curve)), "forged, rsa": pem(forged(numbers)), "forged, ed25519": pem(forged(plain)),
        "a certificate": pem(curve, "CERTIFICATE"), "headers": pem(curve, headers="Proc-Type: 4\n\n"),
        "another block first": pem(b"x", "PUBLIC KEY") + pem(curve), "text before": b"here it is:\n" + pem(curve),
        "two": pem(curve) + pem(numbers), "no end": pem(curve)[:-30], "no base64": pem(curve).replace(b"MI", b"!!", 1),
        "ends differ": pem(curve).replace(b"END CERTIFICATE", b"END"), "windows": pem(curve).replace(b"\n", b"\r\n"),
        "not in one line": pem(curve).replace(b"\n-----END", b"-----END"), "an empty block": pem(b""),
        "half": pem(curve[:100]), "one byte": pem(b"\x30"), "an octet string": pem(b"\x04\x02ab"),
        "letters": pem(b"this is no request at all"), "more": pem(curve + b"\x05\x00"),
        "no length": pem(b"\x30\x80\x00"), "a large tag": pem(b"\x3f\x81\x01\x01x"),
        "a small tag in many bytes": pem(b"\x3f\x01\x00"), "a tag that is cut": pem(b"\x3f\x81"),
        "a tag that is too large": pem(b"\x3f\x8f\xff\xff\xff\x7f\x01x"),
        "a tag without an end": pem(b"\x3f\x81\x81\x81\x81\x81\x01\x01x"),
        "a long length": pem(b"\x30\x81\x05hello"), "a length of zeros": pem(b"\x30\x82\x00\x05hello"),
        "a length that is cut": pem(b"\x30\x82\x01"), "an endless length": pem(b"\x30\x85\x01\x01\x01\x01\x01"),
        "a tag of many bytes": pem(b"\x3f\x80\x01\x00"),
    }  # fmt: skip
