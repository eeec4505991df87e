"""Admission webhooks: which of them a write is shown to, what they are asked, and what their answers mean. Pure.

Called by `apiserver.webhooks`, which carries questions and answers. A configuration is compiled when it is written.
Rules in CEL (`matchConditions`) are not evaluated: such a webhook is called for whatever its other rules match, and who
configures one is told.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import JsonError, decode_json
from kubeqos.model.selectors import LabelSelector
from kubeqos.model.text.gotext import quote

Raw = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
REVIEWS = ("v1", "v1beta1")
"""Versions of AdmissionReview that we speak."""
DEFAULT_SECONDS = 10
HARMLESS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True)
class Target:
    """What a write is about, as rules of webhooks look at it."""

    operation: str
    group: str
    versions: tuple[str, ...]
    """As which the object can be shown; the one that the client speaks comes first."""
    plural: str
    kind: str
    subresource: str
    namespace: str
    """Empty for what is in none; a Namespace itself is in none."""
    labels_of_namespace: Mapping[str, str] | None
    """Of the namespace that the object is in, or of the Namespace that it is; None where there is none."""
    body: tuple[str, str, str] | None = None
    """Group, version and kind of what is sent, where a subresource has one of its own (Binding, Scale, …)."""


@dataclass(frozen=True, slots=True)
class Rule:
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """Each with its subresource."""
    scope: str

    @classmethod
    def of(cls, raw: Raw) -> Rule:
        pairs = tuple((name, below) for name, _, below in (one.partition("/") for one in raw.get("resources") or ()))
        operations, groups, versions = (
            frozenset(map(str, raw.get(key) or ())) for key in ("operations", "apiGroups", "apiVersions")
        )
        return cls(operations, groups, versions, pairs, str(raw.get("scope") or "*"))

    def version(self, target: Target, *, equivalent: bool) -> str | None:
        """The version as which the rule wants to see the object; None when it does not."""
        if not (self._fits(target) and _any(self.operations, target.operation) and _any(self.groups, target.group)):
            return None
        offered = target.versions if equivalent else target.versions[:1]
        return next((one for one in offered if _any(self.versions, one)), None)

    def _fits(self, target: Target) -> bool:
        if self.scope != "*" and (self.scope == "Namespaced") != bool(target.namespace):
            return False
        asked = target.plural, target.subresource
        return any(all(have in ("*", want) for have, want in zip(pair, asked, strict=True)) for pair in self.resources)


def _any(items: frozenset[str], wanted: str) -> bool:
    return "*" in items or wanted in items


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a configuration."""

    configuration: str
    name: str
    rules: tuple[Rule, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    client: Raw
    reviews: tuple[str, ...]
    seconds: int
    fails_open: bool
    side_effects: str
    reinvoked: bool
    equivalent: bool

    @classmethod
    def of(cls, configuration: str, raw: Raw) -> Webhook:
        return cls(
            configuration,
            str(raw.get("name", "")),
            tuple(map(Rule.of, raw.get("rules") or ())),
            LabelSelector.of(raw.get("namespaceSelector")),
            LabelSelector.of(raw.get("objectSelector")),
            raw.get("clientConfig") or {},
            tuple(raw.get("admissionReviewVersions") or ()),
            int(raw.get("timeoutSeconds") or DEFAULT_SECONDS),
            raw.get("failurePolicy") == "Ignore",
            str(raw.get("sideEffects", "")),
            raw.get("reinvocationPolicy") == "IfNeeded",
            raw.get("matchPolicy") != "Exact",
        )

    @property
    def identity(self) -> tuple[str, str]:
        return self.configuration, self.name

    def ruled(self, target: Target) -> str | None:
        """The same by its rules alone, which do not look at the object or at labels."""
        found = (rule.version(target, equivalent=self.equivalent) for rule in self.rules)
        return next((one for one in found if one is not None), None)

    def version(self, target: Target, new: Raw | None, old: Raw | None) -> str | None:
        """The version as which this webhook sees a write; None when it does not see it."""
        version = self.ruled(target)
        if version is None:
            return None
        if target.labels_of_namespace is not None and not self.namespaces.matches(target.labels_of_namespace):
            return None
        shown = [one for one in (new, old) if one is not None]
        return version if not self.objects or any(self.objects.matches(_labels(one)) for one in shown) else None


def _labels(raw: Raw) -> Mapping[str, str]:
    return (raw.get("metadata") or {}).get("labels") or {}


@dataclass(frozen=True, slots=True)
class Webhooks:
    """All that are configured, in the order in which they are called: by the names of their configurations."""

    mutating: tuple[Webhook, ...] = ()
    validating: tuple[Webhook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.mutating or self.validating)

    @classmethod
    def of(cls, configurations: Iterable[Raw]) -> Webhooks:
        found: dict[str, list[Webhook]] = {MUTATING: [], VALIDATING: []}
        for raw in sorted(configurations, key=lambda one: str(one["metadata"]["name"])):
            name = raw["metadata"]["name"]
            found[raw["kind"]] += (Webhook.of(name, one) for one in raw.get("webhooks") or ())
        return cls(tuple(found[MUTATING]), tuple(found[VALIDATING]))


def warnings(configuration: Mapping[str, Any]) -> list[str]:
    """What somebody who configures webhooks should know."""
    told = (
        "matchConditions: CEL is not evaluated here; the webhook is called for whatever its rules and selectors match"
    )
    hooks = enumerate(configuration.get("webhooks") or ())
    return [f"webhooks[{place}].{told}" for place, one in hooks if one.get("matchConditions")]


def is_exempt(group: str, kind: str) -> bool:
    """Nobody may be kept from removing a webhook by that webhook."""
    return group == GROUP and kind.endswith(("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding"))


@dataclass(frozen=True, slots=True)
class Question:
    """A write as it is put to webhooks."""

    target: Target
    name: str
    user: Raw
    dry_run: bool
    options: Raw | None

    def review(self, webhook: Webhook, version: str, uid: str, new: Raw | None, old: Raw | None) -> Raw | None:
        """The AdmissionReview to send; None when the webhook speaks no version that we do."""
        spoken = next((one for one in webhook.reviews if one in REVIEWS), None)
        if spoken is None:
            return None
        target, first = self.target, self.target.versions[0]
        request: Raw = {
            "uid": uid,
            "kind": self._kind(version),
            "resource": {"group": target.group, "version": version, "resource": target.plural},
            **({"subResource": target.subresource} if target.subresource else {}),
            "requestKind": self._kind(first),
            "requestResource": {"group": target.group, "version": first, "resource": target.plural},
            **({"requestSubResource": target.subresource} if target.subresource else {}),
            **({"name": self.name} if self.name else {}),
            **({"namespace": target.namespace} if target.namespace else {}),
            "operation": target.operation,
            "userInfo": self.user,
            "object": self._as(version, new),
            "oldObject": self._as(version, old),
            "dryRun": self.dry_run,
            "options": self.options,
        }
        return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{spoken}", "request": request}

    def _kind(self, version: str) -> Raw:
        body = self.target.body or (self.target.group, version, self.target.kind)
        return dict(zip(("group", "version", "kind"), body, strict=True))

    def _as(self, version: str, raw: Raw | None) -> Raw | None:
        if raw is None or self.target.body is not None:
            return raw
        group = self.target.group
        return {**raw, "apiVersion": f"{group}/{version}" if group else version}


class BadAnswer(ValueError):
    """A webhook answered what is no answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a webhook says about a write."""

    allowed: bool
    patch: Sequence[Raw] = ()
    warnings: Sequence[str] = ()
    status: Raw | None = None


def verdict(answer: Any, uid: str, *, mutating: bool) -> Verdict:
    """What an AdmissionReview that came back means; BadAnswer, in Kubernetes' words, when it means nothing."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise BadAnswer("webhook response was absent")
    if answer.get("apiVersion") == "admission.k8s.io/v1" and response.get("uid") != uid:
        raise BadAnswer(f"expected response.uid={quote(uid)}, got {quote(str(response.get('uid', '')))}")
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating and (patch or patch_type):
        raise BadAnswer(f"validating webhook may not return response.{'patch' if patch else 'patchType'}")
    if patch and not patch_type and answer.get("apiVersion") == "admission.k8s.io/v1":
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    if patch_type and not patch:
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    if patch_type not in (None, "JSONPatch"):
        raise BadAnswer(f"unsupported patch type {quote(str(patch_type))}")
    said = tuple(str(one) for one in response.get("warnings") or ())
    status = response.get("status")
    return Verdict(
        bool(response.get("allowed")), _operations(patch), said, status if isinstance(status, dict) else None
    )


def _operations(patch: Any) -> Sequence[Raw]:
    if not patch:
        return ()
    try:
        found = decode_json(base64.b64decode(patch, validate=True))
    except (JsonError, binascii.Error, TypeError, ValueError) as error:
        raise BadAnswer(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(found, list):
        raise BadAnswer("received undecodable patch in webhook response: it is not a list of operations")
    return found


def refusal(webhook: Webhook, status: Raw | None) -> Raw:
    """The Status of a write that a webhook denied."""
    found = dict(status or {})
    denied = f"admission webhook {quote(webhook.name)} denied the request"
    told = found.get("message") or found.get("reason")
    code = found.get("code")
    found["code"] = code if isinstance(code, int) and code >= 400 else 400
    found["message"] = f"{denied}: {told}" if told else f"{denied} without explanation"
    return found
