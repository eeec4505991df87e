"""Certificates of the webhooks: renewed in time, and never one that an API server does not trust yet."""

from __future__ import annotations

import datetime

from cryptography import x509

from kubeqos.stock.control.certificates import (
    AUTHORITY_DAYS,
    AUTHORITY_RENEW_DAYS,
    SERVING_DAYS,
    SERVING_RENEW_DAYS,
    Certificates,
    renewed,
)
from kubeqos.web.authority import is_signed

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
HOSTS = ["kubeqos-webhook.kubeqos-system.svc"]


def later(days: float) -> datetime.datetime:
    return START + datetime.timedelta(days=days)


def trusts(bundle: bytes, served: Certificates, now: datetime.datetime) -> bool:
    return any(is_signed(served.serving, one, HOSTS, now, 0) for one in x509.load_pem_x509_certificates(bundle))


def test_what_is_good_is_kept_and_comes_back_from_the_secret() -> None:
    first = renewed(None, HOSTS, b"", START)
    assert Certificates.of(first.data()) == first
    assert renewed(first, HOSTS, first.bundle, later(1)) == first
    assert trusts(first.bundle, first, later(1))


def test_a_serving_certificate_is_renewed_before_it_ends_or_where_it_has_other_names() -> None:
    first = renewed(None, HOSTS, b"", START)
    next_ = renewed(first, HOSTS, first.bundle, later(SERVING_DAYS - SERVING_RENEW_DAYS))
    assert next_.serving != first.serving
    assert next_.bundle == first.bundle
    assert renewed(first, [*HOSTS, "other.svc"], first.bundle, later(1)).serving != first.serving


def test_a_new_authority_signs_only_after_it_was_published() -> None:
    due = later(AUTHORITY_DAYS - AUTHORITY_RENEW_DAYS)
    old = renewed(None, HOSTS, b"", START)
    old = renewed(old, HOSTS, old.bundle, later(AUTHORITY_DAYS - AUTHORITY_RENEW_DAYS - 10))
    first_step = renewed(old, HOSTS, old.bundle, due)
    assert first_step.bundle != old.bundle
    assert first_step.serving == old.serving
    assert trusts(old.bundle, first_step, due), "who knows the old authority alone can still connect"
    assert renewed(first_step, HOSTS, old.bundle, due) == first_step, "nothing more until it is published"
    second_step = renewed(first_step, HOSTS, first_step.bundle, due)
    assert second_step.serving != old.serving
    assert trusts(first_step.bundle, second_step, due)
    assert second_step.bundle == first_step.bundle, "the old one stays until it ends: others may serve with it yet"


def test_years_of_daily_looks_never_serve_what_is_not_trusted() -> None:
    kept = renewed(None, HOSTS, b"", START)
    published = kept.bundle
    for day in range(3 * AUTHORITY_DAYS):
        kept = renewed(kept, HOSTS, published, later(day))
        assert trusts(published, kept, later(day))
        if day % 2:  # publishing takes its time
            published = kept.bundle
        assert len(x509.load_pem_x509_certificates(kept.bundle)) <= 2


def test_what_somebody_has_broken_is_made_anew() -> None:
    good = renewed(None, HOSTS, b"", START)
    assert Certificates.of({"ca.crt": "?"}) is None
    broken = Certificates(b"nothing", b"nothing", good.serving)
    made = renewed(broken, HOSTS, good.bundle, START)
    assert trusts(made.bundle, made, START)
