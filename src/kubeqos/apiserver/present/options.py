"""The options of a request, read from query and body and refused in Kubernetes' words."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kubeqos.apiserver.present.documents import Unreadable, document
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonError, JsonObject, decode_json, encode_json
from kubeqos.model import schema
from kubeqos.model.schema.gotime import parse_error as time_problem
from kubeqos.model.selectors import FieldSelector, LabelSelector, SelectorError
from kubeqos.model.text.gojson import syntax_problem
from kubeqos.model.text.gotext import quote
from kubeqos.rules.decoding import check_write_options
from kubeqos.web.messages import Query, is_true
from kubeqos.web.status import ApiError, bad_request, cause, invalid

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[0-9]+")
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")
_LOG_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")
_UNITS = frozenset(("ns", "us", "µs", "μs", "ms", "s", "m", "h"))
CONTINUE_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Token:
    """Where a paged list goes on: the revision it started at (-1: the newest) and the last key it gave out."""

    revision: int
    start: str

    def encode(self) -> str:
        raw = encode_json({"v": CONTINUE_VERSION, "rv": self.revision, "start": self.start + "\0"})
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass(slots=True)
class ListOptions:
    """What a list or watch asks for."""

    labels: LabelSelector
    fields: FieldSelector
    limit: int = 0
    token: Token | None = None
    version: str = ""
    match: str = ""
    timeout: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None

    @property
    def selects(self) -> bool:
        return bool(self.labels) or bool(self.fields)


def list_options(query: Query, kind: Kind, *, watch: bool = False) -> ListOptions:
    """Read and check the options of a list or a watch."""
    first = {name: values[0] for name, values in query.items()}
    limit = parse_int(first["limit"]) if "limit" in first else 0
    timeout = parse_int(first["timeoutSeconds"]) if "timeoutSeconds" in first else None
    labels, fields = selectors(first, kind)
    found = ListOptions(
        labels=labels,
        fields=fields,
        limit=max(0, limit),
        version=first.get("resourceVersion", ""),
        match=first.get("resourceVersionMatch", ""),
        timeout=timeout,
        bookmarks=is_true(query, "allowWatchBookmarks"),
        initial_events=is_true(query, "sendInitialEvents") if "sendInitialEvents" in first else None,
    )
    continuation = first.get("continue", "")
    causes = _watch_causes(found, continuation) if watch else _list_causes(found, continuation)
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)
    if continuation and not watch:
        if found.version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        found.token = _decode_token(continuation)
    return found


def selectors(first: dict[str, str], kind: Kind) -> tuple[LabelSelector, FieldSelector]:
    try:
        labels = LabelSelector.parse(first.get("labelSelector", ""))
        fields = FieldSelector.parse(first.get("fieldSelector", ""))
    except SelectorError as error:
        raise bad_request(error.what) from error
    for name, _value, _equal in fields.terms:
        if not kind.selects(name):
            raise bad_request(kind.unknown_field(name))
    return labels, fields


def _forbidden(field: str, why: str) -> JsonObject:
    return cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(field: str, value: str, supported: tuple[str, ...]) -> JsonObject:
    listed = ", ".join(f'"{item}"' for item in supported)
    return cause(field, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {listed}")


def _list_causes(options: ListOptions, continuation: str) -> list[JsonObject]:
    found, match = [], "resourceVersionMatch"
    if options.match:
        if not options.version:
            found.append(_forbidden(match, f"{match} is forbidden unless resourceVersion is provided"))
        if continuation:
            found.append(_forbidden(match, f"{match} is forbidden when continue is provided"))
        if options.match not in ("Exact", "NotOlderThan"):
            found.append(_unsupported(match, f'"{options.match}"', ("Exact", "NotOlderThan", "")))
        if options.match == "Exact" and options.version == "0":
            found.append(_forbidden(match, f'{match} "exact" is forbidden for resourceVersion "0"'))
    if options.initial_events is not None:
        found.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return found


def _watch_causes(options: ListOptions, continuation: str) -> list[JsonObject]:
    found, match = [], "resourceVersionMatch"
    if options.initial_events is not None and options.match != "NotOlderThan":
        found.append(_forbidden(match, f"sendInitialEvents requires setting {match} to NotOlderThan"))
    if options.match:
        if options.initial_events is None:
            found.append(_forbidden(match, f"{match} is forbidden for watch unless sendInitialEvents is provided"))
        if options.match != "NotOlderThan":
            found.append(_unsupported(match, f'"{options.match}"', ("NotOlderThan",)))
        if continuation:
            found.append(_forbidden(match, f"{match} is forbidden when continue is provided"))
    return found


def _decode_token(text: str) -> Token:
    prefix = "invalid continue token: continue key is not valid: "
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = decode_json(raw)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, JsonError):
            raise bad_request(prefix + (syntax_problem(raw) or "not an object")) from error
        raise bad_request(f"{prefix}illegal base64 data at input byte 0") from error
    except RecursionError as error:
        raise bad_request(f"{prefix}exceeded max depth") from error
    if not isinstance(found, dict):
        raise bad_request(f"{prefix}json: cannot unmarshal into a continue token")
    version, revision, start = found.get("v"), found.get("rv"), found.get("start")
    if version != CONTINUE_VERSION:
        raise bad_request(f"{prefix}server does not recognize this encoded version {version or ''}")
    if not isinstance(revision, int) or isinstance(revision, bool) or revision == 0 or not -1 <= revision < 1 << 63:
        raise bad_request(f"{prefix}incorrect encoded start resourceVersion (version {CONTINUE_VERSION})")
    if not isinstance(start, str) or not start.rstrip("\0"):
        raise bad_request(f"{prefix}encoded start key empty (version {CONTINUE_VERSION})")
    if any(step in ("", ".", "..") for step in start.split("/")):
        raise bad_request(f"{prefix}{start}")
    return Token(revision, start.rstrip("\0"))


def parse_int(text: str) -> int:
    """Go's ParseInt of a query value."""
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return int(text)


