"""What Kubernetes says about the fields of runtime classes, revisions, migrations and the flow of requests."""

from __future__ import annotations

import math
from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import NO_LIST, Check, Errors, Raw, check_labels
from kubeqos.rules.validation.pods.scheduling import check_tolerations
from kubeqos.rules.validation.stored.admission import lone_star
from kubeqos.rules.validation.stored.checks import (
    Fields,
    between,
    least,
    named,
    needed,
    needs_name,
    set_at_all,
)

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_MOST_QUEUES, _MOST_PRECEDENCE, _MOST_BITS = 10_000_000, 10_000, 60
_KEY = ("key", "operator", "value", "effect")


def _check_scheduling(out: Errors, path: str, raw: Raw) -> None:
    check_labels(out, f"{path}.nodeSelector", raw.get("nodeSelector"))
    tolerations = raw.get("tolerations") or NO_LIST
    check_tolerations(out, f"{path}.tolerations", tolerations)
    seen: set[tuple[Any, ...]] = set()
    for index, toleration in enumerate(tolerations):
        key = tuple(toleration.get(field, "") for field in _KEY)
        if key in seen:
            out.append(duplicate(f"{path}.tolerations[{index}]", toleration))
        seen.add(key)


def _check_subject(out: Errors, path: str, subject: Raw) -> None:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        out.append(not_supported(f"{path}.kind", kind, tuple(_SUBJECTS)))
        return
    for other, field in _SUBJECTS.items():
        if other == kind and subject.get(field) is None:
            out.append(required(f"{path}.{field}", f"{field} is required when subject kind is '{kind}'"))
        elif other != kind and subject.get(field) is not None:
            out.append(forbidden(f"{path}.{field}", f"{field} is forbidden when subject kind is not '{other}'"))


def _check_flow_rule(out: Errors, path: str, rule: Raw) -> None:
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        out.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))


def _check_distinguisher(out: Errors, path: str, value: Any) -> None:
    if value not in _DISTINGUISHERS:
        out.append(not_supported(path, {"Type": value or ""}, _DISTINGUISHERS))


def _check_verbs(out: Errors, path: str, value: Any) -> None:
    verbs = value or NO_LIST
    if not verbs:
        out.append(required(path, "verbs must contain at least one value"))
    elif "*" in verbs:
        lone_star("verbs")(out, path, verbs)
    elif set(verbs) - set(_VERBS):
        out.append(not_supported(path, verbs, _VERBS))


def _check_namespaces(out: Errors, path: str, rule: Raw) -> None:
    namespaces, where = rule.get("namespaces") or NO_LIST, f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        out.append(required(where, why))
    elif "*" in namespaces:
        lone_star("namespaces")(out, where, namespaces)
    else:
        for index, namespace in enumerate(namespaces):
            if wrong := names.dns_label(namespace):
                why = f"each member of this list must be '*' or a DNS-1123 label; {'; '.join(wrong)}"
                out.append(invalid(f"{where}[{index}]", namespace, why))


