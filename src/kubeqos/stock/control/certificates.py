"""The certificates of the webhooks, and when they are renewed. Pure; kept in a Secret that all replicas serve from.

An authority is replaced long before it ends, in two steps, so that at no moment an API server is shown a certificate
that it does not trust: first the new authority is published beside the old one, then it signs.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubeqos.web.authority import Authority, KeyPair, is_signed, new_key_pem, pem

AUTHORITY_DAYS, AUTHORITY_RENEW_DAYS = 365, 120
SERVING_DAYS, SERVING_RENEW_DAYS = 90, 30
NAME = "kubeqos-webhook"


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the Secret holds."""

    bundle: bytes
    """The authorities to trust, the one that signs first."""
    authority_key: bytes
    serving: KeyPair

    @staticmethod
    def of(data: Mapping[str, str]) -> Certificates | None:
        """From a Secret's data; None where that is not what we have written."""
        try:
            bundle, key, certificate, own = (
                base64.b64decode(data[name], validate=True) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
            )
        except (KeyError, binascii.Error):
            return None
        return Certificates(bundle, key, KeyPair(certificate, own))

    def data(self) -> dict[str, str]:
        named = {
            "ca.crt": self.bundle,
            "ca.key": self.authority_key,
            "tls.crt": self.serving.certificate,
            "tls.key": self.serving.key,
        }
        return {name: base64.b64encode(value).decode() for name, value in named.items()}


def renewed(kept: Certificates | None, hosts: Sequence[str], published: bytes, now: datetime.datetime) -> Certificates:
    """What the Secret should hold now; `published` is the bundle that API servers know."""
    known = _certificates(kept.bundle) if kept else []
    authority = _signing(kept, known)
    if authority is None or authority.is_due(now, AUTHORITY_RENEW_DAYS):
        # A name of its own: what an issuer of the same name has signed is taken for signed by itself.
        authority = Authority.of_key(new_key_pem(), f"{NAME}-ca@{now:%Y%m%d%H%M%S}", now, AUTHORITY_DAYS)
    others = [each for each in known if each != authority.certificate and now < each.not_valid_after_utc]
    trusted = [authority.certificate, *others[:1]]
    serving = kept.serving if kept else None
    if serving is not None:
        good = [one for one in trusted if is_signed(serving, one, hosts, now, SERVING_RENEW_DAYS)]
        by_former = good and authority.certificate not in good
        if not good or (by_former and authority.certificate in _certificates(published)):
            serving = None
    if serving is None:
        serving = authority.issue(NAME, now, hosts=hosts, days=SERVING_DAYS)
    return Certificates(b"".join(map(pem, trusted)), authority.key_pem, serving)


def _signing(kept: Certificates | None, known: Sequence[x509.Certificate]) -> Authority | None:
    if kept is None or not known:
        return None
    try:
        found = Authority.of(pem(known[0]), kept.authority_key)
    except (ValueError, TypeError, InvalidSignature):
        return None
    return found if found.belongs_together else None


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle) if bundle else []
    except ValueError:
        return []
