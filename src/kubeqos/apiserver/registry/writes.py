"""Create, update and patch: what Kubernetes' generic registry does around a kind's own rules.

Everything between reading the current object and committing the new one is synchronous, so within this process a
compare-and-set never has to be tried twice and two writers never see each other's half.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from kubeqos.apiserver.admission.contract import AdmittedWrite
from kubeqos.apiserver.patch import Comparison, Writer, changes_between, track
from kubeqos.apiserver.registry.core import Core, generated_name
from kubeqos.apiserver.registry.kinds import KINDS, Kind
from kubeqos.apiserver.registry.lifecycle import generated, keep_all_but_status, keep_status
from kubeqos.apiserver.registry.objects import decode, renderer, unversioned
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, decode_json
from kubeqos.model import schema
from kubeqos.model.text.gotext import quote
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.defaulting.defaults import apply_defaults
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.requests import AdmissionRequest, Operation
from kubeqos.store import Delete, Put, Stored
from kubeqos.web.status import (
    MODIFIED,
    ApiError,
    already_exists,
    bad_request,
    cause,
    conflict,
    forbidden,
    invalid,
    not_found,
)

_METADATA = schema.type_named("meta/v1.ObjectMeta")
Transform = Callable[[JsonObject], JsonObject]


@dataclass(slots=True)
class Written:
    """The stored bytes of a write, whether it created the object, and whether it has only begun to delete it."""

    value: bytes
    created: bool = False
    pending: bool = False


@dataclass(slots=True)
class Write:
    """How a write is to be made."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""
    view: Kind | None = None  # the kind that the client speaks of, where another is stored
    dry_run: bool = False
    patching: bool = False
    whole: bool = False  # the client sent all of the object or of a part, not only what changes
    manager: str = ""  # who is recorded as the owner of what changes; nobody when empty
    applied: list[JsonObject] | None = None  # ownership as server-side apply worked it out
    warnings: list[str] | None = None
    guard: Callable[[JsonObject], None] | None = None  # refuses what this client may not write
    asked: Request | None = None  # none where the server itself writes, which no webhook is asked about

    def owners(self, core: Core, new: JsonObject, old: JsonObject | None) -> list[JsonObject]:
        """metadata.managedFields of an object as its client wrote it, defaults included.

        What admission adds to it afterwards is nobody's.
        """
        if self.applied is not None:
            return self.applied
        if not self.manager:
            return (old["metadata"].get("managedFields") or []) if old is not None else []
        moment = (
            new["metadata"]["creationTimestamp"] if old is None else ""
        )  # a new object was written when it was made
        spoken = self.view or self.kind
        if spoken.view is not None:
            old, new = None if old is None else spoken.view.shown(old), spoken.view.shown(new)
        return track(old, new, spoken.schema, owner(core, self, moment))

    def changes_in(
        self, version: str, old: JsonObject | None, new: JsonObject, ignored: JsonObject
    ) -> Comparison | None:
        """What this write changes in another form of its object, for those who own fields of that."""
        spoken = self.view or self.kind
        if spoken.definition is not None:  # whose forms differ in their apiVersion alone
            return changes_between(old, new, spoken.schema, ignored)
        form = next((one for one in KINDS if one.storage is self.kind and one.api_version == version), None)
        if form is None:
            return None
        spoken_view, shown_view = spoken.view, form.view

        def turned(obj: JsonObject) -> JsonObject:
            kept = obj if spoken_view is None else spoken_view.stored(obj)
            return kept if shown_view is None else shown_view.shown(kept)

        return changes_between(None if old is None else turned(old), turned(new), form.schema, ignored)


def record_owners(obj: JsonObject, owners: list[JsonObject]) -> None:
    """Write metadata.managedFields of an object that is about to be stored."""
    metadata = obj["metadata"] = dict(obj["metadata"])
    if owners:
        metadata["managedFields"] = owners
    else:
        metadata.pop("managedFields", None)


def _same_owners(owners: list[JsonObject], known: list[JsonObject]) -> bool:
    """Whether nothing about the owners is new but the time."""
    return [{**one, "time": ""} for one in owners] == [{**one, "time": ""} for one in known]


