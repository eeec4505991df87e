"""Text as Go writes it into messages. Every room whose words clients of Kubernetes know quotes through here."""

from __future__ import annotations

_ESCAPES = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_ESCAPES |= {'"': r"\"", "\\": r"\\"}


def quote(text: str) -> str:
    """`text` in double quotes, escaped as Go's `%q` and strconv.Quote do."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def quote_char(char: str) -> str:
    """A character as Go's JSON decoder quotes it: in single quotes, which alone are then escaped."""
    if char in "'\"":
        return {"'": r"'\''", '"': "'\"'"}[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"'\\x{code - 0xDC00:02x}'"
    return f"'{_escaped(char)}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():  # Go's unicode.IsPrint: letters, marks, numbers, punctuation, symbols and the space
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xD800 <= code <= 0xDFFF:  # half of a surrogate pair is no character in Go
        return r"\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
