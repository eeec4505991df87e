"""Kubernetes quantities: exact numbers with a suffix, read and printed as the API server does.

A quantity is a mantissa and a power of ten, so sums never lose anything; nothing here is a float. Printing follows
Kubernetes: the suffix family of the input is kept, no fraction digits, the largest suffix that keeps the number whole.
Finer than a billionth is rounded up, away from zero, "under the theory that you want some resources if you asked".

Kubernetes keeps small numbers as int64 and large ones as big decimals, which shows at the edges: text that is already
canonical is echoed as it was written (`+1e+3`, `027614938.090888`), and conversions of huge int64 values wrap. Both are
part of the wire behaviour and are reproduced here on purpose. So is that within one request an amount remembers how it
was written, even where its canonical text no longer tells (`QuantityText`).
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache, total_ordering
from typing import Any, ClassVar

from kubeqos.errors import InputError

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"
NUMBER_WRONG = "unable to parse numeric part of quantity"

_NANO = -9
_MILLI = -3
_MAX_INT64 = (1 << 63) - 1
_INT64_DIGITS = 18  # every number of so many decimal digits fits into an int64
_MAX_DIGITS = 4096  # longer numbers only serve to keep a server busy
_MAX_SCALE = 4096  # for the same reason 1e2147483647 counts as 1e4096: larger than all else
_GRAMMAR = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)


class QuantityError(InputError, ValueError):
    """Text that is not a quantity. A ValueError too, so that decoders add the path to it."""


class Format(enum.Enum):
    """The suffix family a quantity was written in, kept when it is printed."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"

    __hash__ = object.__hash__  # tallies are kept by format: not by way of the name


