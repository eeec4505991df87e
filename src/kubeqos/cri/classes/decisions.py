"""What is decided of classes: which a subject gets, what an update moves, what a new configuration changes. Pure.

Every function takes the offers and who holds them, and returns a value: a grant, a change, or a denial that says why.
The texts follow KEP-3008's prototype ("unavailable …", "insufficient …").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, Advertisement, Level, Subject
from kubeqos.cri.status import FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED
from kubeqos.document import suggest
from kubeqos.rules.qos.classes import POD_QOS

Offers = Mapping[str, Advertisement]
_FIELD = {Level.POD: "PodSandboxConfig.qos_resources", Level.CONTAINER: "ContainerConfig.qos_resources"}


@dataclass(frozen=True, slots=True)
class Wish:
    """One requested class, and where the request was written."""

    resource: str
    class_name: str
    origin: str = "qos_resources"


@dataclass(frozen=True, slots=True)
class Denied:
    """The request fails with this gRPC code and text; nothing was changed."""

    code: int
    message: str
    shortage: bool = False
    """A class is full: it may have room once the runtime's exited containers are looked at again."""


Asks = Callable[[Offers, Subject, Mapping[str, str]], Sequence[Wish] | Denied]
"""What a pod's annotations ask for one of its containers, or for the pod as a whole, where its owner may ask so."""


@dataclass(frozen=True, slots=True)
class Move:
    """One subject goes from one class of a resource to another."""

    key: str
    resource: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ClassChange:
    """An update that may be carried out: the moves, and the holder as it will be."""

    moves: tuple[Move, ...]
    holder: Holder


@dataclass(frozen=True, slots=True)
class Follow:
    """What a new configuration means for one subject."""

    holder: Holder
    leave: tuple[Move, ...] = ()
    """Carried out by the providers of the old configuration: out of what no longer exists or was redefined."""
    enter: tuple[Move, ...] = ()
    """Carried out by the new providers."""


def annotation_wishes(
    offers: Offers, container: str, annotations: Mapping[str, str], pod_annotations: Mapping[str, str]
) -> list[Wish] | Denied:
    """What stock kubelets ask for (cri-nri: container annotation, else pod's for this container, else pod's).

    No quota counts them, so each class has to be opened to them in the configuration.
    """
    wishes = []
    for offer in offers.values():
        if not offer.annotation_stem or not offer.by_annotation or offer.level is not Level.CONTAINER:
            continue
        own, named, pod = annotation_keys(offer.annotation_stem, container)
        candidates = (
            (annotations, own, offer.deny_container_annotation),
            (pod_annotations, named, offer.deny_pod_annotation),
            (pod_annotations, pod, offer.deny_pod_annotation),
        )
        for source, key, denied in candidates:
            if source.get(key):
                if source[key] in denied or (offer.find(source[key]) and source[key] not in offer.by_annotation):
                    return Denied(
                        INVALID_ARGUMENT,
                        f"class {source[key]!r} of {offer.name!r} may not be requested with annotation {key}",
                    )
                wishes.append(Wish(offer.name, source[key], f"annotation {key}"))
                break
    return wishes


def unanswered(
    offers: Offers, annotations: Mapping[str, str], pod_annotations: Mapping[str, str]
) -> list[tuple[str, str]]:
    """(annotation, why) of what asks for classes in the words of stock kubelets and is answered by nobody here."""
    stems = {offer.annotation_stem: offer for offer in offers.values() if offer.annotation_stem}
    found = []
    for key, value in {**pod_annotations, **annotations}.items():
        stem, where = _asks(key)
        if not stem or not value:
            continue
        offer = stems.get(stem)
        if offer is None:
            found.append((key, f"no resource here is asked for with annotations of {stem!r}"))
        elif not offer.by_annotation:
            found.append((key, f"{offer.name!r} gives no class to annotations; name some under `annotations`"))
        elif where != "pod" and not where.startswith("container."):
            found.append((key, f"it names neither pod nor container.NAME: {where!r}"))
    return found


def _asks(key: str) -> tuple[str, str]:
    """What an annotation asks a class of, and for whom; nothing for any other annotation."""
    prefix, _, name = key.partition("/")
    if key.startswith("io.kubernetes.cri.") and key.endswith("-class"):
        return key.removeprefix("io.kubernetes.cri.").removesuffix("-class"), "pod"
    suffix = ".resources.beta.kubernetes.io"
    return (prefix.removesuffix(suffix), name) if prefix.endswith(suffix) else ("", "")


