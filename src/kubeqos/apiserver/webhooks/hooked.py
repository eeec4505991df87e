"""Writes while webhooks are configured: what Kubernetes does between a client's object and the store, with calls in it.

A new object is prepared, shown to mutating webhooks one after the other, judged by everything that judges it anyway,
shown to validating webhooks all at once, and only then written as usual. Built-in admission comes after mutating
webhooks and sees what they made. The calls take time: whoever changed the object meanwhile is noticed at the end, and
an update starts again with what is there now.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.auth.reviews import user_info
from kubeqos.apiserver.patch import PatchError
from kubeqos.apiserver.patch.jsonpatch import json_patch
from kubeqos.apiserver.present.options import DeleteOptions
from kubeqos.apiserver.registry.core import CONNECT, Body, Core
from kubeqos.apiserver.registry.kinds import Kind, kind_named
from kubeqos.apiserver.registry.objects import decode
from kubeqos.apiserver.registry.writes import (
    Transform,
    Write,
    Written,
    admit,
    commit_update,
    create_prepared,
    prepared,
    proposed,
    record_owners,
)
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.webhooks.calling import Caller, CallFailed
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.logs import logger
from kubeqos.model import schema
from kubeqos.model.text.gotext import quote
from kubeqos.rules.defaulting.defaults import apply_defaults
from kubeqos.rules.requests import AdmissionRequest, Operation
from kubeqos.rules.webhooks import HARMLESS, BadAnswer, Question, Target, Verdict, Webhook, is_exempt, refusal, verdict
from kubeqos.web.status import MODIFIED, ApiError, bad_request, conflict

log = logger("kubeqos.apiserver.webhooks")
ATTEMPTS = 5
"""How often an update starts again because somebody changed the object while webhooks were asked."""
_NAMESPACES = kind_named("Namespace")
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation", "managedFields")
"""Of an object's metadata: what is not for webhooks to change."""
_GIVEN_LATER = ("uid", "creationTimestamp", "generation")
"""Of a new object's metadata: what mutating webhooks do not see yet."""


@dataclass(slots=True)
class _Asking:
    """One write on its way through the webhooks."""

    question: Question
    kind: Kind
    """As which the client speaks of it."""
    warnings: list[str]

    def shown(self, obj: JsonObject | None) -> JsonObject | None:
        view = self.kind.view if self.question.target.body is None else None
        return obj if view is None or obj is None else view.shown(obj)

    def stored(self, obj: JsonObject) -> JsonObject:
        view = self.kind.view
        return obj if view is None else view.stored(obj)


