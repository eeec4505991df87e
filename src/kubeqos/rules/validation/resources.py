"""Resource names and amounts: what containers, pods, quotas and limit ranges may say about resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeqos.model import names
from kubeqos.model.quantity import Quantity, QuantityError
from kubeqos.model.remember import remembered
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_found, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, complain

_COMPUTE = frozenset(("cpu", "memory"))
_CONTAINER = frozenset(("cpu", "memory", "ephemeral-storage"))
COUNTED = frozenset(
    (
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    )
)  # fmt: skip
QUOTA = COUNTED | frozenset(
    (
        "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
        "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    )
)  # fmt: skip
_STANDARD = QUOTA | {"storage"}
_POD_LEVEL = ("cpu", "hugepages-", "memory")
_MAX_LISTED = 100
HUGE_PAGES = "hugepages-"
_REQUESTS = "requests."
_UNKNOWN = "must be a standard resource type or fully qualified"


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines the resource."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether the resource is a vendor's, and usable in a quota as `requests.<name>`."""
    return not is_native(name) and not name.startswith(_REQUESTS) and not names.qualified_name(f"{_REQUESTS}{name}")


def is_overcommit_allowed(name: str) -> bool:
    """Whether a request may be smaller than the limit."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def is_standard_quota_name(name: str) -> bool:
    return name in QUOTA or name.startswith((HUGE_PAGES, f"{_REQUESTS}{HUGE_PAGES}"))


@remembered(1024)
def is_integer_only(name: str) -> bool:
    """Whether amounts of the resource are counted in whole units."""
    return name in COUNTED or is_extended(name)


@remembered(1024)
def resource_name(name: str) -> tuple[str, ...]:
    """Complaints about a resource name as such."""
    if name in _CONTAINER:
        return ()
    if wrong := names.qualified_name(name):
        return tuple(wrong)
    if "/" in name or name in _STANDARD or name.startswith((HUGE_PAGES, f"{_REQUESTS}{HUGE_PAGES}")):
        return ()
    return (_UNKNOWN,)


@remembered(1024)
def container_resource_name(name: str) -> tuple[str, ...]:
    """Complaints about a resource that a container asks for."""
    wrong = resource_name(name)
    if "/" not in name:
        if name not in _CONTAINER and not name.startswith(HUGE_PAGES):
            return (*wrong, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        return (*wrong, "doesn't follow extended resource name standard")
    return wrong


@remembered(1024)
def quota_resource_name(name: str) -> tuple[str, ...]:
    """Complaints about a resource that a quota counts."""
    wrong = resource_name(name)
    if "/" not in name and not is_standard_quota_name(name):
        return (*wrong, "must be a standard resource for quota")
    return wrong


def check_amount(out: Errors, path: str, name: str, amount: Quantity) -> None:
    if amount.nanos < 0:
        out.append(invalid(path, amount, names.NEGATIVE))
    if name not in _CONTAINER and is_integer_only(name) and not amount.is_integer:
        out.append(invalid(path, amount, names.NOT_INTEGER))


def amounts(raw: Mapping[str, str] | None) -> dict[str, Quantity]:
    """A resource list as quantities."""
    return {name: Quantity.parse(text) for name, text in (raw or NO_MAP).items()}


def check_requirements(
    out: Errors, path: str, raw: Raw, claims: frozenset[str], *, check_name: Callable[[Errors, str, str], None]
) -> None:
    """Requests and limits that belong together, of a container or of a pod."""
    limits, requests = amounts(raw.get("limits")), amounts(raw.get("requests"))
    compute = huge = False
    for name, limit in limits.items():
        where = f"{path}.limits[{name}]"
        check_name(out, where, name)
        check_amount(out, where, name, limit)
        if name in _COMPUTE:
            compute = True
        elif name.startswith(HUGE_PAGES):
            huge = True
            _check_huge_pages(out, where, name, limit)
    for name, request in requests.items():
        where = f"{path}.requests[{name}]"
        check_name(out, where, name)
        check_amount(out, where, name, request)
        _check_against_limit(out, path, name, request, limits.get(name))
        if name in _COMPUTE:
            compute = True
        elif name.startswith(HUGE_PAGES):
            huge = True
            _check_huge_pages(out, where, name, request)
    if huge and not compute:
        out.append(forbidden(path, "HugePages require cpu or memory"))
    if raw.get("claims"):
        _check_claims(out, f"{path}.claims", raw["claims"], claims)


def check_container_requirements(out: Errors, path: str, raw: Raw, claims: frozenset[str]) -> None:
    check_requirements(out, path, raw, claims, check_name=_check_container_name)


def check_pod_requirements(out: Errors, path: str, raw: Raw, claims: frozenset[str]) -> None:
    check_requirements(out, path, raw, claims, check_name=_check_pod_name)


def _check_container_name(out: Errors, path: str, name: str) -> None:
    if name not in _CONTAINER:
        complain(out, path, name, container_resource_name(name))


def _check_pod_name(out: Errors, path: str, name: str) -> None:
    if wrong := resource_name(name):
        complain(out, path, name, wrong)
    elif name not in _COMPUTE and not name.startswith(HUGE_PAGES):
        out.append(not_supported(path, name, _POD_LEVEL))


def _check_against_limit(out: Errors, path: str, name: str, request: Quantity, limit: Quantity | None) -> None:
    if limit is None:
        if name in _CONTAINER:
            return
        if not is_overcommit_allowed(name):
            out.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    elif request.nanos != limit.nanos:
        if not is_overcommit_allowed(name):
            out.append(invalid(f"{path}.requests", request, f"must be equal to {name} limit of {limit}"))
        elif request.nanos > limit.nanos:
            out.append(invalid(f"{path}.requests", request, f"must be less than or equal to {name} limit of {limit}"))


def _check_huge_pages(out: Errors, path: str, name: str, amount: Quantity) -> None:
    try:
        page = Quantity.parse(name.removeprefix(HUGE_PAGES))
    except QuantityError:
        divisible = False
    else:
        divisible = page.nanos > 0 and page.is_integer and amount.value() % page.value() == 0
    if not divisible:
        out.append(invalid(path, amount, f"{amount} is not positive integer multiple of {name}"))


def _check_claims(out: Errors, path: str, claims: list[Raw], known: frozenset[str]) -> None:
    seen: set[str] = set()
    in_part: set[str] = set()
    shown = sorted(known)[:_MAX_LISTED] + ["..."] * (len(known) > _MAX_LISTED)
    listed = f": {', '.join(shown)}" if known else " which is empty"
    for index, claim in enumerate(claims):
        where, name, request = f"{path}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            out.append(required(where))
            continue
        if name in seen:
            out.append(duplicate(where, name))
        else:
            if request:
                complain(out, f"{where}.request", request, names.dns_label(request))
            key = f"{name}/{request}" if request else name
            if key in seen or (not request and name in in_part):
                out.append(duplicate(where, key))
            seen.add(key)
            if request:
                in_part.add(name)
        if name not in known:
            out.append(not_found(where, name, f"must be one of the names in pod.spec.resourceClaims{listed}"))


def check_pod_level(
    out: Errors,
    path: str,
    resources: Raw,
    all_requests: Mapping[str, Quantity],
    all_limits: Mapping[str, Quantity],
    spec: Raw,
) -> None:
    """Pod-level resources against those of the containers: requests cover the sum, limits cover each."""
    requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
    for name, total in all_requests.items():
        own = requests.get(name)
        if own is not None and total > own:
            why = f"must be greater than or equal to aggregate container requests of {total}"
            out.append(invalid(f"{path}.requests[{name}]", own, why))
    for name, total in all_limits.items():
        own = limits.get(name) if name.startswith(HUGE_PAGES) else None
        if own is not None and total > own:
            why = f"must be greater than or equal to aggregate container limits of {total}"
            out.append(invalid(f"{path}.limits[{name}]", own, why))
    for index, container in enumerate(spec.get("containers") or NO_LIST):
        for name, limit in amounts((container.get("resources") or NO_MAP).get("limits")).items():
            pod_limit = limits.get(name)
            if pod_limit is not None and limit > pod_limit:
                why = f"must be less than or equal to pod limits of {pod_limit}"
                out.append(invalid(f"{path}.containers[{index}][{name}].limits", limit, why))