def _check_urls(out: Errors, path: str, value: Any) -> None:
    urls = value or NO_LIST
    if not urls:
        out.append(required(path, "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        lone_star("non-resource URLs")(out, path, urls)
    else:
        for index, url in enumerate(urls):
            if why := _wrong_url(url):
                out.append(invalid(f"{path}[{index}]", url, why))


def _wrong_url(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars and not url.endswith("/*")) else ""


def _check_precedence(out: Errors, path: str, value: Any) -> None:
    number = value or 0
    if number <= 0:
        out.append(invalid(path, number, "must be a positive value"))
    if number > _MOST_PRECEDENCE:
        out.append(invalid(path, number, f"must not be greater than {_MOST_PRECEDENCE}"))


def _check_level(out: Errors, path: str, spec: Raw) -> None:
    kind = spec.get("type", "")
    if not kind:
        out.append(required(f"{path}.type"))
    elif kind not in ("Exempt", "Limited"):
        out.append(not_supported(f"{path}.type", kind, ("Exempt", "Limited")))
    if kind == "Limited" and spec.get("limited") is None:
        out.append(required(f"{path}.limited"))
    if kind != "Limited" and spec.get("limited") is not None:
        out.append(forbidden(f"{path}.limited"))
    if kind == "Limited" and spec.get("exempt") is not None:
        out.append(forbidden(f"{path}.exempt", "must be nil if the type is Limited"))


def _check_response(out: Errors, path: str, raw: Raw) -> None:
    kind, queuing = raw.get("type", ""), raw.get("queuing")
    if not kind:
        out.append(required(f"{path}.type"))
    elif kind not in ("Queue", "Reject"):
        out.append(not_supported(f"{path}.type", kind, ("Queue", "Reject")))
    if kind == "Queue" and queuing is None:
        out.append(required(f"{path}.queuing"))
    if kind != "Queue" and queuing is not None:
        out.append(forbidden(f"{path}.queuing"))


def _check_queues(out: Errors, path: str, raw: Raw) -> None:
    queues, hand, length = (raw.get(field, 0) for field in ("queues", "handSize", "queueLengthLimit"))
    if length <= 0:
        out.append(invalid(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        out.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > _MOST_QUEUES:
        out.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}"))
    if hand <= 0:
        out.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        out.append(invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif _bits(queues, hand) > _MOST_BITS:
        why = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_MOST_BITS}"
        out.append(invalid(f"{path}.handSize", hand, why))


def _bits(deck: int, hand: int) -> int:
    """How many bits of chance it takes to deal so many cards."""
    return math.ceil(math.log2(deck) * hand)


def _joined(rule: names.NameRule) -> Check:
    """A name by a rule, if there is one; all that is wrong with it in one sentence."""

    def check(out: Errors, path: str, value: Any) -> None:
        if value and (wrong := rule(value)):
            out.append(invalid(path, value, ",".join(wrong)))

    return check


def check_revision_change(out: Errors, raw: Raw, old: Raw) -> None:
    least(0)(out, "revision", raw.get("revision"))


_GROUPS = "resource rules must supply at least one api group"
_RESOURCES = "resource rules must supply at least one resource"
TYPES: dict[str, Fields] = {
    "node/v1.RuntimeClass": {"handler": needs_name(names.dns_label)},
    "node/v1.Scheduling": {"tolerations": (), "": _check_scheduling},
    "apps/v1.ControllerRevision": {"data": set_at_all("data is mandatory"), "revision": least(0)},
    "meta/v1.GroupResource": {
        "group": _joined(names.dns_subdomain),
        "resource": (needed("resource is required to be set"), _joined(names.dns_1035_label)),
    },
    "flowcontrol/v1.FlowSchemaSpec": {"matchingPrecedence": _check_precedence},
    "flowcontrol/v1.PriorityLevelConfigurationReference": {
        "name": (needed("must reference a priority level"), named(names.dns_subdomain)),
    },
    "flowcontrol/v1.FlowDistinguisherMethod": {"type": _check_distinguisher},
    "flowcontrol/v1.PolicyRulesWithSubjects": {
        "subjects": needed("subjects must contain at least one value"),
        "": _check_flow_rule,
    },
    "flowcontrol/v1.Subject": {"kind": (), "": _check_subject},
    "flowcontrol/v1.ServiceAccountSubject": {
        "name": needs_name(lambda text: () if text == "*" else names.dns_subdomain(text)),
        "namespace": (needed("must specify namespace for service account"), named(names.dns_label)),
    },
    "flowcontrol/v1.ResourcePolicyRule": {
        "verbs": _check_verbs,
        "apiGroups": (needed(_GROUPS), lone_star("api groups")),
        "resources": (needed(_RESOURCES), lone_star("resources")),
        "": _check_namespaces,
    },
    "flowcontrol/v1.NonResourcePolicyRule": {"verbs": _check_verbs, "nonResourceURLs": _check_urls},
    "flowcontrol/v1.PriorityLevelConfigurationSpec": {"type": (), "": _check_level},
    "flowcontrol/v1.LimitedPriorityLevelConfiguration": {
        "nominalConcurrencyShares": least(0, "must be a non-negative integer"),
        "lendablePercent": between(0, 100),
        "borrowingLimitPercent": least(0, "if specified, must be a non-negative integer"),
    },
    "flowcontrol/v1.LimitResponse": {"type": (), "": _check_response},
    "flowcontrol/v1.QueuingConfiguration": {"": _check_queues},
}