def owner(core: Core, write: Write, moment: str = "") -> Writer:
    """Who writes, for managedFields; the main resource does not own status, nor its subresource the rest."""
    ignored: JsonObject = {}
    if write.subresource == "status":
        ignored = {"f:spec": {}, **write.kind.lifecycle.status_keeps}
    elif write.kind.lifecycle.status and not write.subresource:
        ignored = {"f:status": {}}
    spoken, when = write.view or write.kind, moment or timestamp(core.clock())
    return Writer(write.manager, spoken.api_version, when, write.subresource, ignored, write.changes_in)


def unversioned_equal(new: JsonObject, old: JsonObject) -> bool:
    """Whether a write changes nothing but the version that every write gets."""
    if len(new) != len(old) or any(new.get(key) != value for key, value in old.items() if key != "metadata"):
        return False
    one, other = new["metadata"], old["metadata"]
    return {**one, "resourceVersion": ""} == {**other, "resourceVersion": ""}


def unowned(obj: JsonObject) -> JsonObject:
    """The object without what says who owns it."""
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ("managedFields", "resourceVersion")}
    return {**obj, "metadata": metadata}


async def create(core: Core, write: Write, obj: JsonObject) -> Written:
    """Store a new object."""
    if core.hooks is not None and write.asked is not None and core.hooks.concerns(write, Operation.CREATE.value):
        hooked: Written = await core.hooks.create(write, obj)
        return hooked
    prepared(core, write, obj)
    return await create_prepared(core, write, obj)


async def create_prepared(core: Core, write: Write, obj: JsonObject) -> Written:
    """Store a new object that has its identity."""
    kind = write.kind
    if kind.kind == "ResourceQuota":
        await core.admission.count(write.namespace)
    admitted = admit(core, write, kind.request(Operation.CREATE, write.namespace, obj, whole=True))
    name = admitted.obj["metadata"].get("name", "")
    key = kind.key(write.namespace, name)
    check_absent(core, kind, key, name)
    if write.dry_run:
        return Written(unversioned(kind, admitted.obj), created=True)
    render = renderer(kind, admitted.obj)
    commit = core.store.commit([Put(key, render, expect=0)], admitted.coalesced)
    admitted.accepted()
    return Written(render(await commit), created=True)


def completed(core: Core, write: Write, obj: JsonObject) -> AdmittedWrite:
    """Everything that happens to a new object before it is known whether there is one of its name."""
    prepared(core, write, obj)
    return admit(core, write, write.kind.request(Operation.CREATE, write.namespace, obj, whole=True))


def prepared(core: Core, write: Write, obj: JsonObject) -> None:
    """Give a new object its identity and its defaults, before anybody judges it."""
    kind, namespace = write.kind, write.namespace
    _fit_url(kind, namespace, obj)
    metadata = obj["metadata"]
    if metadata.get("resourceVersion") and not write.dry_run:
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"], core.new_suffix())
        obj["metadata"] = metadata = schema.normalise(metadata, _METADATA)  # the name stands where a given one would
    name = metadata.get("name", "")
    check_namespace(core, kind, namespace, name)
    _stamp(core, kind, obj)
    apply_defaults(kind.rules or kind.kind, obj)
    record_owners(obj, write.owners(core, obj, None))


def check_absent(core: Core, kind: Kind, key: str, name: str) -> None:
    """A name is given once."""
    existing = core.store.get(key, pending=True)
    if existing is not None:
        raise already_exists(kind.plural, kind.group, name, terminating=b'"deletionTimestamp":' in existing.value)


def check_namespace(core: Core, kind: Kind, namespace: str, name: str) -> None:
    """Nothing new in a namespace that does not exist or is going away (Kubernetes' NamespaceLifecycle)."""
    if not kind.namespaced:
        return
    terminating = core.namespace_terminating(namespace)
    if terminating is None:
        raise not_found("namespaces", "", namespace)
    if terminating:
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        message = f"namespace {namespace} is being terminated"
        raise forbidden(
            kind.plural, kind.group, name, why, causes=[cause("metadata.namespace", "NamespaceTerminating", message)]
        )


def _stamp(core: Core, kind: Kind, obj: JsonObject) -> None:
    metadata = obj["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"):
        metadata.pop(name, None)
    metadata["uid"] = core.new_uid()
    metadata["creationTimestamp"] = timestamp(core.clock())
    if kind.lifecycle.generation:
        metadata["generation"] = 1
    if kind.lifecycle.on_create is not None:
        kind.lifecycle.on_create(obj)


