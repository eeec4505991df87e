"""Why a text is not JSON, in the words of Go's decoder: clients of Kubernetes know these texts.

Runs only after the fast decoder refused a document, so it is written for clarity, not speed.
"""

from __future__ import annotations

from kubeqos.model.text.gotext import quote_char

_SPACE = " \t\r\n"
_END = "unexpected end of JSON input"


class _Problem(Exception):
    pass


def syntax_problem(data: bytes) -> str | None:
    """What Go's decoder would say about these bytes; None when they are well-formed JSON."""
    try:
        _Scanner(data.decode("utf-8", "surrogateescape")).document()
    except _Problem as problem:
        return str(problem)
    except RecursionError:
        return "exceeded max depth"
    return None


class _Scanner:
    """A plain recursive-descent reader that only looks for the first error."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def document(self) -> None:
        self.value("looking for beginning of value")
        self.skip()
        if self.position < len(self.text):
            self.fail("after top-level value")

    def fail(self, context: str) -> None:
        if self.position >= len(self.text):
            raise _Problem(_END)
        raise _Problem(f"invalid character {quote_char(self.text[self.position])} {context}")

    def skip(self) -> None:
        while self.position < len(self.text) and self.text[self.position] in _SPACE:
            self.position += 1

    def peek(self) -> str:
        self.skip()
        return self.text[self.position] if self.position < len(self.text) else ""

    def value(self, context: str) -> None:
        char = self.peek()
        if char == "{":
            self.object()
        elif char == "[":
            self.array()
        elif char == '"':
            self.string()
        elif char == "-" or char.isdigit():
            self.number()
        elif char and char in "tfn":
            self.word({"t": "true", "f": "false", "n": "null"}[char])
        else:
            self.fail(context)

    def object(self) -> None:
        self.position += 1
        if self.peek() == "}":
            self.position += 1
            return
        while True:
            if self.peek() != '"':
                self.fail("looking for beginning of object key string")
            self.string()
            if self.peek() != ":":
                self.fail("after object key")
            self.position += 1
            self.value("looking for beginning of value")
            if self.peek() == "}":
                self.position += 1
                return
            if self.peek() != ",":
                self.fail("after object key:value pair")
            self.position += 1

    def array(self) -> None:
        self.position += 1
        if self.peek() == "]":
            self.position += 1
            return
        while True:
            self.value("looking for beginning of value")
            if self.peek() == "]":
                self.position += 1
                return
            if self.peek() != ",":
                self.fail("after array element")
            self.position += 1

    def string(self) -> None:
        self.position += 1
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == '"':
                self.position += 1
                return
            if char == "\\":
                self.position += 1
                escape = self.text[self.position : self.position + 1]
                if escape == "u":
                    for _ in range(4):
                        self.position += 1
                        if self.text[self.position : self.position + 1] not in tuple("0123456789abcdefABCDEF"):
                            self.fail("in \\u hexadecimal character escape")
                elif escape not in tuple('"\\/bfnrt'):
                    self.fail("in string escape code")
            elif char < " ":
                self.fail("in string literal")
            self.position += 1
        raise _Problem(_END)

    def word(self, word: str) -> None:
        for index, char in enumerate(word):
            if self.text[self.position : self.position + 1] != char:
                self.fail(
                    f"in literal {word} (expecting {quote_char(char)})" if index else "looking for beginning of value"
                )
            self.position += 1

    def digits(self, context: str) -> None:
        if not self.text[self.position : self.position + 1].isdigit():
            self.fail(context)
        while self.text[self.position : self.position + 1].isdigit():
            self.position += 1

    def number(self) -> None:
        if self.text[self.position] == "-":
            self.position += 1
        if self.text[self.position : self.position + 1] == "0":
            self.position += 1
        else:
            self.digits("in numeric literal")
        if self.text[self.position : self.position + 1] == ".":
            self.position += 1
            self.digits("after decimal point in numeric literal")
        if self.text[self.position : self.position + 1] in ("e", "E"):
            self.position += 1
            if self.text[self.position : self.position + 1] in ("+", "-"):
                self.position += 1
            self.digits("in exponent of numeric literal")
