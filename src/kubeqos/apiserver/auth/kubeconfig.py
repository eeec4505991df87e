"""Writes the kubeconfig that `kubectl` and every client of this cluster start from."""

from __future__ import annotations

import base64
from pathlib import Path

from kubeqos.codec import encode_yaml
from kubeqos.web.authority import KeyPair
from kubeqos.web.pki import ADMIN, write_private

CLUSTER = "kubeqos"


def write_kubeconfig(path: Path, *, server: str, authority: bytes, client: KeyPair, user: str = ADMIN) -> None:
    """Mode 0600, because it carries a private key."""
    context = f"{user}@{CLUSTER}"
    credentials = {"client-certificate-data": base64_of(client.certificate), "client-key-data": base64_of(client.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CLUSTER, "cluster": {"server": server, "certificate-authority-data": base64_of(authority)}}
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": context, "context": {"cluster": CLUSTER, "user": user, "namespace": "default"}}],
        "current-context": context,
    }
    write_private(path, encode_yaml(config).encode())


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()
