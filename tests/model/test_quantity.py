"""Laws of quantities: printing is reversible, order is by value, sums are exact."""

import copy
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import encode_json
from kubeqos.model.quantity import NUMBER_WRONG, Quantity, QuantityError

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "Ki": Fraction(1 << 10), "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30), "e3": Fraction(1000), "E-2": Fraction(1, 100), "e0": Fraction(1),
}  # fmt: skip
numbers = st.tuples(
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**9),
    st.integers(0, 9999),
    st.booleans(),
    st.sampled_from(sorted(SUFFIXES)),
)


def written(parts) -> tuple[str, Fraction]:
    """A text and the exact number it stands for."""
    sign, whole, fraction, has_fraction, suffix = parts
    digits = f"{whole}.{fraction:04d}" if has_fraction else str(whole)
    value = Fraction(digits) * SUFFIXES[suffix]
    return f"{sign}{digits}{suffix}", -value if sign == "-" else value


def nanos(value: Fraction) -> int:
    """In billionths, away from zero."""
    scaled = value * 10**9
    return -(-scaled.numerator // scaled.denominator) if scaled >= 0 else scaled.numerator // scaled.denominator


@settings(max_examples=300)
@given(numbers)
def test_the_value_is_exact_to_a_billionth_and_survives_printing(parts):
    text, value = written(parts)
    quantity = Quantity.parse(text)
    assert quantity.nanos == nanos(value)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)
    assert hash(again) == hash(quantity)


@settings(max_examples=300)
@given(numbers, numbers)
def test_order_and_sums_follow_the_values(left, right):
    one, other = Quantity.parse(written(left)[0]), Quantity.parse(written(right)[0])
    assert (one < other) == (one.nanos < other.nanos)
    assert (one == other) == (one.nanos == other.nanos)
    assert (one + other).nanos == one.nanos + other.nanos
    assert (one - other).nanos == one.nanos - other.nanos
    assert (one + other) - other == one


@settings(max_examples=300)
@given(numbers)
def test_thousandths_and_units_round_up_in_size(parts):
    quantity = Quantity.parse(written(parts)[0])
    rounded = quantity.round_up_milli()
    assert rounded.nanos % 10**6 == 0
    assert abs(rounded.nanos) - abs(quantity.nanos) in range(10**6)
    assert quantity.value() * 10**9 >= quantity.nanos > (quantity.value() - 1) * 10**9


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("1e3", "1e3"),
        ("0.1", "100m"),
        ("1024Ki", "1Mi"),
        ("0", "0"),
    ],
)
def test_well_known_texts_print_as_kubernetes_prints_them(text, canonical):
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("written", "text", "more", "total"),
    [
        ("1e1", "10", "500m", "10500e-3"),
        ("0.5Ki", "512", "1536", "2Ki"),
        ("1500m", "1500m", "1", "2500m"),
    ],
)
def test_a_sum_looks_as_its_first_part_was_written_though_the_text_no_longer_tells(written, text, more, total):
    kept = copy.deepcopy(Quantity.parse(written).text())
    assert kept == text and encode_json(kept) == f'"{text}"'.encode()
    assert str(Quantity.parse(kept) + Quantity.parse(more)) == total


@pytest.mark.parametrize("written", ["10000000000000M", "1000000000000000000e1", "10000000000000000000"])
def test_a_huge_amount_is_judged_as_it_was_written(written):
    assert not Quantity.parse(Quantity.parse(written).text()).is_integer


@pytest.mark.parametrize("text", ["Ei", "-Pi", ".Ei", "e-10", "+e-12", "-.e-30"])
def test_a_number_may_not_be_left_out_where_it_needs_a_big_decimal(text):
    with pytest.raises(QuantityError, match=NUMBER_WRONG):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["Ki", "-Ti", "e3", "n", "+", "."])
def test_a_small_number_that_is_left_out_is_nothing(text):
    assert Quantity.parse(text).is_zero


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_clear_refusal(text):
    try:
        Quantity.parse(text)
    except QuantityError as error:
        assert "quantit" in error.what