class HookedWrites:
    """Stands in for create, update and the beginning of delete."""

    def __init__(self, core: Core, chain: Chain) -> None:
        self._core = core
        self._chain = chain
        self.caller = Caller(core)
        chain.on_webhooks(self._configured)
        self._configured()

    def _configured(self) -> None:
        """Nobody takes the longer way while there is nobody to ask."""
        self._core.write_through(self if self._chain.webhooks else None)

    def concerns(self, write: Write, operation: str) -> bool:
        """Whether somebody's rules are about such writes; others need not be prepared and judged twice."""
        target, hooks = self._target(write, operation, None), self._chain.webhooks
        return target is not None and any(one.ruled(target) for one in (*hooks.mutating, *hooks.validating))

    async def create(self, write: Write, obj: JsonObject) -> Written:
        core, kind = self._core, write.kind
        prepared(core, write, obj)
        asking = self._asking(write, Operation.CREATE.value, obj)
        if asking is not None:
            obj = await self._mutated(asking, obj, None)
            trial = admit(core, replace(write, warnings=None), _copy_of(kind, write, Operation.CREATE, obj, None))
            await self._validated(asking, trial.obj, None)
        return await create_prepared(core, write, obj)

    async def update(self, write: Write, transform: Transform) -> Written:
        core, kind = self._core, write.kind
        for _ in range(ATTEMPTS):
            stored = core.stored(kind, write.namespace, write.name, pending=True)
            old, new, owners = proposed(core, write, stored, transform)
            record_owners(new, owners)
            asking = self._asking(write, Operation.UPDATE.value, new)
            if asking is not None:
                new = await self._mutated(asking, new, old)
                request = _copy_of(kind, write, Operation.UPDATE, new, old)
                await self._validated(asking, admit(core, replace(write, warnings=None), request).obj, old)
            if kind.kind == "ResourceQuota" and not write.subresource:
                await core.admission.count(write.namespace)
            now = core.stored(kind, write.namespace, write.name, pending=True)
            if now.revision == stored.revision:
                return await commit_update(core, replace(write, applied=owners), now, _becomes(new))
        raise conflict(kind.plural, kind.group, write.name, MODIFIED)

    async def before_delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions, asked: Request
    ) -> None:
        """Ask about an object that is about to be deleted. Nothing can be changed about it."""
        old = decode(self._core.stored(kind, namespace, name, pending=True))
        write = Write(kind, namespace, name, dry_run=options.dry_run, asked=asked)
        asking = self._asking(write, Operation.DELETE.value, old, options=_delete_options(options))
        if asking is None:
            return
        if options.collection:
            asking.question = replace(asking.question, name="")
        for webhook in self._chain.webhooks.mutating:
            found = await self._ask(asking, webhook, None, old, mutating=True)
            if found is not None and found.patch:
                what = f"admission webhook {quote(webhook.name)} attempted to modify the object"
                raise _internal(f"{what}, which is not supported for this operation")
        await self._validated(asking, None, old)

    async def below(
        self,
        write: Write,
        operation: str,
        body: Body,
        new: JsonObject,
        old: JsonObject | None = None,
        completed: Transform = lambda sent: sent,
    ) -> JsonObject:
        """Ask about what is sent to a subresource that has a kind of its own; what mutating webhooks made of it.

        `completed` makes of it what validating webhooks see.
        """
        asking = self._asking(write, operation, new, body)
        if asking is None:
            return new
        if "metadata" in new and write.kind.namespaced:
            new["metadata"].setdefault("namespace", write.namespace)
        new = await self._through_mutating(asking, new, old)
        await self._validated(asking, completed(new), old)
        return new

    # -- asking

    def _asking(
        self,
        write: Write,
        operation: str,
        obj: JsonObject,
        body: Body | None = None,
        options: JsonObject | None = None,
    ) -> _Asking | None:
        shown = write.view or write.kind
        target = self._target(write, operation, self._labels(write, obj), body)
        if target is None or write.asked is None:
            return None
        name = write.name if body is not None else str(obj["metadata"].get("name", ""))
        user = user_info(write.asked.identity)
        options = _options(write, write.asked, operation) | (options or {}) if operation != CONNECT else None
        question = Question(target, name, user, write.dry_run, options)
        return _Asking(question, shown, write.warnings if write.warnings is not None else [])

    def _target(
        self, write: Write, operation: str, labels: dict[str, str] | None, body: Body | None = None
    ) -> Target | None:
        """What rules look at; None for what nobody is asked about."""
        shown = write.view or write.kind
        if is_exempt(shown.group, shown.kind):
            return None
        versions = [shown.version]
        if shown.definition is not None:
            served = self._core.catalog.by_path.values()
            versions += [one.version for one in served if (one.group, one.plural) == (shown.group, shown.plural)]
        return Target(
            operation,
            shown.group,
            tuple(dict.fromkeys(versions)),
            shown.plural,
            shown.kind,
            write.subresource,
            write.namespace if write.kind.namespaced else "",
            labels,
            body,
        )

    def _labels(self, write: Write, obj: JsonObject) -> dict[str, str] | None:
        if write.kind is _NAMESPACES:
            return obj["metadata"].get("labels") or {}
        if not write.kind.namespaced or not write.namespace:
            return None
        stored = self._core.store.get(_NAMESPACES.key("", write.namespace), pending=True)
        return (decode(stored)["metadata"].get("labels") or {}) if stored is not None else {}

    async def _mutated(self, asking: _Asking, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        """The object after every mutating webhook; those that want to see it again do once another has changed it."""
        before = dict(obj["metadata"])
        hidden = _GIVEN_LATER if old is None else ()
        if old is None and before.get("generateName"):
            hidden, asking = (*hidden, "name"), replace(asking, question=replace(asking.question, name=""))
        shown = asking.shown({**obj, "metadata": {k: v for k, v in before.items() if k not in hidden}})
        assert shown is not None
        shown = await self._through_mutating(asking, shown, asking.shown(old))
        return self._completed(asking, asking.stored(shown), before)

    async def _through_mutating(self, asking: _Asking, shown: JsonObject, old: JsonObject | None) -> JsonObject:
        again: set[tuple[str, str]] = set()
        previous: list[Webhook] = []
        for webhook in self._chain.webhooks.mutating:
            changed = await self._patched(asking, webhook, shown, old)
            if changed is not None and changed != shown:
                shown = changed
                again |= {one.identity for one in previous}
            if webhook.reinvoked:
                previous.append(webhook)
        for webhook in [one for one in previous if one.identity in again]:
            shown = await self._patched(asking, webhook, shown, old) or shown
        return shown

    def _completed(self, asking: _Asking, obj: JsonObject, before: JsonObject) -> JsonObject:
        """What webhooks made, as if the client had sent it: in the schema's order, with defaults, its identity kept."""
        kind = asking.kind if asking.kind.view is None else asking.kind.storage
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            raise _internal("a webhook removed the metadata of the object")
        for name in _KEPT:
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        if kind.definition is None:
            obj = schema.normalise(obj, schema.kind(kind.group, kind.version, kind.kind))
        apply_defaults(kind.rules or kind.kind, obj)
        return obj

    async def _patched(
        self, asking: _Asking, webhook: Webhook, new: JsonObject, old: JsonObject | None
    ) -> JsonObject | None:
        found = await self._ask(asking, webhook, new, old, mutating=True)
        if found is None or not found.patch:
            return None
        try:
            return json_patch(new, list(found.patch))
        except PatchError as error:
            raise _internal(str(error)) from error

    async def _validated(self, asking: _Asking, new: JsonObject | None, old: JsonObject | None) -> None:
        """All validating webhooks at once; the first that refuses, in their order, decides what the client is told."""
        shown = asking.shown(new), asking.shown(old)
        work = [self._ask(asking, one, *shown, mutating=False) for one in self._chain.webhooks.validating]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ask(
        self, asking: _Asking, webhook: Webhook, new: JsonObject | None, old: JsonObject | None, *, mutating: bool
    ) -> Verdict | None:
        """What one webhook says; None when it is not asked, or cannot be and that does not matter."""
        question = asking.question
        version = webhook.version(question.target, new, old)
        if version is None:
            return None
        if question.dry_run and webhook.side_effects not in HARMLESS:
            raise bad_request(f"admission webhook {quote(webhook.name)} does not support dry run")
        uid = self._core.new_uid()
        try:
            review = question.review(webhook, version, uid, new, old)
            if review is None:
                raise CallFailed("could not create admission objects: it accepts no AdmissionReview that we know")
            found = verdict(await self.caller.ask(webhook, review), uid, mutating=mutating)
        except (CallFailed, BadAnswer) as error:
            told = str(error) if isinstance(error, CallFailed) else f"received invalid webhook response: {error}"
            if webhook.fails_open:
                log.warning("failed calling webhook, failing open %s: %s", webhook.name, told)
                return None
            raise _internal(f"failed calling webhook {quote(webhook.name)}: {told}") from error
        asking.warnings.extend(found.warnings)
        if not found.allowed:
            status = refusal(webhook, found.status)
            raise ApiError(
                status["code"], str(status.get("reason") or ""), status["message"], details=status.get("details")
            )
        return found


def _options(write: Write, asked: Request, operation: str) -> JsonObject:
    """The options of the request, as far as the client gave them."""
    found: JsonObject = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if write.dry_run:
        found["dryRun"] = ["All"]
    return found | {name: given for name in ("fieldManager", "fieldValidation") if (given := asked.first(name))}


def _delete_options(options: DeleteOptions) -> JsonObject:
    wanted = {"uid": options.uid, "resourceVersion": options.version}
    preconditions = {name: value for name, value in wanted.items() if value}
    found = {
        "gracePeriodSeconds": options.grace,
        "propagationPolicy": options.propagation or None,
        "preconditions": preconditions or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _becomes(new: JsonObject) -> Transform:
    return lambda _old: new


def _copy_of(
    kind: Kind, write: Write, operation: Operation, new: JsonObject, old: JsonObject | None
) -> AdmissionRequest:
    """A request about a copy: admission changes in place what it is asked about."""
    copy, whole = decode_json(encode_json(new)), write.whole or operation is Operation.CREATE
    return kind.request(operation, write.namespace, copy, old, write.subresource, whole=whole)


def _internal(message: str) -> ApiError:
    causes = [{"message": message}]
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details={"causes": causes})
