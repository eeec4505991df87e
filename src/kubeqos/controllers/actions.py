"""What controllers decide to do: values that say what and why, and one place that carries them out.

The decision functions of this room return lists of these; tests assert them; `Performer` is the only code that turns
them into requests. A refusal that means "already so" is success: whoever was faster did our work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from kubeqos.client import Api, ApiError, EventRecorder, PatchType, Resource
from kubeqos.codec import JsonObject


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object. One of the same name that exists already is left alone."""

    resource: Resource
    body: JsonObject
    because: str

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"].get("namespace", ""))


@dataclass(frozen=True, slots=True)
class Delete:
    """End one object, and not a namesake that followed it."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    because: str
    propagation: str = ""
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge a patch into one object; with `version`, only if nobody changed it since it was looked at."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    patch: JsonObject
    because: str
    subresource: str = ""
    version: str = ""
    type: PatchType = PatchType.MERGE

    def body(self) -> JsonObject:
        metadata = {**(self.patch.get("metadata") or {}), "uid": self.uid}
        if self.version:
            metadata["resourceVersion"] = self.version
        return {**self.patch, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class Tell:
    """Record an event about an object."""

    regarding: JsonObject
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


Action = Create | Delete | Patch | Tell


def deletion(resource: Resource, obj: JsonObject, because: str, **how: object) -> Delete:
    """Delete this very object."""
    metadata = obj["metadata"]
    return Delete(
        resource,
        metadata.get("namespace", ""),
        metadata["name"],
        metadata["uid"],
        because,
        **how,  # type: ignore[arg-type]
    )


def change(
    resource: Resource,
    obj: JsonObject,
    patch: JsonObject,
    because: str,
    *,
    subresource: str = "",
    checked: bool = True,
    type: PatchType = PatchType.MERGE,
) -> Patch:
    """Patch this very object; `checked`: only in the version that was looked at."""
    metadata = obj["metadata"]
    version = metadata.get("resourceVersion", "") if checked else ""
    namespace = metadata.get("namespace", "")
    return Patch(resource, namespace, metadata["name"], metadata["uid"], patch, because, subresource, version, type)


@dataclass
class Performer:
    """Carries actions out. `learn` is told every object as the server left it."""

    api: Api
    events: EventRecorder
    learn: Callable[[Resource, JsonObject], None] = field(default=lambda resource, obj: None)

    async def perform(self, actions: Iterable[Action]) -> None:
        """One after the other; the first refusal that is not "already so" is raised, and the rest is left for later."""
        for action in actions:
            await self.do(action)

    async def do(self, action: Action) -> JsonObject | None:
        """One action; what the server answered, or None when there was nothing left to do."""
        if isinstance(action, Tell):
            self.events.record(action.regarding, action.reason, action.message, action.type)
            return None
        try:
            found = await self._send(action)
        except ApiError as error:
            if already_so(action, error):
                return None
            raise
        if found.get("kind") == action.resource.kind:
            self.learn(action.resource, found)
        return found

    async def _send(self, action: Create | Delete | Patch) -> JsonObject:
        match action:
            case Create():
                return await self.api.create(action.resource, action.body, action.namespace)
            case Delete():
                return await self.api.delete(
                    action.resource,
                    action.name,
                    action.namespace,
                    uid=action.uid,
                    propagation=action.propagation,
                    grace_seconds=action.grace_seconds,
                )
            case Patch():
                return await self.api.patch(
                    action.resource,
                    action.name,
                    action.body(),
                    action.namespace,
                    type=action.type,
                    subresource=action.subresource,
                )


def already_so(action: Create | Delete | Patch, error: ApiError) -> bool:
    """Whether a refusal means that there is nothing left to do."""
    if isinstance(action, Create):
        return error.already_exists
    return error.not_found or (isinstance(action, Delete) and error.conflict)


def namespace_ends(answer: object) -> bool:
    """An object was refused because its namespace is being deleted: so will be every other."""
    return isinstance(answer, ApiError) and "NamespaceTerminating" in str(answer.details)
