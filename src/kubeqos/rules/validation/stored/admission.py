"""What Kubernetes says about the fields of admission webhooks and policies. CEL expressions are not read."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from kubeqos.model import names
from kubeqos.rules.fielderror import forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Check, Errors, Raw, complain
from kubeqos.rules.validation.meta import meta_of
from kubeqos.rules.validation.stored.checks import (
    Fields,
    at_most,
    choice,
    judged,
    named_word,
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
_LONGEST_TIMEOUT, _MOST_AUDITS = 30, 20
_REINVOCATIONS = ("IfNeeded", "Never")
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_MUTATED = ("*", "CONNECT", "CREATE", "UPDATE")
_is_identifier = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
))  # fmt: skip
"""Words that CEL keeps for itself."""


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


def _check_resources(out: Errors, path: str, value: Any) -> None:
    """Resources as `pods`, `pods/status`, `*`, `pods/*`, `*/status` or `*/*`: none that a star of the others means."""
    resources = value or NO_LIST
    if not resources:
        out.append(required(path))
    all_below: set[str] = set()
    below_all: set[str] = set()
    for index, text in enumerate(resources):
        resource, slash, below = text.partition("/")
        if not text:
            out.append(required(f"{path}[{index}]"))
        if not slash:
            continue
        if resource in all_below:
            out.append(invalid(f"{path}[{index}]", text, f"if '{resource}/*' is present, must not specify {text}"))
        if below in below_all:
            out.append(invalid(f"{path}[{index}]", text, f"if '*/{below}' is present, must not specify {text}"))
        if below == "*":
            all_below.add(resource)
        if resource == "*":
            below_all.add(below)
    if len(resources) > 1 and "*/*" in resources:
        out.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    alone = [text for text in resources if text and "/" not in text]
    if "*" in alone and alone[-1] != "*":  # Kubernetes remembers only the last of them
        why = "if '*' is present, must not specify other resources without subresources"
        out.append(invalid(path, resources, why))


def _check_parameters(out: Errors, path: str, kind: Raw) -> None:
    version, called = kind.get("apiVersion", ""), kind.get("kind", "")
    if not version:
        out.append(required(f"{path}.apiVersion"))
    elif version.count("/") > 1:
        out.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    else:
        group, _, short = version.rpartition("/")
        if group and (wrong := names.dns_subdomain(group)):
            out.append(invalid(f"{path}.apiVersion", group, ",".join(wrong)))
        if not short:
            out.append(invalid(f"{path}.apiVersion", version, "version must be specified"))
        elif wrong := names.dns_1035_label(short):
            out.append(invalid(f"{path}.apiVersion", short, ",".join(wrong)))
    if not called:
        out.append(required(f"{path}.kind"))
    elif wrong := names.dns_1035_label(called.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        out.append(invalid(f"{path}.kind", called, why))


def _check_parameter_ref(out: Errors, path: str, ref: Raw) -> None:
    name, selector = ref.get("name", ""), ref.get("selector")
    complain(out, f"{path}.name", name, names.path_segment(name) if name else ())
    if name and selector is not None:
        why = "name and selector are mutually exclusive"
        out.extend(forbidden(f"{path}.{field}", why) for field in ("name", "selector"))
    if not name and selector is None:
        out.append(required(path, "one of name or selector must be specified"))


def _check_variable(out: Errors, path: str, value: Any) -> None:
    if not (value or "").strip():
        out.append(required(path, "name is not specified"))
    elif not _is_identifier(value) or value in _RESERVED:
        out.append(invalid(path, value, "must be a valid CEL identifier"))


def _expression(detail: str = "") -> Check:
    """Something is written there; what, is not read."""

    def check(out: Errors, path: str, value: Any) -> None:
        if not (value or "").strip():
            out.append(required(path, detail))

    return check


def _check_mutation(out: Errors, path: str, mutation: Raw) -> None:
    kind = mutation.get("patchType", "")
    if kind not in _PATCHES:
        return
    for other, field in _PATCHES.items():
        if other == kind and mutation.get(field) is None:
            out.append(required(f"{path}.{field}", f"must be specified when patchType is {kind}"))
        elif other != kind and mutation.get(field) is not None:
            out.append(invalid(f"{path}.{field}", f"{{{field}}}", f"must not be specified when patchType is {kind}"))


def _check_mutated(field: str) -> Check:
    """What is deleted cannot be changed."""

    def check(out: Errors, path: str, spec: Raw) -> None:
        for rule in (spec.get(field) or NO_MAP).get("resourceRules") or NO_LIST:
            for operation in rule.get("operations") or NO_LIST:
                if operation not in _MUTATED:
                    out.append(not_supported(f"{path}.{field}.resourceRules.operations", operation, _MUTATED))

    return check


def _check_audits(out: Errors, path: str, policy: Raw) -> None:
    """The keys of a policy's annotations begin with its name."""
    name, audits = meta_of(policy).get("name", ""), (policy.get("spec") or NO_MAP).get("auditAnnotations") or NO_LIST
    if len(audits) > _MOST_AUDITS:
        why = f"must not have more than {_MOST_AUDITS} auditAnnotations"
        out.append(invalid("spec.auditAnnotations", audits, why))
    for index, audit in enumerate(audits):
        where, key = f"spec.auditAnnotations[{index}].key", audit.get("key", "")
        if name:
            complain(out, where, f"{name}/{key}", names.qualified_name(f"{name}/{key}"))
        else:
            out.append(invalid(where, key, "requires metadata.name be non-empty"))
    unique("key")(out, "spec.auditAnnotations", audits)


