"""Calls the providers for the classes of one subject: in order, each under a deadline, undone together.

A provider that hangs or raises fails its own request and nobody else's.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

from kubeqos.cri.classes.decisions import Move
from kubeqos.cri.enforcing.podcgroups import PodCgroups, is_pod
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.holders import Assignment, Holder
from kubeqos.cri.providers.protocol import SYSTEM_DEFAULT, ClassRefusal, Edit, Level, Place, Subject
from kubeqos.errors import KubeqosError, RemoteError
from kubeqos.logs import logger

PROVIDER_SECONDS = 5.0
T = TypeVar("T")
log = logger("kubeqos.classes")


def enforced(classes: Mapping[str, Assignment], catalog: Catalog) -> list[tuple[str, str]]:
    """(resource, class) of what a provider has to do something for."""
    return [(n, a.class_name) for n, a in sorted(classes.items()) if a.class_name and n in catalog.providers]


async def check(
    catalog: Catalog, subject: Subject, classes: Mapping[str, Assignment]
) -> dict[str, Assignment] | ClassRefusal:
    """The classes that the providers agree to. Who asked for nothing is not refused a default: it gets none."""
    agreed = dict(classes)
    for resource, class_name in enforced(classes, catalog):
        refusal = await _timed(resource, catalog.providers[resource].check(subject, resource, class_name))
        if refusal is not None and classes[resource].explicit:
            return refusal
        if refusal is not None:
            agreed[resource] = Assignment(SYSTEM_DEFAULT)
    return agreed


async def edits(catalog: Catalog, subject: Subject, classes: Mapping[str, Assignment]) -> Edit:
    out = Edit()
    for resource, class_name in enforced(classes, catalog):
        out |= await _timed(resource, catalog.providers[resource].apply(subject, resource, class_name))
    return out


def acts_in_place(catalog: Catalog, classes: Mapping[str, Assignment]) -> bool:
    """Whether a class of this subject is enforced where it runs, now or after a change."""
    return any(catalog.providers[resource].acts_in_place for resource in classes if resource in catalog.providers)


def needs_place(catalog: Catalog, classes: Mapping[str, Assignment]) -> bool:
    """Whether a class that this subject has now is enforced where it runs."""
    return any(catalog.providers[resource].acts_in_place for resource, _ in enforced(classes, catalog))


async def enter(catalog: Catalog, holder: Holder, place: Place) -> None:
    for resource, class_name in enforced(holder.classes, catalog):
        provider = catalog.providers[resource]
        if provider.acts_in_place:
            await _timed(resource, provider.enter(holder.subject, place, resource, class_name))


async def drifted(catalog: Catalog, holder: Holder, place: Place) -> list[str]:
    """What others have changed of what the classes of a subject promise."""
    found: list[str] = []
    for resource, class_name in enforced(holder.classes, catalog):
        provider = catalog.providers[resource]
        if provider.acts_in_place:
            found += await _timed(resource, provider.drifted(holder.subject, place, resource, class_name))
    return found


async def enter_again(catalog: Catalog, holder: Holder, place: Place) -> None:
    """What held before holds again, as far as each provider can."""
    for resource in sorted(holder.classes):
        try:
            await enter(catalog, dataclasses.replace(holder, classes={resource: holder.classes[resource]}), place)
        except KubeqosError as error:
            log.error("cannot enforce again", subject=holder.subject.describe(), resource=resource, error=error.what)


async def move(catalog: Catalog, subject: Subject, place: Place, moves: Iterable[Move]) -> None:
    """All moves, or none: what was done is undone when a later one fails."""
    done: list[Move] = []
    try:
        for step in moves:
            provider = catalog.providers[step.resource]
            await _timed(step.resource, provider.move(subject, place, step.resource, step.old, step.new))
            done.append(step)
    except KubeqosError:
        await move_back(catalog, subject, place, done)
        raise


async def move_back(catalog: Catalog, subject: Subject, place: Place, done: Iterable[Move]) -> None:
    for step in reversed(list(done)):
        provider = catalog.providers[step.resource]
        try:
            await _timed(step.resource, provider.move(subject, place, step.resource, step.new, step.old))
        except KubeqosError as error:
            log.error("cannot move back", subject=subject.describe(), resource=step.resource, error=error.what)


def weigh(catalog: Catalog, pods: PodCgroups, subject: Subject, mates: Iterable[Holder]) -> None:
    """Let a pod's own cgroup say what the classes of its containers mean against other pods."""
    if subject.level is Level.POD or not subject.sandbox_id:
        return
    placed = [one for one in mates if one.alive and one.place is not None]
    about = {
        kind
        for one in placed
        for resource, _ in enforced(one.classes, catalog)
        for kind in catalog.providers[resource].weighs
    }
    for cgroup in {one.place.cgroup.rstrip("/").rpartition("/")[0] for one in placed if one.place is not None}:
        if is_pod(cgroup, subject.pod_uid):
            pods.weigh(cgroup, subject.sandbox_id, about)


async def withdraw(catalog: Catalog, holder: Holder) -> None:
    for resource, class_name in enforced(holder.classes, catalog):
        try:
            await _timed(resource, catalog.providers[resource].withdraw(holder.subject, resource, class_name))
        except KubeqosError as error:
            log.error("cannot withdraw", subject=holder.subject.describe(), resource=resource, error=error.what)


async def _timed(resource: str, call: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(PROVIDER_SECONDS):
            return await call
    except TimeoutError as error:
        raise RemoteError(f"the provider of {resource!r} did not answer within {PROVIDER_SECONDS:g} s") from error
    except KubeqosError:
        raise
    except Exception as error:
        raise RemoteError(f"the provider of {resource!r} failed: {type(error).__name__}: {error}") from error
