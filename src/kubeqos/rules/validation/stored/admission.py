"""What Kubernetes says about the fields of admission webhooks and policies. CEL expressions are not read."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kubeqos.model import names
from kubeqos.rules.fielderror import invalid, required
from kubeqos.rules.validation.common import NO_LIST, Check, Errors, Raw, complain
from kubeqos.rules.validation.stored.checks import (
    Fields,
    choice,
    judged,
    needed,
    needs_name,
    set_at_all,
    unique,
    within,
    word,
)

_FAILURES = choice("Fail", "Ignore")
_MATCHES = choice("Equivalent", "Exact")
_REVIEWS = ("v1", "v1beta1")
_URL = "; desired format: https://host[/path]"
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_LONGEST_TIMEOUT = 30


def lone_star(things: str) -> Check:
    """A star stands for all, and then alone."""

    def check(out: Errors, path: str, value: Any) -> None:
        if len(value or ()) > 1 and "*" in value:
            out.append(invalid(path, value, f"if '*' is present, must not specify other {things}"))

    return check


def _check_hook_name(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path))
        return
    wrong = names.dns_subdomain(value)
    complain(out, path, value, wrong)
    if not wrong and value.count(".") < 2:
        out.append(invalid(path, value, "should be a domain with at least three segments separated by dots"))


def _check_reviews(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(required(path, f"must specify one of {', '.join(_REVIEWS)}"))
        return
    for index, version in enumerate(value):
        if version in value[:index]:
            out.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            complain(out, f"{path}[{index}]", version, names.dns_1035_label(version))
    if not set(value) & set(_REVIEWS):
        out.append(invalid(path, value, f"must include at least one of {', '.join(_REVIEWS)}"))


def _check_timeout(out: Errors, path: str, value: Any) -> None:
    if value is not None and not 1 <= value <= _LONGEST_TIMEOUT:
        out.append(invalid(path, value, "the timeout value must be between 1 and 30 seconds"))


def _check_client(out: Errors, path: str, client: Raw) -> None:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        out.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        _check_url(out, f"{path}.url", url)
    elif service is not None:
        _check_service(out, f"{path}.service", service)


def _check_url(out: Errors, path: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https":
        out.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL}"))
    if not parts.netloc:
        out.append(invalid(path, parts.netloc, f"host must be specified{_URL}"))
    if "@" in parts.netloc:
        out.append(invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL"))
    if parts.fragment:
        out.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        out.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))


def _check_service(out: Errors, path: str, service: Raw) -> None:
    # Kubernetes names the one of these two where the other is missing.
    if not service.get("namespace"):
        out.append(required(f"{path}.name"))
    if not service.get("name"):
        out.append(required(f"{path}.namespace"))
    port = service.get("port") or 0
    if wrong := names.port_number(port):
        out.append(invalid(f"{path}.port", port, f"port is not valid: {', '.join(wrong)}"))
    target = service.get("path") or "/"
    if target != "/" and not target.startswith("/"):
        out.append(invalid(f"{path}.path", target, "must start with a '/'"))
    for index, step in enumerate(target[1:].removesuffix("/").split("/") if target != "/" else ()):
        wrong = names.dns_subdomain(step) if step else ("",)
        for why in wrong:
            told = f"segment[{index}]: {why}" if why else f"segment[{index}] may not be empty"
            out.append(invalid(f"{path}.path", target, told))


def _check_policy(out: Errors, path: str, spec: Raw) -> None:
    constraints = spec.get("matchConstraints")
    if constraints is not None and not constraints.get("resourceRules"):
        out.append(required(f"{path}.matchConstraints.resourceRules"))


def _check_validations(out: Errors, path: str, spec: Raw) -> None:
    _check_policy(out, path, spec)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        out.extend(required(f"{path}.{field}", why) for field in ("validations", "auditAnnotations"))


def _check_actions(out: Errors, path: str, value: Any) -> None:
    actions = value or NO_LIST
    if not actions:
        out.append(required(path))
    within(word("Audit", "Deny", "Warn"))(out, path, actions)
    unique()(out, path, actions)
    if {"Deny", "Warn"} <= set(actions):
        out.append(
            invalid(
                path,
                actions,
                "must not contain both Deny and Warn: the same would be said twice",
            )
        )


_HOOK: Fields = {
    "name": _check_hook_name,
    "failurePolicy": _FAILURES,
    "matchPolicy": _MATCHES,
    "sideEffects": (set_at_all(f"must specify one of {', '.join(_SIDE_EFFECTS)}"), choice(*_SIDE_EFFECTS)),
    "timeoutSeconds": _check_timeout,
    "admissionReviewVersions": _check_reviews,
}
_RULE: Fields = {
    "operations": (
        needed(), lone_star("operations"), within(word("*", "CONNECT", "CREATE", "DELETE", "UPDATE")),
    ),
    "apiGroups": (needed(), lone_star("API groups")),
    "apiVersions": (needed(), lone_star("API versions"), within(needed())),
    "resources": (needed(), within(needed())),
    "scope": choice("*", "Cluster", "Namespaced"),
}  # fmt: skip
_BINDING: Fields = {"policyName": needs_name(names.dns_subdomain)}
TYPES: dict[str, Fields] = {
    "admissionregistration/v1.ValidatingWebhookConfiguration": {"webhooks": unique("name")},
    "admissionregistration/v1.MutatingWebhookConfiguration": {"webhooks": unique("name")},
    "admissionregistration/v1.ValidatingWebhook": _HOOK,
    "admissionregistration/v1.MutatingWebhook": {**_HOOK, "reinvocationPolicy": choice("IfNeeded", "Never")},
    "admissionregistration/v1.WebhookClientConfig": {"": _check_client},
    "admissionregistration/v1.ServiceReference": {"name": (), "namespace": ()},
    "admissionregistration/v1.RuleWithOperations": _RULE,
    "admissionregistration/v1.NamedRuleWithOperations": {
        **_RULE,
        "resourceNames": (unique(), within(judged(names.path_segment))),
    },
    "admissionregistration/v1.MatchResources": {"matchPolicy": _MATCHES},
    "admissionregistration/v1.ValidatingAdmissionPolicySpec": {
        "matchConstraints": set_at_all(),
        "failurePolicy": _FAILURES,
        "": _check_validations,
    },
    "admissionregistration/v1.Validation": {
        "expression": needed("expression is not specified"),
        "reason": choice("Forbidden", "Invalid", "RequestEntityTooLarge"),
    },
    "admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec": {
        **_BINDING,
        "validationActions": _check_actions,
    },
    "admissionregistration/v1.MutatingAdmissionPolicySpec": {
        "matchConstraints": set_at_all(),
        "mutations": needed("mutations must contain at least one item"),
        "failurePolicy": _FAILURES,
        "": _check_policy,
    },
    "admissionregistration/v1.MutatingAdmissionPolicyBindingSpec": _BINDING,
}