def _check_message(out: Errors, path: str, value: Any) -> None:
    if value and not value.strip():
        out.append(invalid(path, value, "must be non-empty if specified"))
    elif "\n" in (value or "").strip() or "\r" in (value or "").strip():
        out.append(invalid(path, value, "must not contain line breaks"))


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


_CONDITIONS = (at_most(64), unique("name", empty=False))
_HOOK: Fields = {
    "matchConditions": _CONDITIONS,
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
    "resources": _check_resources,
    "scope": choice("*", "Cluster", "Namespaced"),
}  # fmt: skip
_BINDING: Fields = {"policyName": needs_name(names.dns_subdomain)}
TYPES: dict[str, Fields] = {
    "admissionregistration/v1.ValidatingWebhookConfiguration": {"webhooks": unique("name")},
    "admissionregistration/v1.MutatingWebhookConfiguration": {"webhooks": unique("name")},
    "admissionregistration/v1.ValidatingWebhook": _HOOK,
    "admissionregistration/v1.MutatingWebhook": {**_HOOK, "reinvocationPolicy": choice(*_REINVOCATIONS)},
    "admissionregistration/v1.WebhookClientConfig": {"": _check_client},
    "admissionregistration/v1.ServiceReference": {"name": (), "namespace": ()},
    "admissionregistration/v1.RuleWithOperations": _RULE,
    "admissionregistration/v1.NamedRuleWithOperations": {
        **_RULE,
        "resourceNames": (unique(), within(judged(names.path_segment))),
    },
    "admissionregistration/v1.MatchResources": {"matchPolicy": _MATCHES},
    "admissionregistration/v1.MatchCondition": {"name": needs_name(names.qualified_name), "expression": _expression()},
    "admissionregistration/v1.ParamKind": {"": _check_parameters},
    "admissionregistration/v1.ParamRef": {
        "parameterNotFoundAction": named_word("Deny", "Allow"),
        "": _check_parameter_ref,
    },
    "admissionregistration/v1.Variable": {
        "name": _check_variable,
        "expression": _expression("expression is not specified"),
    },
    "admissionregistration/v1.AuditAnnotation": {
        "key": (),
        "valueExpression": _expression("valueExpression is not specified"),
    },
    "admissionregistration/v1.ValidatingAdmissionPolicy": {"": _check_audits},
    "admissionregistration/v1.ValidatingAdmissionPolicySpec": {
        "matchConstraints": set_at_all(),
        "matchConditions": _CONDITIONS,
        "failurePolicy": _FAILURES,
        "": _check_validations,
    },
    "admissionregistration/v1.Validation": {
        "expression": _expression("expression is not specified"),
        "message": _check_message,
        "reason": choice("Forbidden", "Invalid", "RequestEntityTooLarge"),
    },
    "admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec": {
        **_BINDING,
        "validationActions": _check_actions,
    },
    "admissionregistration/v1.MutatingAdmissionPolicySpec": {
        "matchConstraints": set_at_all(),
        "matchConditions": _CONDITIONS,
        "mutations": needed("mutations must contain at least one item"),
        "failurePolicy": _FAILURES,
        "reinvocationPolicy": named_word(*_REINVOCATIONS),
        "": (_check_policy, _check_mutated("matchConstraints")),
    },
    "admissionregistration/v1.Mutation": {"patchType": named_word(*_PATCHES), "": _check_mutation},
    "admissionregistration/v1.JSONPatch": {"expression": _expression()},
    "admissionregistration/v1.ApplyConfiguration": {"expression": _expression()},
    "admissionregistration/v1.MutatingAdmissionPolicyBindingSpec": {**_BINDING, "": _check_mutated("matchResources")},
}
