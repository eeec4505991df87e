"""Names and other short texts that Kubernetes restricts, with its exact words about what is wrong with them.

Every check takes a text and returns the complaints about it, none for a good one. A good name of the common kinds
costs one regular expression and no allocation; keys and values of labels, which repeat, are remembered.
Called by object validation, by selectors and by everything that reads names from configuration files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

Complaints = Sequence[str]
NameRule = Callable[[str], Complaints]

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
PORT_NAME_MAX = 15
MAX_INT32 = (1 << 31) - 1
_CACHED_MAX = SUBDOMAIN_MAX + 1 + LABEL_MAX  # longer texts are wrong anyway and not worth remembering

EMPTY = "must be non-empty"
NEGATIVE = "must be greater than or equal to 0"
NOT_INTEGER = "must be an integer"
NOT_POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_DNS_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN_UNDERSCORE = rf"{_DNS_LABEL_UNDERSCORE}(\.{_DNS_LABEL_UNDERSCORE})*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HTTP_HEADER = "[-A-Za-z0-9]+"


def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).fullmatch


_is_dns_label = _matcher(_DNS_LABEL)
_is_dns_subdomain = _matcher(_DNS_SUBDOMAIN)
_is_dns_subdomain_underscore = _matcher(_DNS_SUBDOMAIN_UNDERSCORE)
_is_dns_1035 = _matcher(_DNS_1035)
_is_qualified_part = _matcher(_QUALIFIED)
_is_label_value = _matcher(f"({_QUALIFIED})?")
_is_config_key = _matcher(_CONFIG_KEY)
_is_http_header = _matcher(_HTTP_HEADER)
_is_port_charset = _matcher("[-a-z0-9]+")
_has_letter = re.compile("[a-z]").search
_is_cidr = _matcher(r"[0-9A-Fa-f:.]+/[0-9]+")


def _regex_complaint(rule: str, pattern: str, *examples: str) -> str:
    shown = "".join(f"'{one}'" if number == 0 else f",  or '{one}'" for number, one in enumerate(examples))
    return f"{rule} (e.g. {shown}, regex used for validation is '{pattern}')"


def at_most_characters(limit: int) -> str:
    return f"must be no more than {limit} characters"


def at_most_bytes(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


_ALPHANUMERIC_ENDS = "and must start and end with an alphanumeric character"
_LABEL_WRONG = _regex_complaint(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALPHANUMERIC_ENDS}",
    _DNS_LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_WRONG = _regex_complaint(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_ALPHANUMERIC_ENDS}",
    _DNS_SUBDOMAIN,
    "example.com",
)
_SUBDOMAIN_UNDERSCORE_WRONG = _regex_complaint(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character",
    _DNS_SUBDOMAIN_UNDERSCORE,
    "example.com",
)
_DNS_1035_WRONG = _regex_complaint(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _DNS_1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_WRONG = _regex_complaint(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC_ENDS}",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_KEY_WRONG = (
    f"a valid label key {_QUALIFIED_WRONG} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_LABEL_VALUE_WRONG = _regex_complaint(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_ALPHANUMERIC_ENDS}",
    f"({_QUALIFIED})?",
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_WRONG = _regex_complaint(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_HTTP_HEADER_WRONG = _regex_complaint(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HTTP_HEADER, "X-Header-Name"
)
_ENV_NAME_WRONG = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def dns_label(text: str) -> Complaints:
    """A DNS label: names of containers, volumes and namespaces."""
    fits = _is_dns_label(text)
    if fits and len(text) <= LABEL_MAX:
        return ()
    complaints = [at_most_characters(LABEL_MAX)] if _size(text) > LABEL_MAX else []
    if not fits:
        complaints.append("must not contain dots" if _is_dns_subdomain(text) else _LABEL_WRONG)
    return complaints


def dns_subdomain(text: str) -> Complaints:
    """A DNS subdomain: the name of most objects."""
    fits = _is_dns_subdomain(text)
    if fits and len(text) <= SUBDOMAIN_MAX:
        return ()
    complaints = [at_most_characters(SUBDOMAIN_MAX)] if _size(text) > SUBDOMAIN_MAX else []
    if not fits:
        complaints.append(_SUBDOMAIN_WRONG)
    return complaints


def dns_search_path(text: str) -> Complaints:
    """A search domain of a resolver, in which underscores are common."""
    fits = _is_dns_subdomain_underscore(text)
    complaints = [at_most_characters(SUBDOMAIN_MAX)] if _size(text) > SUBDOMAIN_MAX else []
    if not fits:
        complaints.append(_SUBDOMAIN_UNDERSCORE_WRONG)
    return complaints


def dns_1035_label(text: str) -> Complaints:
    """A DNS label that does not start with a digit: the name of a service."""
    complaints = [at_most_characters(LABEL_MAX)] if _size(text) > LABEL_MAX else []
    if not _is_dns_1035(text):
        complaints.append(_DNS_1035_WRONG)
    return complaints


def path_segment(text: str) -> Complaints:
    """A name that only has to be one segment of a URL: RBAC objects."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{char}'" for char in "/%" if char in text)