def annotation_keys(stem: str, container: str) -> tuple[str, str, str]:
    base = f"{stem}.resources.beta.kubernetes.io"
    return f"io.kubernetes.cri.{stem}-class", f"{base}/container.{container}", f"{base}/pod"


def grant(
    offers: Offers,
    holders: ClassHolders,
    level: Level,
    wishes: Sequence[Wish],
    fallback: Sequence[Wish] = (),
    subject: Subject | None = None,
) -> dict[str, Assignment] | Denied:
    """The class of every resource of this level: requested, or the implicit default. `fallback` yields to `wishes`."""
    asked = {wish.resource for wish in wishes}
    handler = subject.runtime_handler if subject else ""
    chosen: dict[str, Assignment] = {}
    for wish in (*wishes, *(w for w in fallback if w.resource not in asked)):
        if wish.resource == POD_QOS:
            continue  # informational; no request fails because of it (KEP-3008, Pass on Pod QoS class)
        denied = _check_wish(offers, level, wish, chosen, handler) or _check_room(offers, holders, wish)
        if denied is None and not _had(holders, subject, wish):
            denied = _check_current(offers, wish)
        if denied:
            return denied
        chosen[wish.resource] = Assignment(wish.class_name, explicit=True)
    defaults = {o.name: Assignment(o.default_for(handler)) for o in offers.values() if o.level is level}
    return {**defaults, **chosen}


def _check_wish(offers: Offers, level: Level, wish: Wish, chosen: Collection[str], handler: str) -> Denied | None:
    offer = offers.get(wish.resource)
    known = [o.name for o in offers.values() if o.level is level]
    if offer is None:
        return Denied(
            INVALID_ARGUMENT,
            f"unavailable {level.value} QoS resource type {wish.resource!r} ({wish.origin}): "
            + (suggest(wish.resource, known) if known else f"this node offers none at {level.value} level"),
        )
    if offer.level is not level:
        return Denied(
            INVALID_ARGUMENT,
            f"{wish.resource!r} is a {offer.level.value}-level QoS resource: request it in {_FIELD[offer.level]}",
        )
    if wish.resource in chosen:
        return Denied(INVALID_ARGUMENT, f"QoS resource {wish.resource!r} is requested twice")
    if not offer.find(wish.class_name):
        classes = [c.name for c in offer.classes]
        hint = suggest(wish.class_name, classes) if wish.class_name else f"known here: {', '.join(classes)}"
        return Denied(
            INVALID_ARGUMENT,
            f"unavailable class {wish.class_name!r} of QoS resource {wish.resource!r} ({wish.origin}): {hint}",
        )
    if not offer.is_for(handler, wish.class_name):
        return Denied(INVALID_ARGUMENT, offer.withheld(handler, wish.class_name))
    return None


def _check_current(offers: Offers, wish: Wish) -> Denied | None:
    offer = offers[wish.resource]
    if wish.class_name not in offer.retired:
        return None
    rest = ", ".join(c.name for c in offer.current())
    what = f"class {wish.class_name!r} of QoS resource {wish.resource!r} is retired; there are: {rest}"
    return Denied(INVALID_ARGUMENT, what)


def _had(holders: ClassHolders, subject: Subject | None, wish: Wish) -> bool:
    """Whether an earlier instance of this subject was in the class."""
    if subject is None:
        return False
    me = subject.level, subject.pod_uid, subject.container_name
    return any(
        (one.subject.level, one.subject.pod_uid, one.subject.container_name) == me
        and one.classes.get(wish.resource) == Assignment(wish.class_name, explicit=True)
        for _, one in holders
    )


def _check_room(offers: Offers, holders: ClassHolders, wish: Wish) -> Denied | None:
    info = offers[wish.resource].find(wish.class_name)
    used = holders.used(wish.resource, wish.class_name)
    if info is None or not info.capacity or used < info.capacity:
        return None
    return Denied(
        RESOURCE_EXHAUSTED,
        f"insufficient class {wish.class_name!r} of QoS resource {wish.resource!r}: "
        f"capacity {info.capacity}, in use {used}",
        shortage=True,
    )


