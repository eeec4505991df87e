"""A certificate authority in memory: it signs, and says whether what it signed is still good. No file, no clock.

`pki` keeps one in a directory for the API server; the controller of a stock cluster keeps one in a Secret.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A key and the certificate that it has signed for itself."""

    key: PrivateKey
    certificate: x509.Certificate

    @staticmethod
    def of_key(key: bytes, name: str, now: datetime.datetime, days: int) -> Authority:
        """A new authority with this key."""
        loaded = _loaded(key)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, loaded.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(key_usage(sign_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(loaded.public_key())
        return Authority(loaded, builder.add_extension(identifier, critical=False).sign(loaded, hashes.SHA256()))

    @staticmethod
    def of(certificate: bytes, key: bytes) -> Authority:
        """One that was kept; ValueError, TypeError or InvalidSignature where it cannot be one."""
        found = x509.load_pem_x509_certificate(certificate)
        found.verify_directly_issued_by(found)
        return Authority(_loaded(key), found)

    @property
    def belongs_together(self) -> bool:
        return self.certificate.public_key() == self.key.public_key()

    @property
    def certificate_pem(self) -> bytes:
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    def is_due(self, now: datetime.datetime, days: int) -> bool:
        """Whether it ends within so many days, or has not begun."""
        return _is_due(self.certificate, now, days)

    def issue(
        self,
        user: str,
        now: datetime.datetime,
        groups: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
        days: int = 365,
    ) -> KeyPair:
        """A new key and its certificate: of a server with these hosts, of a client without."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer_key = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key)
        builder = _builder(x509.Name(subject), self.certificate.subject, key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(key_usage(sign_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return KeyPair(pem(builder.sign(self.key, hashes.SHA256())), key_pem(key))

    def vouches(self, pair: KeyPair, hosts: Sequence[str], now: datetime.datetime, renew_days: int) -> bool:
        """Whether this authority signed it, for all these hosts, and it does not end within so many days."""
        return is_signed(pair, self.certificate, hosts, now, renew_days)


def is_signed(
    pair: KeyPair, authority: x509.Certificate, hosts: Sequence[str], now: datetime.datetime, renew_days: int
) -> bool:
    """Whether the authority of this certificate vouches for a pair."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = _loaded(pair.key)
        certificate.verify_directly_issued_by(authority)
        covered = names_of(certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return (
        certificate.public_key() == key.public_key()
        and not _is_due(certificate, now, renew_days)
        and covered >= {general_name(host) for host in hosts}
    )


def new_key_pem() -> bytes:
    """A new private key."""
    return key_pem(ec.generate_private_key(ec.SECP256R1()))


def _loaded(key: bytes) -> PrivateKey:
    found = serialization.load_pem_private_key(key, None)
    if not isinstance(found, PrivateKey):
        raise ValueError("it is not an elliptic curve key")
    return found


def _is_due(certificate: x509.Certificate, now: datetime.datetime, days: int) -> bool:
    renew_at = certificate.not_valid_after_utc - datetime.timedelta(days=days)
    return not certificate.not_valid_before_utc <= now < renew_at


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def names_of(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
