"""What names may look like, and what users are told when they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model import names

SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (names.dns_label, ["a", "1", "a-b", "a" * 63], ["", "A", "-a", "a-", "a.b", "a" * 64, "é", "a\n"]),
        (names.dns_subdomain, ["a", "a.b", "1.2", "a" * 253], ["", "A", "a..b", ".a", "a" * 254, "a b"]),
        (names.dns_1035_label, ["a", "a1"], ["1a", "A", "a.b"]),
        (names.qualified_name, ["a", "A_b.c", "example.com/x"], ["", "/x", "x/", "a/b/c", "a b", "E.com/x", "x" * 64]),
        (names.label_value, ["", "a", "ok_1.2"], ["x-", "a/b", "é", "x" * 64]),
        (names.annotation_key, ["EXAMPLE.com/X"], ["a/b/c", "/x"]),
        (names.config_key, ["_", "A-b.C_9"], ["", "a b", ".", "..", "..x", "x" * 254]),
        (names.env_var_name, ["A", "A B", "1"], ["", "a=b", "é", "a\t"]),
        (names.port_name, ["http", "a1", "x-y"], ["", "Http", "80", "a--b", "-a", "a" * 16]),
        (names.path_segment, ["system:node", "A b"], [".", "..", "a/b", "a%b"]),
        (names.ip_address, ["10.0.0.1", "010.0.0.1", "::1"], ["x", "", "10.0.0", "1.2.3.4.5"]),
        (names.cidr, ["10.0.0.0/8", "10.1.2.3/8", "2001:db8::/64"], ["x", "10.0.0.0", "10.0.0.0/255.0.0.0", "1/33"]),
    ],
)
def test_each_rule_accepts_and_refuses(rule, good, bad):
    assert [text for text in good if rule(text)] == []
    for text in bad:
        assert rule(text), text


def test_a_dotted_label_is_told_about_its_dots():
    assert names.dns_label("a.b") == ["must not contain dots"]


def test_every_wrong_part_of_a_qualified_name_is_named():
    wrong = names.qualified_name("Bad!/")
    assert [one.split(" must")[0] for one in wrong] == [
        "prefix part a lowercase RFC 1123 subdomain",
        "name part",
        "name part",
    ]
    assert wrong[0].startswith(f"prefix part {SUBDOMAIN}")


def test_the_beginning_of_a_generated_name_may_end_with_a_dash():
    assert names.dns_subdomain("web-")
    assert names.generated(names.dns_subdomain)("web-") == ()


@given(st.text(max_size=70))
def test_a_label_is_always_a_subdomain_and_a_label_value(text):
    if not names.dns_label(text):
        assert not names.dns_subdomain(text)
        assert not names.label_value(text)
        assert not names.qualified_name(text)
