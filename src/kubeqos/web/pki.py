"""The cluster's own certificate authority: made on the first start, kept in a private directory.

Called when an API server starts and when a node or user needs a certificate. What exists and is still good is reused,
so a restart changes nothing; a serving or admin certificate that is about to expire, or does not cover the host names
asked for, is issued again by the same authority.
"""

from __future__ import annotations

import datetime
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature

from kubeqos.checkpoint import sync_directory
from kubeqos.errors import StateError
from kubeqos.web.authority import Authority, KeyPair, new_key_pem
from kubeqos.web.identity import MASTERS

ADMIN = "kubernetes-admin"
CA_DAYS, LEAF_DAYS, RENEW_DAYS = 3650, 365, 30
SERVICE_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1")

NODE_CLIENT = "kube-apiserver-kubelet-client"


class Pki:
    """The authority and what it has signed, in one directory of mode 0700."""

    def __init__(self, directory: Path, now: datetime.datetime | None = None) -> None:
        self.directory = directory
        self._now = now or datetime.datetime.now(datetime.UTC)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._authority = self._kept()

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def ca_pem(self) -> bytes:
        return self._authority.certificate_pem

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
        return self._authority.issue(user, self._now, groups, days=days)

    def token_key(self) -> bytes:
        """The secret that signs bearer tokens."""
        path = self.directory / "tokens.key"
        if not path.exists():
            write_private(path, secrets.token_hex(32).encode())
        return read_private(path)

    def _kept(self) -> Authority:
        key_path = self.directory / "ca.key"
        if not key_path.exists():
            if self.ca_file.exists():
                raise self._unusable(key_path, "the authority's key is missing")
            write_private(key_path, new_key_pem())
        try:
            if not self.ca_file.exists():
                made = Authority.of_key(read_private(key_path), "kubeqos-ca", self._now, CA_DAYS)
                write_private(self.ca_file, made.certificate_pem)
            found = Authority.of(self.ca_file.read_bytes(), read_private(key_path))
        except (ValueError, TypeError, InvalidSignature) as error:
            raise self._unusable(key_path, f"the authority cannot be read: {error}") from error
        if not found.belongs_together:
            raise self._unusable(key_path, "ca.key and ca.crt do not belong together")
        return found

    def _unusable(self, path: Path, what: str) -> StateError:
        return StateError(
            what, where=str(path), remedy="restore it from a backup, or remove the directory to start anew"
        )

    def _ensure(self, file: str, user: str, groups: Sequence[str], hosts: Sequence[str] | None) -> KeyPair:
        certificate_path, key_path = self.directory / f"{file}.crt", self.directory / f"{file}.key"
        if not (
            certificate_path.exists() and key_path.exists() and self._still_good(certificate_path, key_path, hosts)
        ):
            pair = self._authority.issue(user, self._now, groups, hosts, LEAF_DAYS)
            write_private(key_path, pair.key)
            write_private(certificate_path, pair.certificate)
        return KeyPair(certificate_path.read_bytes(), read_private(key_path))

    def _still_good(self, certificate_path: Path, key_path: Path, hosts: Sequence[str] | None) -> bool:
        pair = KeyPair(certificate_path.read_bytes(), read_private(key_path))
        return self._authority.vouches(pair, hosts or (), self._now, RENEW_DAYS)


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
