"""Text in quotes, as Go writes it."""

from __future__ import annotations

import pytest

from kubeqos.model.text.gotext import quote, quote_char


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ("größe €", '"größe €"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a\\b", r'"a\\b"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\0\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\x80\xa0\xad\ufeff\u2028", r'"\u0080\u00a0\u00ad\ufeff\u2028"'),
        ("\U0001f600", '"\U0001f600"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("\ud800", r'"\ufffd"'),
    ],
)
def test_a_string_is_quoted_as_strconv_quote_does(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("char", "quoted"),
    [("a", "'a'"), ("'", r"'\''"), ('"', "'\"'"), ("\r", r"'\r'"), ("\\", r"'\\'"), ("\0", r"'\x00'"), ("\a", r"'\a'")],
)
def test_a_character_is_quoted_as_the_json_decoder_does(char: str, quoted: str) -> None:
    assert quote_char(char) == quoted
