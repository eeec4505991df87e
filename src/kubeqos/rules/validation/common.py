"""Small checks that the validation of every kind shares.

A check appends to the list of errors it is given: a valid object then costs no allocation on the way. Paths are plain
strings, built only where a check cannot tell from the value alone that all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import FieldError, forbidden, invalid, not_supported, required

Raw = Mapping[str, Any]
Errors = list[FieldError]
Check = Callable[[Errors, str, Any], None]

NO_LIST: tuple[Any, ...] = ()
NO_MAP: Raw = {}


def complain(out: Errors, path: str, value: Any, complaints: Iterable[str]) -> None:
    """Add what a name rule had to say."""
    out.extend(invalid(path, value, one) for one in complaints)


def check_choice(out: Errors, path: str, value: Any, supported: Collection[str]) -> None:
    """The value must be one of those supported, which are printed in the order given; empty means missing."""
    if value in supported:
        return
    out.append(not_supported(path, value, supported) if value else required(path))


def check_supported(out: Errors, path: str, value: Any, supported: Collection[str]) -> None:
    """As `check_choice`, where the empty text is just another unsupported value."""
    if value not in supported:
        out.append(not_supported(path, value, supported))


def check_non_negative(out: Errors, path: str, value: int | None) -> None:
    if value is not None and value < 0:
        out.append(invalid(path, value, names.NEGATIVE))


def check_label_key(out: Errors, path: str, key: str) -> None:
    if wrong := names.qualified_name(key):
        complain(out, path, key, wrong)


def check_labels(out: Errors, path: str, labels: Mapping[str, str] | None) -> None:
    for key, value in (labels or NO_MAP).items():
        if wrong := names.qualified_name(key):
            complain(out, path, key, wrong)
        if wrong := names.label_value(value):
            complain(out, path, value, wrong)


def check_label_selector(out: Errors, path: str, selector: Raw | None) -> None:
    """A selector object: `matchLabels` and `matchExpressions`."""
    if not selector:
        return
    check_labels(out, f"{path}.matchLabels", selector.get("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or NO_LIST):
        check_selector_expression(out, f"{path}.matchExpressions[{index}]", expression)


def check_set_operator(out: Errors, path: str, operator: str, values: Sequence[object]) -> bool:
    """Values where `In` and its kin need them, none where they may not be; False for an operator of another kind."""
    if operator in ("In", "NotIn") and not values:
        out.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        out.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    return operator in ("In", "NotIn", "Exists", "DoesNotExist")


def check_selector_expression(out: Errors, path: str, expression: Raw) -> None:
    operator, values = expression.get("operator", ""), expression.get("values") or NO_LIST
    if not check_set_operator(out, path, operator, values):
        out.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    check_label_key(out, f"{path}.key", expression.get("key", ""))
    for index, value in enumerate(values):
        complain(out, f"{path}.values[{index}]", value, names.label_value(value))


def check_port_or_name(out: Errors, path: str, port: int | str | None) -> None:
    if isinstance(port, str):
        complain(out, path, port, names.port_name(port))
    else:
        complain(out, path, port or 0, names.port_number(port or 0))


def check_reachable(out: Errors, path: str, text: str) -> None:
    """An address at which somebody else can be reached."""
    address = names.parse_ip(text)
    if address is None:
        complain(out, path, text, names.ip_address(text))
        return
    if address.is_unspecified:
        out.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        out.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        out.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))


def check_local_path(out: Errors, path: str, target: str, *, reserved: bool = False) -> None:
    """A relative path that stays below its root; `reserved` also forbids names that start with two dots."""
    if target.startswith("/"):
        out.append(invalid(path, target, "must be a relative path"))
    check_no_backsteps(out, path, target)
    if reserved and target.startswith("..") and not target.startswith("../"):
        out.append(invalid(path, target, "must not start with '..'"))


def check_no_backsteps(out: Errors, path: str, target: str) -> None:
    if ".." in target.split("/"):
        out.append(invalid(path, target, "must not contain '..'"))


def check_immutable(out: Errors, path: str, new: Any, old: Any) -> None:
    if new != old:
        out.append(invalid(path, new, names.IMMUTABLE))


def go_struct(raw: Raw, fields: Sequence[str]) -> dict[str, Any]:
    """An object as Kubernetes prints its internal form: Go's field names, and null for what is not set."""
    return {f"{field[0].upper()}{field[1:]}": raw.get(field) for field in fields}