def parse_version(text: str, prefix: str = "") -> int:
    """A resourceVersion of a request."""
    problem = ""
    if not _DECIMAL.fullmatch(text):
        problem = "invalid syntax"
    elif len(text) > 20 or int(text) >= 1 << 64:
        problem = "value out of range"
    if problem:
        quoted = quote(text)
        raise bad_request(
            f"{prefix}resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}"
        )
    return int(text)


def check_log_options(query: Query, pod: str) -> None:
    """Refuse a request for logs that asks for less than nothing, or for two beginnings."""
    numbers = {name: parse_int(query[name][0]) for name in _LOG_NUMBERS if name in query}
    since = (query.get("sinceTime") or [""])[0]
    if since and (problem := time_problem(since)):
        raise bad_request(problem)
    causes = []
    if numbers.get("tailLines", 0) < 0:
        causes.append(_bad_number("tailLines", numbers, "must be greater than or equal to 0"))
    if numbers.get("limitBytes", 1) < 1:
        causes.append(_bad_number("limitBytes", numbers, "must be greater than 0"))
    if since and "sinceSeconds" in numbers:
        causes.append(_forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif numbers.get("sinceSeconds", 1) < 1:
        causes.append(_bad_number("sinceSeconds", numbers, "must be greater than 0"))
    if causes:
        raise invalid("PodLogOptions", "", pod, causes)


def _bad_number(name: str, numbers: dict[str, int], why: str) -> JsonObject:
    return cause(name, "FieldValueInvalid", f"Invalid value: {numbers[name]}: {why}")


def check_timeout(query: Query) -> None:
    """`timeout` is how long the client will wait, in Go's notation of durations."""
    text = (query.get("timeout") or [""])[0]
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0" or not text:
        return
    parts = _DURATION.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        why = f"time: invalid duration {quote(text)}"
    elif "" in (units := [unit for _, unit in parts]):
        why = f"time: missing unit in duration {quote(text)}"
    elif unknown := next((unit for unit in units if unit not in _UNITS), ""):
        why = f"time: unknown unit {quote(unknown)} in duration {quote(text)}"
    else:
        return
    raise bad_request(f"invalid timeout specified in the request URL - {why}")


def check_options(request: Request, options_kind: str) -> None:
    """Refuse a write whose options make no sense."""
    query = request.query
    if not query:
        return
    wrong = check_write_options(
        options_kind,
        dry_run=query.get("dryRun"),
        field_manager=request.first("fieldManager") or "",
        field_validation=request.first("fieldValidation") or "",
    )
    if wrong is not None:
        raise ApiError(wrong.code, wrong.reason, wrong.message, details=wrong.details)


def dry_run(request: Request, options_kind: str, from_body: Sequence[str] | None = None) -> bool:
    """Whether nothing may be stored; `dryRun` is `All` or absent."""
    asked = (from_body if from_body is not None else request.query.get("dryRun")) or []
    if causes := _dry_run_causes(asked):
        raise invalid(options_kind, "meta.k8s.io", "", causes)
    return bool(asked)


def _dry_run_causes(asked: Sequence[str]) -> list[JsonObject]:
    if all(value == "All" for value in asked):
        return []
    shown = "[" + ",".join(quote(str(v)) for v in asked) + "]"
    return [_unsupported("dryRun", shown, ("All",))]


def field_manager(request: Request) -> str:
    """Who the change is attributed to: the option, else the client's name."""
    return request.first("fieldManager") or request.user_agent.partition("/")[0] or "unknown"


def field_validation(request: Request) -> str:
    """How unknown and duplicate fields are met; Warn unless the client says otherwise."""
    return request.first("fieldValidation") or "Warn"


@dataclass(slots=True)
class DeleteOptions:
    """How an object is to be deleted."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False
    cascading: bool = False
    """Asked for by the old name, orphanDependents: false; then a delete that has only begun is 202 Accepted."""
    collection: bool = False
    """The client named no object; who is asked about one of them is not told its name by itself either."""


_SCHEME = 'scheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"'
_PROPAGATIONS = ("Foreground", "Background", "Orphan", "nil")


def delete_options(request: Request) -> DeleteOptions:
    """From the body when there is one, else from the query."""
    return read_delete_options(request, _delete_body(request) if request.body.strip() else _delete_query(request))


def read_delete_options(request: Request, raw: JsonObject) -> DeleteOptions:
    """As a delete or an eviction gives them; `dryRun` may stand in the query as well."""
    causes = []
    policy, orphan = raw.get("propagationPolicy"), raw.get("orphanDependents")
    if policy is not None and orphan is not None:
        why = f"Invalid value: {quote(str(policy))}: orphanDependents and deletionPropagation cannot be both set"
        causes.append(cause("propagationPolicy", "FieldValueInvalid", why))
    if policy is not None and policy not in _PROPAGATIONS[:3]:
        causes.append(_unsupported("propagationPolicy", quote(str(policy)), _PROPAGATIONS))
    asked = raw.get("dryRun") or request.query.get("dryRun") or []
    causes += _dry_run_causes(asked)
    if causes:
        raise invalid("DeleteOptions", "meta.k8s.io", "", causes)
    preconditions = raw.get("preconditions") or {}
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace=raw.get("gracePeriodSeconds"),
        propagation=policy or "",
        uid=str(preconditions.get("uid") or ""),
        version=str(preconditions.get("resourceVersion") or ""),
        dry_run=bool(asked),
        cascading=orphan is False,
    )


def _delete_query(request: Request) -> JsonObject:
    found: JsonObject = {}
    if (grace := request.first("gracePeriodSeconds")) is not None:
        found["gracePeriodSeconds"] = parse_int(grace)
    if (policy := request.first("propagationPolicy")) is not None:
        found["propagationPolicy"] = policy
    if "orphanDependents" in request.query:
        found["orphanDependents"] = is_true(request.query, "orphanDependents")
    return found


_GO_STRUCT = (
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)
_GO_NAMES = {list: "array", str: "string", int: "number", float: "number", bool: "bool"}


def _delete_body(request: Request) -> JsonObject:
    try:
        raw = document(request)
    except Unreadable as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        shown = _GO_NAMES.get(type(raw), "value")
        raise bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {shown} into {_GO_STRUCT}"
        )
    kind, version = raw.get("kind") or "DeleteOptions", raw.get("apiVersion") or "meta.k8s.io/v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" in {_SCHEME}')
    if problem := schema.check(raw, schema.kind("", "v1", "DeleteOptions")).error:
        raise bad_request(problem)
    return raw
