"""Turns a request's credentials into an identity, or says that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kubeqos.web.identity import ANONYMOUS, Identity


class TokenSource(Protocol):
    """Something that knows tokens."""

    def identify(self, token: str) -> Identity | None: ...


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """401; the reason is for the audit log, the answer only says Unauthorized."""

    because: str


class Authenticator:
    """Client certificate first, then bearer token, as kube-apiserver does."""

    def __init__(self, tokens: Sequence[TokenSource], *, anonymous: bool = False) -> None:
        self._tokens = tokens
        self._anonymous = anonymous

    def identify(self, peer: Identity | None, authorization: bytes | None) -> Identity | Unauthenticated:
        """`peer` is the verified client certificate's identity, `authorization` the header of that name."""
        if peer is not None:
            return peer
        scheme, _, token = (authorization or b"").decode("latin-1").strip().partition(" ")
        if scheme.lower() == "bearer":
            for source in self._tokens:
                if (identity := source.identify(token.strip())) is not None:
                    return identity
            return Unauthenticated("the bearer token is unknown or has expired")
        if self._anonymous:
            return ANONYMOUS
        return Unauthenticated("neither a client certificate nor a bearer token was presented")