def _fit_url(kind: Kind, namespace: str, obj: JsonObject) -> None:
    metadata = obj["metadata"]
    if kind.namespaced:
        if metadata.get("namespace", namespace) not in ("", namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def admit(core: Core, write: Write, request: AdmissionRequest) -> AdmittedWrite:
    if write.guard is not None and request.new is not None:
        write.guard(request.new)
    if write.kind.definition is not None and request.new is not None:
        _judge_defined(write, request.new)
    if write.view is not None and write.view.view is not None and (rules := write.view.view.rules):
        request = msgspec.structs.replace(request, rules=rules)
    admitted = core.admission.admit(request)
    if write.warnings is not None:
        write.warnings.extend(admitted.warnings)
    return admitted


def _judge_defined(write: Write, obj: JsonObject) -> None:
    """An object of a kind that a definition added: completed and judged by the schema of the version that was sent."""
    kind = write.view or write.kind
    assert kind.definition is not None
    if errors := kind.definition.judge(obj):
        refusal = Invalid(kind.kind, kind.group, str(obj["metadata"].get("name", "")), errors)
        raise ApiError(refusal.code, refusal.reason, refusal.message, details=refusal.details)


async def replace(core: Core, write: Write, obj: JsonObject) -> Written:
    """PUT: the object given takes the place of the stored one."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({write.name} based on URL) was undeterminable: name must be provided"
        )
    if name != write.name:
        raise other_name(name, write.name)
    _fit_url(write.kind, write.namespace, obj)
    existing = core.store.get(write.kind.key(write.namespace, write.name), pending=True)
    if existing is None and write.kind.lifecycle.upsert and not write.subresource:
        metadata.pop("resourceVersion", None)
        return await create(core, write, obj)
    version = metadata.get("resourceVersion")
    if existing is not None and write.kind.lifecycle.needs_version and not version:
        raise _needs_version(write.kind, name)
    write.whole = True
    return await update(core, write, lambda _old: obj)


def _needs_version(kind: Kind, name: str) -> ApiError:
    """As in Kubernetes it is the resource that is named here, where every other refusal names the kind."""
    why = "Invalid value: 0: must be specified for an update"
    return invalid(kind.plural, kind.group, name, [cause("metadata.resourceVersion", "FieldValueInvalid", why)])


def other_name(found: object, wanted: str) -> ApiError:
    """A body that is about another object than the URL."""
    return bad_request(f"the name of the object ({found}) does not match the name on the URL ({wanted})")


async def update(core: Core, write: Write, transform: Transform) -> Written:
    """Change a stored object; `transform` gets a copy of it and returns what it should become."""
    if core.hooks is not None and write.asked is not None and core.hooks.concerns(write, Operation.UPDATE.value):
        hooked: Written = await core.hooks.update(write, transform)
        return hooked
    if write.kind.kind == "ResourceQuota" and not write.subresource:
        await core.admission.count(write.namespace)
    return await commit_update(
        core, write, core.stored(write.kind, write.namespace, write.name, pending=True), transform
    )


def commit_update(core: Core, write: Write, stored: Stored, transform: Transform) -> Awaitable[Written]:
    """The synchronous part of an update; returns the wait for its durability."""
    kind = write.kind
    old, new, owners = proposed(core, write, stored, transform)
    request = kind.request(Operation.UPDATE, write.namespace, new, old, write.subresource, whole=write.whole)
    admitted = admit(core, write, request)
    new = admitted.obj
    _check_finalizers(kind, new, old)
    if kind.lifecycle.generation and write.subresource not in ("status", "binding") and generated(old, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    known = old["metadata"].get("managedFields") or []
    unchanged = _same_owners(owners, known) and unowned(new) == unowned(old)
    record_owners(new, known if unchanged else owners)
    render = renderer(kind, new)
    if write.dry_run:
        return _already(core, Written(render(stored.revision)))
    if unversioned_equal(new, old):
        return _already(core, Written(stored.value))
    if not finished(kind, new):
        commit = core.store.commit([Put(stored.key, render, expect=stored.revision)], admitted.coalesced)
        admitted.accepted()
        return _written(commit, render)
    # The last finalizer or the last second of grace is gone: this write is the object's end.
    released = core.admission.admit(kind.request(Operation.DELETE, write.namespace, None, old))
    commit = core.store.commit([Delete(stored.key, final=render, expect=stored.revision)], released.coalesced)
    released.accepted()
    return _written(commit, render)


def proposed(
    core: Core, write: Write, stored: Stored, transform: Transform
) -> tuple[JsonObject, JsonObject, list[JsonObject]]:
    """The stored object, what it should become before anybody judges that, and who owns what of it then."""
    kind = write.kind
    old = decode(stored)
    new = transform(decode_json(stored.value))
    _check_identity(write, stored, old, new)
    apply_defaults(kind.rules or kind.kind, new)
    owners = write.owners(core, new, old)
    _carry_over(kind, write.subresource, new, old)
    return old, new, owners


async def _already(core: Core, written: Written) -> Written:
    """Nothing is to be written; what is shown may be on its way to the disk."""
    await core.store.durable()
    return written


async def _written(commit: Awaitable[int], render: Callable[[int], bytes]) -> Written:
    return Written(render(await commit))


def finished(kind: Kind, obj: JsonObject) -> bool:
    """A deleted object whose last finalizer and grace period are gone leaves the store with this write."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.kind == "Namespace":
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _check_identity(write: Write, stored: Stored, old: JsonObject, new: JsonObject) -> None:
    """Name, namespace, uid and version must be those of the stored object."""
    kind, name = write.kind, write.name
    metadata, known = new.get("metadata"), old["metadata"]
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if metadata.get("name") != known["name"]:
        raise other_name(metadata.get("name", ""), known["name"])
    found = metadata.get("namespace")
    if found and kind.namespaced and found != write.namespace:  # only a patch can still say so
        raise bad_request(
            f"the namespace of the object ({found}) does not match the namespace on the request ({write.namespace})"
        )
    version = metadata.get("resourceVersion")
    if version and version != str(stored.revision):
        if not str(version).isdigit():
            raise bad_request(f"strconv.ParseUint: parsing {quote(str(version))}: invalid syntax")
        raise conflict(kind.plural, kind.group, name, MODIFIED)
    if not version and write.patching and kind.lifecycle.needs_version:
        raise _needs_version(kind, name)
    uid = metadata.get("uid")
    if uid and uid != known["uid"] and not write.patching:  # what a patch says is looked at with everything else
        place = kind.key(write.namespace, name).removeprefix("/registry/core")
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry{place}, ResourceVersion: 0, AdditionalErrorMsg:"
            f" Precondition failed: UID in precondition: {uid}, UID in object meta: {known['uid']}"
        )
        raise conflict(kind.plural, kind.group, name, why)


