"""Writes the kubeconfig that `kubectl` and every client of this cluster start from."""

from __future__ import annotations

import base64
from pathlib import Path

from kubeqos.apiserver.auth.pki import ADMIN, KeyPair, write_private
from kubeqos.codec import encode_json

TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {context}
  context:
    cluster: {cluster}
    user: {user}
    namespace: default
current-context: {context}
"""


def write_kubeconfig(
    path: Path, *, server: str, authority: bytes, client: KeyPair, user: str = ADMIN, cluster: str = "kubeqos"
) -> None:
    """Mode 0600, because it carries a private key."""
    text = TEMPLATE.format(
        cluster=scalar(cluster),
        server=scalar(server),
        user=scalar(user),
        context=scalar(f"{user}@{cluster}"),
        authority=base64.b64encode(authority).decode(),
        certificate=base64.b64encode(client.certificate).decode(),
        key=base64.b64encode(client.key).decode(),
    )
    write_private(path, text.encode())


def scalar(text: str) -> str:
    """A YAML double-quoted scalar; JSON strings are a subset of them."""
    return encode_json(text).decode()