def change(
    offers: Offers, holders: ClassHolders, key: str, holder: Holder, wishes: Sequence[Wish], subject: Subject
) -> ClassChange | Denied:
    """An update of a container. Refused as a whole before anything is moved (KEP-3008: must be atomic)."""
    level = holder.subject.level
    classes = dict(holder.classes)
    moves: list[Move] = []
    chosen: set[str] = set()
    for wish in wishes:
        if wish.resource == POD_QOS:
            continue
        denied = _check_wish(offers, level, wish, chosen, holder.subject.runtime_handler)
        if denied:
            return denied
        chosen.add(wish.resource)
        current = classes.get(wish.resource, Assignment(SYSTEM_DEFAULT))
        wanted = Assignment(wish.class_name, explicit=True)
        if current.class_name != wish.class_name:
            if not offers[wish.resource].mutable:
                return Denied(
                    FAILED_PRECONDITION,
                    f"QoS resource {wish.resource!r} is immutable: {holder.subject.describe()} "
                    f"stays in class {current.class_name!r}; nothing was updated",
                )
            if retired := _check_current(offers, wish):
                return retired
            moves.append(Move(key, wish.resource, current.class_name, wish.class_name))
        denied = _check_room(offers, holders, wish) if wanted != current else None
        if denied:
            return denied
        classes[wish.resource] = wanted
    return ClassChange(tuple(moves), dataclasses.replace(holder, classes=classes, subject=subject))


def assigned(offers: Offers, level: Level, holder: Holder | None) -> list[tuple[str, str]]:
    """What a status shows: every resource of the level, with "" where nothing is enforced."""
    classes = holder.classes if holder else {}
    nothing = Assignment(SYSTEM_DEFAULT)
    return [(n, classes.get(n, nothing).class_name) for n, o in sorted(offers.items()) if o.level is level]


def follow(old: Offers, new: Offers, key: str, holder: Holder, redefined: Collection[str] = ()) -> Follow:
    """How one subject follows a new configuration.

    `redefined` names resources whose classes have other contents now: their holders leave and enter again.
    """
    leave: list[Move] = []
    enter: list[Move] = []
    # A sandbox runs from the moment it is there, also where a runtime does not say in which process.
    started = holder.place is not None or (holder.subject.level is Level.POD and bool(holder.subject.id))
    # The provider of a resource in neither list is away: what it was asked for waits for its return.
    classes = {name: a for name, a in holder.classes.items() if name not in old and name not in new and a.explicit}
    for name in sorted({*old, *new}):
        offer = new.get(name)
        if (offer or old[name]).level is not holder.subject.level:
            continue
        before = holder.classes.get(name)
        after = _reassigned(offer, before, holder.subject.runtime_handler, started=started)
        if after is not None:
            classes[name] = after
        left, came = before.class_name if before else "", after.class_name if after else ""
        again = name in redefined or name not in old
        if holder.place is None or not holder.alive or (left == came and not again):
            continue
        if left and name in old:
            leave.append(Move(key, name, left, SYSTEM_DEFAULT))
        if came:
            enter.append(Move(key, name, SYSTEM_DEFAULT, came))
    return Follow(dataclasses.replace(holder, classes=classes), tuple(leave), tuple(enter))


def adopted(offers: Offers, subject: Subject, running: bool) -> dict[str, Assignment]:
    """Implicit classes of a subject that was there before us; a running one stays out of what cannot be changed."""
    handler = subject.runtime_handler
    own = [offer for offer in offers.values() if offer.level is subject.level]
    return {o.name: Assignment(o.default_for(handler) if o.mutable or not running else SYSTEM_DEFAULT) for o in own}


def resized(subject: Subject, cpu_shares: int, memory_limit_bytes: int) -> Subject:
    """The subject with what an update says about its own resources; 0 means unchanged."""
    return dataclasses.replace(
        subject,
        cpu_shares=cpu_shares or subject.cpu_shares,
        memory_limit_bytes=memory_limit_bytes or subject.memory_limit_bytes,
    )


def _reassigned(
    offer: Advertisement | None, before: Assignment | None, handler: str, *, started: bool
) -> Assignment | None:
    """An explicit class stays. An implicit one follows the default, if a running subject can still be moved."""
    if offer is None:
        return None
    if before is not None and before.explicit:
        return before
    if offer.mutable or not started:
        return Assignment(offer.default_for(handler))
    kept = before.class_name if before and offer.find(before.class_name) else SYSTEM_DEFAULT
    return Assignment(kept)


def broken_promises(old: Offers, new: Offers, holders: ClassHolders) -> list[str]:
    """Why a new configuration cannot be taken on: classes gone that somebody asked for and was given.

    One with less capacity than it holds is fine: nobody new gets it until enough have ended.
    """
    out = []
    for name, offer in sorted(old.items()):
        for info in offer.classes:
            used = holders.used(name, info.name)
            if not used:
                continue
            who = holders.holders_of(name, info.name)[0].subject.describe()
            successor = new.get(name)
            kept = successor.find(info.name) if successor and successor.level is offer.level else None
            if kept is None:
                out.append(f"class {info.name!r} of {name!r} is gone but still holds {used}, among them {who}")
    return out
