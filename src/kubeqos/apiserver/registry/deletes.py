"""Delete and deletecollection: preconditions, grace periods, finalizers, and what a client is told."""

from __future__ import annotations

import asyncio

from kubeqos.apiserver.present.options import DeleteOptions, ListOptions
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.lifecycle import shortened
from kubeqos.apiserver.registry.objects import decode, renderer
from kubeqos.apiserver.registry.reads import Listing, list_objects
from kubeqos.apiserver.registry.writes import Written, finished
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.requests import Operation
from kubeqos.store import Delete, Put, Stored
from kubeqos.web.status import ApiError, about, conflict, forbidden, success

DELETED_TOGETHER = 100  # objects of a collection that share a transaction on disk
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


async def delete(
    core: Core, kind: Kind, namespace: str, name: str, options: DeleteOptions, asked: Request | None = None
) -> Written:
    """End an object: now, or when its grace period and its finalizers are over."""
    if core.hooks is not None and asked is not None:
        await core.hooks.before_delete(kind, namespace, name, options, asked)
    stored = core.stored(kind, namespace, name, pending=True)
    obj = decode(stored)
    check_allowed(kind, obj, stored, options)
    marked = mark(core, kind, obj, options)
    render = renderer(kind, obj)
    gone = finished(kind, obj) if marked is not None else True
    answer_object = kind.lifecycle.answers_object or not gone
    if options.dry_run or marked is False:
        value = render(stored.revision)
        await core.store.durable()  # what is shown may be on its way to the disk
        return Written(value if answer_object else _success(kind, obj), pending=marked is False or not gone)
    final = render
    if marked and (not gone or kind.lifecycle.grace is not None):
        # Watchers of graceful kinds see the object terminating before they see it gone.
        wait = core.store.commit([Put(stored.key, render, expect=stored.revision)])
        if not gone:
            return Written(render(await wait), pending=True)
        current = core.store.get(stored.key, pending=True)
        assert current is not None  # written above
        stored = current
    released = core.admission.admit(kind.request(Operation.DELETE, namespace, None, obj))
    commit = core.store.commit([Delete(stored.key, final=final, expect=stored.revision)], released.coalesced)
    released.accepted()
    revision = await commit
    return Written(final(revision) if answer_object else _success(kind, obj))


def mark(core: Core, kind: Kind, obj: JsonObject, options: DeleteOptions) -> bool | None:
    """Mark an object as being deleted. True: marked now; False: nothing to change; None: it can go without a mark."""
    metadata, lifecycle = obj["metadata"], kind.lifecycle
    if "deletionTimestamp" in metadata and not _may_change(kind, obj, options):
        return False
    before = metadata.get("finalizers")
    _add_propagation(metadata, options.propagation or ("Orphan" if lifecycle.orphans else ""))
    if kind.kind == "Namespace":
        metadata["deletionTimestamp"] = timestamp(core.clock())
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return True
    if lifecycle.grace is not None:
        # What an object is asks for nothing any more once it is being deleted; what is said then is taken as it is.
        shorter = _asked(options) if metadata.get("deletionGracePeriodSeconds") else None
        grace = lifecycle.grace(obj, options.grace) if shorter is None else shorter
    elif metadata.get("finalizers"):
        grace = 0
    else:
        return None
    if "deletionTimestamp" in metadata:
        if grace >= metadata.get("deletionGracePeriodSeconds", 0) and not (grace == 0 and finished(kind, obj)):
            return bool(metadata.get("finalizers") != before)
        ends, grace = shortened(metadata, grace, core.clock())
    else:
        if metadata.get("generation"):
            metadata["generation"] += 1
        ends = core.clock() + grace
    metadata["deletionTimestamp"] = timestamp(ends)
    metadata["deletionGracePeriodSeconds"] = grace
    return True


def _may_change(kind: Kind, obj: JsonObject, options: DeleteOptions) -> bool:
    """Whether a delete still means something to an object that is being deleted: not while its grace period runs."""
    if kind.kind == "Namespace":
        return False
    left, asked = obj["metadata"].get("deletionGracePeriodSeconds", 0), _asked(options)
    return kind.lifecycle.grace is None or left == 0 or (asked is not None and asked < left)


def _asked(options: DeleteOptions) -> int | None:
    """The grace that a request names; less than none is the least there is."""
    return 1 if options.grace is not None and options.grace < 0 else options.grace


def _add_propagation(metadata: JsonObject, policy: str) -> None:
    wanted = _PROPAGATION_FINALIZERS.get(policy)
    finalizers = [
        f for f in metadata.get("finalizers") or () if f not in _PROPAGATION_FINALIZERS.values() or f == wanted
    ]
    if not policy:
        return
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def check_allowed(kind: Kind, obj: JsonObject, stored: Stored, options: DeleteOptions) -> None:
    """Refuse to delete what is protected, or what is not what the client means."""
    name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
    why = kind.lifecycle.protect(name) if kind.lifecycle.protect else None
    if why:
        raise forbidden(kind.plural, kind.group, name, why)
    if options.uid and options.uid != uid:
        raise _precondition(kind, name, "UID", options.uid, uid, "deleted and then recreated")
    if options.version and options.version != str(stored.revision):
        raise _precondition(kind, name, "ResourceVersion", options.version, str(stored.revision), "modified")


def _precondition(kind: Kind, name: str, what: str, asked: str, found: str, happened: str) -> ApiError:
    verb = "been " + happened
    return conflict(
        kind.kind,
        kind.group,
        name,
        f"the {what} in the precondition ({asked}) does not match the {what} in record ({found})."
        f" The object might have {verb}",
    )


def _success(kind: Kind, obj: JsonObject) -> bytes:
    metadata = obj["metadata"]
    return encode_json(success(details=about(kind.plural, kind.group, metadata["name"], uid=metadata["uid"])))


async def delete_collection(
    core: Core,
    kind: Kind,
    namespace: str,
    selection: ListOptions,
    options: DeleteOptions,
    asked: Request | None = None,
) -> Listing:
    """Delete everything that a list selects; answers with what was there."""
    listing = list_objects(core, kind, namespace, selection)
    options.collection = True

    async def one(stored: Stored) -> None:
        metadata = decode(stored)["metadata"]
        try:
            await delete(core, kind, metadata.get("namespace", ""), metadata["name"], options, asked)
        except ApiError as error:
            if error.code != 404:  # somebody else deleted it meanwhile
                raise

    for start in range(0, len(listing.items), DELETED_TOGETHER):
        await asyncio.gather(*map(one, listing.items[start : start + DELETED_TOGETHER]))
    return listing
