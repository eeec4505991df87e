"""What Kubernetes says about the fields of device claims, classes and slices. CEL expressions are not read."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, invalid, not_supported, required, too_long
from kubeqos.rules.validation.common import NO_LIST, Errors, Raw, complain
from kubeqos.rules.validation.stored.checks import (
    Fields,
    driver_name,
    if_set,
    judged,
    least,
    longest,
    named,
    named_word,
    needs_name,
    set_at_all,
)

_MODES = ("All", "ExactCount")
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_LONGEST_POOL, _LONGEST_VALUE, _LONGEST_DOMAIN = 253, 64, 63
_ONE_ATTRIBUTE = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters"
    " or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_NO_EXPRESSION = (
    "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-',"
    " '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_VALUES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


def _check_claim(out: Errors, path: str, claim: Raw) -> None:
    """Requests have names of their own, and constraints speak of requests that there are."""
    known: set[str] = set()
    for index, request in enumerate(claim.get("requests") or NO_LIST):
        name = request.get("name", "")
        if name in known:
            out.append(duplicate(f"{path}.requests[{index}]", request))
        known |= {name, *(f"{name}/{one.get('name', '')}" for one in request.get("firstAvailable") or NO_LIST)}
    for index, constraint in enumerate(claim.get("constraints") or NO_LIST):
        where = f"{path}.constraints[{index}]"
        seen: set[str] = set()
        for number, name in enumerate(constraint.get("requests") or NO_LIST):
            if name in seen:
                out.append(duplicate(f"{where}.requests[{number}]", name))
            seen.add(name)
            if name not in known:
                why = (
                    "must be the name of a request in the claim or the name of a request and a subrequest"
                    " separated by '/'"
                )
                complain(out, f"{where}.requests[{number}]", name, names.dns_label(name))
                out.append(invalid(f"{where}.requests[{number}]", name, why))


def _check_request(out: Errors, path: str, request: Raw) -> None:
    kinds = [field for field in ("exactly", "firstAvailable") if request.get(field)]
    if request.get("exactly") is not None and "exactly" not in kinds:
        kinds.append("exactly")
    if not kinds:
        out.append(required(path, "exactly one of `exactly` or `firstAvailable` is required"))
    elif len(kinds) > 1:
        why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        out.append(invalid(path, None, why))


def _check_count(out: Errors, path: str, request: Raw) -> None:
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All" and count:
        out.append(invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        out.append(invalid(f"{path}.count", count, names.NOT_POSITIVE))
    elif mode not in _MODES:
        out.append(not_supported(f"{path}.allocationMode", mode, _MODES))


def _check_constraint(out: Errors, path: str, constraint: Raw) -> None:
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is None and distinct is None:
        out.append(required(path, _ONE_ATTRIBUTE))


def _check_full_name(out: Errors, path: str, value: Any) -> None:
    """The name of an attribute with the domain of who defines it."""
    if value is None:
        return
    domain, slash, name = value.rpartition("/")
    if not slash:
        out.append(invalid(path, value, "a fully qualified name must be a domain and a name separated by a slash"))
    if value and len(value) > _LONGEST_DOMAIN and not slash:
        out.append(too_long(path, 32))
    if domain:
        complain(out, path, domain, names.dns_subdomain(domain))
    if not (name.isascii() and name.isidentifier()):
        out.append(invalid(path, name, _IDENTIFIER))


def _check_expression(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(invalid(path, "", _NO_EXPRESSION))


def _check_slice(out: Errors, path: str, spec: Raw) -> None:
    if spec.get("nodeName") == "":
        out.append(invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string"))
    present = [field for field in _NODE_FIELDS if spec.get(field)]
    which = f"exactly one of {', '.join(f'`{field}`' for field in _NODE_FIELDS)} is required"
    if not present:
        out.append(required(path, which))
    elif len(present) > 1:
        told = f"{{{', '.join(f'`{field}`' for field in present)}}}"
        out.append(invalid(path, told, f"{which}, but multiple fields are set"))
    seen: set[str] = set()
    for index, device in enumerate(spec.get("devices") or NO_LIST):
        name = device.get("name", "")
        if name in seen:
            out.append(duplicate(f"{path}.devices[{index}]", name))
        seen.add(name)


def _check_pool_name(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
        return
    if len(value) > _LONGEST_POOL:
        out.append(too_long(path, _LONGEST_POOL))
    for part in value.split("/"):
        complain(out, path, part, names.dns_subdomain(part))


def _check_attribute(out: Errors, path: str, attribute: Raw) -> None:
    present = [field for field in _VALUES if attribute.get(field) is not None]
    if len(present) != 1:
        why = "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
        out.append(invalid(path, "", why))


_REQUEST_NAME = judged(names.dns_label, unset=False)
_DEVICE_CLASS = needs_name(names.dns_subdomain)
TYPES: dict[str, Fields] = {
    "resource/v1.DeviceClaim": {"": _check_claim},
    "resource/v1.DeviceRequest": {"name": _REQUEST_NAME, "": _check_request},
    "resource/v1.ExactDeviceRequest": {"deviceClassName": _DEVICE_CLASS, "": _check_count},
    "resource/v1.DeviceSubRequest": {
        "name": _REQUEST_NAME,
        "deviceClassName": _DEVICE_CLASS,
        "": _check_count,
    },
    "resource/v1.DeviceConstraint": {"matchAttribute": _check_full_name, "": _check_constraint},
    "resource/v1.DeviceSelector": {"cel": set_at_all()},
    "resource/v1.ResourceSliceSpec": {"driver": driver_name, "nodeName": named(names.dns_subdomain), "": _check_slice},
    "resource/v1.ResourcePool": {
        "name": _check_pool_name,
        "generation": least(0, "must be greater than or equal to zero"),
        "resourceSliceCount": least(1, names.NOT_POSITIVE, unset=False),
    },
    "resource/v1.Device": {"name": judged(names.dns_label, unset=False)},
    "resource/v1.DeviceAttribute": {"string": longest(_LONGEST_VALUE), "": _check_attribute},
    "resource/v1.DeviceTaint": {
        "key": judged(names.qualified_name, unset=False),
        "value": named(names.label_value),
        "effect": named_word("NoExecute", "NoSchedule", "None"),
    },
    "resource/v1.DeviceTaintSelector": {
        "driver": if_set(driver_name),
        "pool": if_set(_check_pool_name),
        "device": judged(names.dns_label),
    },
    "resource/v1.CounterSet": {"name": needs_name(names.dns_label)},
    "resource/v1.CELDeviceSelector": {"expression": _check_expression},
}
