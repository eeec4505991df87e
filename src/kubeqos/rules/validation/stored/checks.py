"""The words of which tables of fields are written: each makes a check of one value at a path.

A check is given None for a field that is not there. Where Kubernetes looks at a field only if somebody wrote it, so
does the check; `needed` and `word` look in any case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import duplicate, invalid, not_supported, required, too_long, too_many
from kubeqos.rules.validation.common import Check, Errors, complain

Fields = Mapping[str, Check | tuple[Check, ...]]
"""What judges the fields of a type, by name; the empty name is the object itself."""

PROTOCOLS = ("SCTP", "TCP", "UDP")
_PREFIXED_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_NO_PREFIXED_PATH = 'must be a domain-prefixed path (such as "acme.io/foo")'
_DRIVER_MAX = 63


def unjudged(out: Errors, path: str, value: Any) -> None:
    """Nobody looks at this field, nor at what is below it."""


def needed(detail: str = "") -> Check:
    """There is something: a text, a list, a map, an object."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is None or value in ("", [], {}):
            out.append(required(path, detail))

    return check


def set_at_all(detail: str = "") -> Check:
    """Somebody has written it, be it empty."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is None:
            out.append(required(path, detail))

    return check


def if_set(*checks: Check) -> Check:
    """By all of these, where somebody has written it."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is not None:
            for one in checks:
                one(out, path, value)

    return check


def choice(*supported: str, unset: bool = True) -> Check:
    """One of a few words, or not written; where not `unset` it is missed."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is None:
            if not unset:
                out.append(required(path))
        elif value not in supported:
            out.append(not_supported(path, value, supported))

    return check


def named_word(*supported: str) -> Check:
    """One of a few words; none at all is missed."""

    def check(out: Errors, path: str, value: Any) -> None:
        if not value:
            out.append(required(path))
        elif value not in supported:
            out.append(not_supported(path, value, supported))

    return check


def word(*supported: str) -> Check:
    """One of a few words, in any case: not to write it is as wrong as another word."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value not in supported:
            out.append(not_supported(path, value or "", supported))

    return check


def least(bound: int, why: str = "", *, unset: bool = True) -> Check:
    """A number not below a bound. One that Go keeps as a plain number is 0 if it is not written (`unset` is False)."""
    why = why or (names.NEGATIVE if bound == 0 else f"must be greater than or equal to {bound}")

    def check(out: Errors, path: str, value: Any) -> None:
        if value is None and unset:
            return
        if (value or 0) < bound:
            out.append(invalid(path, value or 0, why))

    return check


def most(bound: int, why: str = "") -> Check:
    def check(out: Errors, path: str, value: Any) -> None:
        if value is not None and value > bound:
            out.append(invalid(path, value, why or f"must be less than or equal to {bound}"))

    return check


def between(low: int, high: int, *, unset: bool = True) -> Check:
    def check(out: Errors, path: str, value: Any) -> None:
        if value is None and unset:
            return
        if not low <= (value or 0) <= high:
            out.append(invalid(path, value or 0, names.between(low, high)))

    return check


def quantity(*, zero: bool, why: str) -> Check:
    """An amount that is not negative, or more than nothing."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is None:
            return
        amount = Quantity.parse(value)
        if amount.nanos < 0 or (amount.nanos == 0 and not zero):
            out.append(invalid(path, amount, why))

    return check


def named(rule: names.NameRule, *, lower: bool = False) -> Check:
    """A name by a rule, if there is one; `lower` judges its lower case."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value:
            judged_as = value.lower() if lower else value
            complain(out, path, judged_as, rule(judged_as))

    return check


def needs_name(rule: names.NameRule, *, lower: bool = False) -> Check:
    """A name by a rule, which has to be there."""
    right = named(rule, lower=lower)

    def check(out: Errors, path: str, value: Any) -> None:
        if not value:
            out.append(required(path))
        right(out, path, value)

    return check


def judged(rule: names.NameRule, *, unset: bool = True) -> Check:
    """A name by a rule, which an empty text does not satisfy either; where not `unset`, nor does none."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is not None or not unset:
            complain(out, path, value or "", rule(value or ""))

    return check


def unique(key: str = "", *, empty: bool = True) -> Check:
    """No two of a list are the same, or have the same `key`; where not `empty`, those without any are let be."""

    def check(out: Errors, path: str, value: Any) -> None:
        seen: list[Any] = []
        for index, item in enumerate(value or ()):
            found = item.get(key, "") if key else item
            if found in seen and (found or empty):
                out.append(duplicate(f"{path}[{index}]{f'.{key}' if key else ''}", found))
            seen.append(found)

    return check


def within(*checks: Check) -> Check:
    """Each of a list by all of these."""

    def check(out: Errors, path: str, value: Any) -> None:
        for index, item in enumerate(value or ()):
            for one in checks:
                one(out, f"{path}[{index}]", item)

    return check


def at_most(limit: int) -> Check:
    """A list that is not longer than that."""

    def check(out: Errors, path: str, value: Any) -> None:
        if len(value or ()) > limit:
            out.append(too_many(path, len(value), limit))

    return check


def longest(limit: int) -> Check:
    """At most so many bytes."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value is not None and len(value.encode()) > limit:
            out.append(too_long(path, limit))

    return check


def driver_name(out: Errors, path: str, value: Any) -> None:
    """The name of a CSI or DRA driver."""
    if not value:
        out.append(required(path))
        return
    if len(value) > _DRIVER_MAX:
        out.append(too_long(path, _DRIVER_MAX))
    complain(out, path, value, names.dns_subdomain(value.lower()))


def prefixed_path(out: Errors, path: str, value: Any) -> None:
    """Who does something, as `domain/path`."""
    if not value:
        out.append(required(path))
        return
    domain, slash, rest = value.partition("/")
    if not domain or not slash or not rest:
        out.append(invalid(path, value, _NO_PREFIXED_PATH))
        return
    complain(out, path, domain, names.dns_subdomain(domain))
    if not _PREFIXED_PATH.fullmatch(rest):
        out.append(invalid(path, rest, "Invalid path"))


def wildcard_subdomain(text: str) -> names.Complaints:
    """A host name, of which the first label may be a star."""
    return names.dns_subdomain(text.removeprefix("*.") if text.startswith("*.") else text)


def port(out: Errors, path: str, value: Any) -> None:
    complain(out, path, value or 0, names.port_number(value or 0))