_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES = {0: "", **{bits // 10: suffix for suffix, bits in _BINARY_SUFFIXES.items()}}


@total_ordering
class Quantity:
    """An exact amount, equal by value: `Quantity.parse("100m") == Quantity.parse("0.1")`."""

    __slots__ = ("_big", "_mantissa", "_scale", "_text", "format", "nanos")

    ZERO: ClassVar[Quantity]

    def __init__(
        self,
        mantissa: int,
        scale: int = 0,
        format: Format = Format.DECIMAL_SI,
        *,
        text: str | None = None,
        big: bool = False,
    ) -> None:
        """`mantissa · 10**scale` with `scale >= -9`; use `parse` or the `from_…` constructors instead."""
        self._mantissa = mantissa
        self._scale = scale
        self.format = format
        self._text = text
        self._big = big
        self.nanos: int = mantissa * 10 ** (min(scale, _MAX_SCALE) - _NANO)
        """The exact value in billionths."""

    # -- making --------------------------------------------------------------------------------------------

    @staticmethod
    def parse(text: str | int | float) -> Quantity:
        """Read a quantity from its text, or from a JSON or YAML number."""
        if isinstance(text, str):
            return text.amount if isinstance(text, QuantityText) else _parse(text)
        if isinstance(text, bool) or not isinstance(text, int | float):
            raise QuantityError(FORMAT_WRONG)
        return _parse(str(text))

    @staticmethod
    def from_document(value: Any) -> Quantity:
        """Read the value of a decoded document, which may have space around its text."""
        return Quantity.parse(value.strip() if isinstance(value, str) else value)

    @staticmethod
    def from_json(token: bytes) -> Quantity:
        """Read the raw JSON token. Like the real decoder this does not undo escapes inside a string."""
        text = token.decode()
        if text == "null":
            return Quantity.ZERO
        if len(text) >= 2 and text[0] == text[-1] == '"':
            text = text[1:-1]
        return _parse(text.strip())

    @staticmethod
    def from_int(value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        return Quantity(value, 0, format)

    @staticmethod
    def from_bytes(amount: int) -> Quantity:
        """Memory and disk as nodes write them: in Ki where it can be."""
        return Quantity.from_int(amount, Format.BINARY_SI)

    @staticmethod
    def from_milli(value: int) -> Quantity:
        return Quantity(value, _MILLI, Format.DECIMAL_SI)

    @staticmethod
    def from_nanos(value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        return Quantity(value, _NANO, format)

    # -- views ---------------------------------------------------------------------------------------------

    @property
    def is_zero(self) -> bool:
        return self._mantissa == 0

    def value(self) -> int:
        """Whole units, rounded up."""
        return -(-self.nanos // 1_000_000_000)

    def milli(self) -> int:
        """Thousandths, rounded up."""
        return -(-self.nanos // 1_000_000)

    def milli_int64(self) -> int:
        """Thousandths as Kubernetes computes them in an int64, overflow included.

        Amounts kept as big decimals wrap around. Amounts kept as int64 wrap too where the factor is one of the
        constants that have their own multiplication, and become 0 otherwise.
        """
        exact = _away_from_zero(self.nanos, 1_000_000)
        if -_MAX_INT64 - 1 <= exact <= _MAX_INT64:
            return exact
        if not self._big and self._scale - _MILLI not in (1, 2, 3, 6, 9):
            return 0
        return (exact + _MAX_INT64 + 1) % (1 << 64) - _MAX_INT64 - 1

    @property
    def is_integer(self) -> bool:
        """Whether validation takes this for a whole number (which for huge amounts it may not)."""
        return self.milli_int64() % 1000 == 0

    def round_up_milli(self) -> Quantity:
        """What remains of this amount in a resource list: thousandths, away from zero."""
        if self._scale >= _MILLI:
            return self
        return Quantity(_away_from_zero(self.nanos, 1_000_000), _MILLI, self.format, big=self._big)

    # -- arithmetic ----------------------------------------------------------------------------------------

    def __add__(self, other: Quantity) -> Quantity:
        return _exact(self.nanos + other.nanos, other.format if self._mantissa == 0 else self.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return _exact(self.nanos - other.nanos, other.format if self._mantissa == 0 else self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self._mantissa, self._scale, self.format, big=self._big)

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        return self._mantissa != 0

    # -- printing ------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self._mantissa, self._scale, self.nanos, self.format)
        return self._text

    def text(self) -> str:
        """The canonical text, for a document that is still being worked on."""
        text = str(self)
        again = _parse(text)
        alike = again.format is self.format and again._big == self._big
        if self._mantissa and not (alike and (again._scale == self._scale or self._milli_fits)):
            return QuantityText(text, self)
        return text

    @property
    def _milli_fits(self) -> bool:
        return -_MAX_INT64 - 1 <= _away_from_zero(self.nanos, 1_000_000) <= _MAX_INT64

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Quantity.parse, (str(self),))


class QuantityText(str):
    """Canonical text that would not be the same amount if read back: `1e1` prints as `10`, whose sums look different.

    A plain string to everyone else; `codec` encodes it as one, so that what is stored has forgotten.
    """

    __slots__ = ("amount",)
    amount: Quantity

    def __new__(cls, text: str, amount: Quantity | None = None) -> QuantityText:
        made = super().__new__(cls, text)
        made.amount = amount if amount is not None else _parse(text)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantityText:
        return self


def parse_uncached(text: str) -> Quantity:
    """Read a quantity without looking whether it was read before."""
    match = _GRAMMAR.fullmatch(text)
    if match is None or not text:
        raise QuantityError(FORMAT_WRONG)
    if len(text) > _MAX_DIGITS:
        raise QuantityError(NUMBER_WRONG)
    sign, whole, fraction, suffix = match.groups()
    if suffix in _BINARY_SUFFIXES:
        bits = _BINARY_SUFFIXES[suffix]
        return _parse_binary(text, -1 if sign == "-" else 1, whole or "0", fraction or "", bits)
    exponent, format = _decimal_exponent(suffix)
    return _parse_decimal(text, -1 if sign == "-" else 1, whole or "0", fraction or "", exponent, format)


# Objects repeat few distinct quantities many times; values are immutable, so they can be shared.
_parse = lru_cache(maxsize=8192)(parse_uncached)


def canonical_amounts(values: dict[str, Any]) -> dict[str, Any]:
    """A list of resources in canonical form: its amounts are never finer than a thousandth."""
    return {
        name: "0" if value is None else Quantity.from_document(value).round_up_milli().text()
        for name, value in values.items()
    }


def decode_hook(kind: type, value: Any) -> Any:
    """What msgspec asks where a view has a type that it does not know: quantities are the only one."""
    if kind is Quantity:
        return Quantity.parse(value)
    raise TypeError(f"no conversion to {kind.__name__}")


def _decimal_exponent(suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    if len(suffix) > 1 and suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            raise QuantityError(SUFFIX_WRONG) from None
        if -_MAX_INT64 - 1 <= exponent <= _MAX_INT64:
            return (exponent + (1 << 31)) % (1 << 32) - (1 << 31), Format.DECIMAL_EXPONENT
    raise QuantityError(SUFFIX_WRONG)


def _parse_decimal(text: str, sign: int, whole: str, fraction: str, exponent: int, format: Format) -> Quantity:
    digits = whole + fraction
    scale = exponent - len(fraction)
    if len(digits) <= _INT64_DIGITS and scale >= _NANO:
        already_canonical = scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
        return Quantity(sign * int(digits), scale, format, text=text if already_canonical else None)
    _need_digit(text)
    mantissa = int(digits)
    if scale < _NANO:
        # An exponent may be as small as -2**31: anything that far below a billionth is one billionth.
        excess = min(_NANO - scale, len(digits) + 1)
        mantissa, scale = -(-mantissa // 10**excess), _NANO
    return Quantity(sign * mantissa, scale, format, big=True)


def _parse_binary(text: str, sign: int, whole: str, fraction: str, bits: int) -> Quantity:
    if not fraction and 15 - len(whole) - bits * 3 // 10 - 1 >= 0:
        already_canonical = int(whole) % 8 != 0
        mantissa = sign * (int(whole) << bits)
        return Quantity(mantissa, 0, Format.BINARY_SI, text=text if already_canonical else None)
    _need_digit(text)
    scale = max(-len(fraction), _NANO)
    mantissa = -(-(int(whole + fraction) << bits) // 10 ** (len(fraction) + scale))
    nanos = mantissa * 10 ** (scale - _NANO)
    if nanos > _MAX_INT64 * 10**9:
        mantissa, scale = _MAX_INT64, 0
    below_one = 0 < nanos < 10**9
    return Quantity(sign * mantissa, scale, Format.DECIMAL_SI if below_one else Format.BINARY_SI, big=True)


def _need_digit(text: str) -> None:
    """Small numbers may be left out altogether (`Ki` is 0), those that need a big decimal may not (`Ei`, `e-10`)."""
    if not text.lstrip("+-.")[:1].isdigit():
        raise QuantityError(NUMBER_WRONG)


def _away_from_zero(number: int, unit: int) -> int:
    return -(-number // unit) if number >= 0 else number // unit


def _exact(nanos: int, format: Format) -> Quantity:
    return Quantity(nanos, _NANO, format, big=not -_MAX_INT64 <= nanos <= _MAX_INT64)


def _canonical(mantissa: int, scale: int, nanos: int, format: Format) -> str:
    if mantissa == 0:
        return "0"
    if format is Format.BINARY_SI and (abs(nanos) < 1024 * 10**9 or nanos % 10**9):
        format = Format.DECIMAL_SI  # a binary suffix would lose digits
    if format is Format.BINARY_SI:
        whole, times = nanos // 10**9, 0
        while whole % 1024 == 0:
            whole, times = whole // 1024, times + 1
        return f"{whole}{_BINARY_NAMES.get(times, '')}"
    while mantissa % 10 == 0:
        mantissa, scale = mantissa // 10, scale + 1
    surplus = scale % 3
    mantissa, scale = mantissa * 10**surplus, scale - surplus
    if format is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{scale}" if scale else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES.get(scale, '')}"


Quantity.ZERO = Quantity(0)