_KEPT = ("namespace", "creationTimestamp", "generation", "selfLink")


def _carry_over(kind: Kind, subresource: str, new: JsonObject, old: JsonObject) -> None:
    """What a client can never change comes from the stored object."""
    lifecycle = kind.lifecycle
    if subresource in lifecycle.views:
        lifecycle.views[subresource](new, old)
        return
    metadata, known = new["metadata"], old["metadata"]
    for name in _KEPT:
        if name in known:
            metadata[name] = known[name]
        else:
            metadata.pop(name, None)
    metadata["uid"] = metadata.get("uid") or known["uid"]
    if "deletionTimestamp" in known:
        metadata["deletionTimestamp"] = known["deletionTimestamp"]
    if metadata.get("deletionGracePeriodSeconds") is None and "deletionGracePeriodSeconds" in known:
        metadata["deletionGracePeriodSeconds"] = known["deletionGracePeriodSeconds"]
    if subresource == "status":
        (lifecycle.on_status or keep_all_but_status)(new, old)
    elif lifecycle.status and subresource != "binding":
        keep_status(new, old)
    if not subresource and lifecycle.on_update is not None:
        lifecycle.on_update(new, old)


def _check_finalizers(kind: Kind, new: JsonObject, old: JsonObject) -> None:
    if "deletionTimestamp" not in old["metadata"]:
        return
    known = set(old["metadata"].get("finalizers") or ())
    added = sorted(f for f in new["metadata"].get("finalizers") or () if f not in known)
    if added:
        shown = "[]string{" + ", ".join(quote(f) for f in added) + "}"
        why = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
        causes = [cause("metadata.finalizers", "FieldValueForbidden", why)]
        raise invalid(kind.kind, kind.group, old["metadata"]["name"], causes)