def generated(rule: NameRule) -> NameRule:
    """The same rule for the beginning of a name that random characters are appended to."""

    def checked(text: str) -> Complaints:
        return rule(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return checked


def qualified_name(text: str) -> Complaints:
    """`[prefix/]name`: label keys, finalizers, resource names, QoS-class resources and their classes."""
    return _qualified_name(text) if len(text) <= _CACHED_MAX else _qualified_name.__wrapped__(text)


@lru_cache(maxsize=4096)
def _qualified_name(text: str) -> Complaints:
    if _is_qualified_part(text) and len(text) <= LABEL_MAX:
        return ()
    parts = text.split("/")
    if len(parts) > 2:
        return (_LABEL_KEY_WRONG,)
    complaints: list[str] = []
    if len(parts) == 2:
        prefix = parts[0]
        wrong = dns_subdomain(prefix) if prefix else (EMPTY,)
        complaints.extend(f"prefix part {one}" for one in wrong)
    name = parts[-1]
    if not name:
        complaints.append(f"name part {EMPTY}")
    elif _size(name) > LABEL_MAX:
        complaints.append(f"name part {at_most_bytes(LABEL_MAX)}")
    if not _is_qualified_part(name):
        complaints.append(f"name part {_QUALIFIED_WRONG}")
    return complaints


def is_label_value(text: str) -> bool:
    """Whether there is nothing to complain about; for values that are not expected to come again."""
    return len(text) <= LABEL_MAX and _is_label_value(text) is not None


def label_value(text: str) -> Complaints:
    return _label_value(text) if len(text) <= _CACHED_MAX else _label_value.__wrapped__(text)


@lru_cache(maxsize=4096)
def _label_value(text: str) -> Complaints:
    fits = _is_label_value(text)
    if fits and len(text) <= LABEL_MAX:
        return ()
    complaints = [at_most_bytes(LABEL_MAX)] if _size(text) > LABEL_MAX else []
    if not fits:
        complaints.append(_LABEL_VALUE_WRONG)
    return complaints


def annotation_key(text: str) -> Complaints:
    """Like a label key, whatever the case."""
    return qualified_name(text.lower())


def config_key(text: str) -> Complaints:
    """A key of a ConfigMap or Secret: it may become a file name."""
    complaints = [at_most_characters(SUBDOMAIN_MAX)] if _size(text) > SUBDOMAIN_MAX else []
    if not _is_config_key(text):
        complaints.append(_CONFIG_KEY_WRONG)
    if text in (".", ".."):
        complaints.append(f"must not be '{text}'")
    elif text.startswith(".."):
        complaints.append("must not start with '..'")
    return complaints


def env_var_name(text: str) -> Complaints:
    if not text:
        return (f"environment variable name {EMPTY}",)
    fits = text.isascii() and text.isprintable() and "=" not in text
    return () if fits else (_ENV_NAME_WRONG,)


def port_name(text: str) -> Complaints:
    complaints = []
    if _size(text) > PORT_NAME_MAX:
        complaints.append(at_most_characters(PORT_NAME_MAX))
    if not _is_port_charset(text):
        complaints.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(text):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in text:
        complaints.append("must not contain consecutive hyphens")
    if text and "-" in (text[0], text[-1]):
        complaints.append("must not begin or end with a hyphen")
    return complaints


def port_number(number: int) -> Complaints:
    return () if 1 <= number <= 65535 else (between(1, 65535),)


def user_or_group_id(number: int) -> Complaints:
    return () if 0 <= number <= MAX_INT32 else (between(0, MAX_INT32),)


def http_header(text: str) -> Complaints:
    return () if _is_http_header(text) else (_HTTP_HEADER_WRONG,)


def ip_address(text: str) -> Complaints:
    return () if parse_ip(text) else (_NOT_AN_IP,)


def cidr(text: str) -> Complaints:
    return () if parse_cidr(text) else (_NOT_A_CIDR,)


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address. Leading zeros are read as decimal, as Kubernetes always did."""
    try:
        return ipaddress.ip_address(_without_leading_zeros(text))
    except ValueError:
        return None


def parse_cidr(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """An address range; host bits may be set."""
    if not _is_cidr(text):
        return None
    try:
        return ipaddress.ip_network(_without_leading_zeros(text), strict=False)
    except ValueError:
        return None


def _without_leading_zeros(text: str) -> str:
    if ":" in text or (".0" not in text and not text.startswith("0")):
        return text
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)
