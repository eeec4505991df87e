"""Bearer tokens: a static file as kube-apiserver reads it, and tokens that this cluster signs itself.

Signed tokens are JSON Web Tokens (RFC 7519) with HMAC-SHA-256: the API server is their only issuer and their only
reader, so a shared secret is enough and costs no certificate arithmetic per request.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json
from kubeqos.errors import ConfigurationError
from kubeqos.web.identity import Identity

ISSUER = "kubeqos"
AUDIENCE = ISSUER
"""For whom a token is when nobody is named: this API server, as in Kubernetes, where it is called as the issuer is."""
HEADER = base64.urlsafe_b64encode(encode_json({"alg": "HS256", "typ": "JWT"})).rstrip(b"=")

BOUND_KINDS = ("Pod", "Secret", "Node")


class Bound(NamedTuple):
    """What a token ends with."""

    kind: str
    name: str
    uid: str


class StaticTokens:
    """Tokens from a CSV file: `token,user,uid,"group1,group2"`."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        # Looked up by digest: how long a lookup takes says nothing about how much of a guess was right.
        self._by_digest = {digest(token): identity for token, identity in identities.items()}

    @classmethod
    def read(cls, path: Path) -> StaticTokens:
        identities: dict[str, Identity] = {}
        try:
            rows = list(csv.reader(path.read_text().splitlines(), skipinitialspace=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigurationError(f"cannot read the token file: {error}", where=str(path)) from error
        for number, row in enumerate(rows, start=1):
            if not row or row[0].startswith("#"):
                continue
            fields = [field.strip() for field in row]
            if len(fields) not in (3, 4) or not fields[0] or not fields[1] or fields[0] in identities:
                raise ConfigurationError(
                    "token file: a line needs a token of its own, a user and a uid",
                    where=f"{path}:{number}",
                    remedy='write lines as  token,user,uid,"group1,group2"',
                )
            groups = [group.strip() for group in fields[3].split(",")] if len(fields) == 4 else []
            identities[fields[0]] = Identity.authenticated(fields[1], filter(None, groups), fields[2])
        return cls(identities)

    def identify(self, token: str) -> Identity | None:
        return self._by_digest.get(digest(token))


Exists = Callable[[str, str, str, str], bool]
"""Whether an object (kind, namespace, name, uid) is still there."""


class TokenSigner:
    """Issues and reads the cluster's own service account tokens.

    A token ends with its account, and with the pod, Secret or Node that it is bound to.
    """

    def __init__(self, key: bytes, clock: Callable[[], float], exists: Exists = lambda *_: True) -> None:
        self._key = key
        self._clock = clock
        self._exists = exists

    def issue(
        self,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        seconds: int = 3600,
        audiences: Sequence[str] = (AUDIENCE,),
        bound: Bound | None = None,
    ) -> str:
        """A token for a service account, for those audiences alone."""
        now = int(self._clock())
        about: JsonObject = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        if bound is not None:
            about[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "aud": list(audiences),
            "iat": now,
            "exp": now + seconds,
            "kubernetes.io": about,
        }
        body = HEADER + b"." + base64.urlsafe_b64encode(encode_json(claims)).rstrip(b"=")
        return (body + b"." + self._sign(body)).decode()

    def identify(self, token: str, audiences: Sequence[str] = (AUDIENCE,)) -> Identity | None:
        """Whose token this is; None when it is not ours, was changed, has expired, or is for others."""
        found = self.review(token, audiences)
        return found[0] if found is not None else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[Identity, list[str]] | None:
        """Whose token this is, and for which of these audiences; None when it is nobody's or for none of them."""
        body, _, signature = token.encode(errors="replace").rpartition(b".")
        header, _, payload = body.partition(b".")
        if header != HEADER or not hmac.compare_digest(signature, self._sign(body)):
            return None
        try:
            claims = decode_json(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
            account = claims["kubernetes.io"]
            namespace, name, uid = (
                account["namespace"],
                account["serviceaccount"]["name"],
                account["serviceaccount"]["uid"],
            )
            fresh = claims["iss"] == ISSUER and claims["iat"] - 60 <= self._clock() < claims["exp"]
            meant = [one for one in claims.get("aud", [AUDIENCE]) if one in audiences]
            bound = [(kind, account[kind.lower()]) for kind in BOUND_KINDS if kind.lower() in account]
            there = [("ServiceAccount", name, uid), *((kind, one["name"], one["uid"]) for kind, one in bound)]
        except (binascii.Error, JsonError, KeyError, TypeError):
            return None
        if not fresh or not meant or not all(self._exists(kind, namespace, *one) for kind, *one in there):
            return None
        return Identity.service_account(namespace, name, uid), meant

    def _sign(self, body: bytes) -> bytes:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body, "sha256")).rstrip(b"=")


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
