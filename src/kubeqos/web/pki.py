"""The cluster's own certificate authority: made on the first start, kept in a private directory.

Called when an API server starts and when a node or user needs a certificate. What exists and is still good is reused,
so a restart changes nothing; a serving or admin certificate that is about to expire, or does not cover the host names
asked for, is issued again by the same authority.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeqos.checkpoint import sync_directory
from kubeqos.errors import StateError
from kubeqos.web.identity import MASTERS

ADMIN = "kubernetes-admin"
CA_DAYS, LEAF_DAYS, RENEW_DAYS = 3650, 365, 30
SERVICE_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1")

NODE_CLIENT = "kube-apiserver-kubelet-client"

PrivateKey = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Pki:
    """The authority and what it has signed, in one directory of mode 0700."""

    def __init__(self, directory: Path, now: datetime.datetime | None = None) -> None:
        self.directory = directory
        self._now = now or datetime.datetime.now(datetime.UTC)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key, self._certificate = self._authority()

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def ca_pem(self) -> bytes:
        return pem(self._certificate)

    def server_files(self, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """Certificate and key files that serve these names and addresses."""
        names = list(dict.fromkeys([*SERVICE_NAMES, *hosts]))
        self._ensure("apiserver", "kubeqos-apiserver", (), names)
        return self.directory / "apiserver.crt", self.directory / "apiserver.key"

    def admin(self) -> KeyPair:
        """The administrator's certificate, in `system:masters`."""
        return self._ensure("admin", ADMIN, (MASTERS,), None)

    def node_client_files(self) -> tuple[Path, Path]:
        """Certificate and key files with which the API server goes to node agents."""
        self._ensure(NODE_CLIENT, NODE_CLIENT, (MASTERS,), None)
        return self.directory / f"{NODE_CLIENT}.crt", self.directory / f"{NODE_CLIENT}.key"

    def issue_client(self, user: str, groups: Sequence[str] = (), days: int = LEAF_DAYS) -> KeyPair:
        """A new client certificate; nothing is stored."""
        return self._sign(user, groups, None, days)

    def token_key(self) -> bytes:
        """The secret that signs bearer tokens."""
        path = self.directory / "tokens.key"
        if not path.exists():
            write_private(path, secrets.token_hex(32).encode())
        return read_private(path)

    def _authority(self) -> tuple[PrivateKey, x509.Certificate]:
        key_path = self.directory / "ca.key"
        if not key_path.exists():
            if self.ca_file.exists():
                raise self._unusable(key_path, "the authority's key is missing")
            write_private(key_path, key_pem(ec.generate_private_key(ec.SECP256R1())))
        try:
            key = serialization.load_pem_private_key(read_private(key_path), None)
            if not isinstance(key, PrivateKey):
                raise ValueError("it is not an elliptic curve key")
            if not self.ca_file.exists():
                write_private(self.ca_file, pem(self._self_sign(key)))
            certificate = x509.load_pem_x509_certificate(self.ca_file.read_bytes())
            certificate.verify_directly_issued_by(certificate)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise self._unusable(key_path, f"the authority cannot be read: {error}") from error
        if certificate.public_key() != key.public_key():
            raise self._unusable(key_path, "ca.key and ca.crt do not belong together")
        return key, certificate

    def _unusable(self, path: Path, what: str) -> StateError:
        return StateError(
            what, where=str(path), remedy="restore it from a backup, or remove the directory to start anew"
        )

    def _self_sign(self, key: PrivateKey) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubeqos-ca")])
        builder = self._builder(name, name, key.public_key(), CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(key_usage(sign_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(minutes=5))
            .not_valid_after(self._now + datetime.timedelta(days=days))
        )

    def _sign(self, user: str, groups: Sequence[str], hosts: Sequence[str] | None, days: int) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer_key = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key)
        builder = self._builder(x509.Name(subject), self._certificate.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(key_usage(sign_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return KeyPair(pem(builder.sign(self._key, hashes.SHA256())), key_pem(key))

    def _ensure(self, file: str, user: str, groups: Sequence[str], hosts: Sequence[str] | None) -> KeyPair:
        certificate_path, key_path = self.directory / f"{file}.crt", self.directory / f"{file}.key"
        if not (
            certificate_path.exists() and key_path.exists() and self._still_good(certificate_path, key_path, hosts)
        ):
            pair = self._sign(user, groups, hosts, LEAF_DAYS)
            write_private(key_path, pair.key)
            write_private(certificate_path, pair.certificate)
        return KeyPair(certificate_path.read_bytes(), read_private(key_path))

    def _still_good(self, certificate_path: Path, key_path: Path, hosts: Sequence[str] | None) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            key = serialization.load_pem_private_key(read_private(key_path), None)
            certificate.verify_directly_issued_by(self._certificate)
            covered = names_of(certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        renew_at = certificate.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
        return (
            certificate.public_key() == key.public_key()
            and certificate.not_valid_before_utc <= self._now < renew_at
            and covered >= {general_name(host) for host in hosts or ()}
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


def read_private(path: Path) -> bytes:
    """A secret file; one that others could read, after a careless restore for example, is closed to them first."""
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return path.read_bytes()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole; nobody but its owner may read it, at no moment."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise StateError(
            f"cannot write a private file: {error.strerror}",
            where=str(path),
            remedy="free space or fix the permissions of the directory",
        ) from error
