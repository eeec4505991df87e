"""The methods of NRI's two services: what each is asked with, what it answers, and which event it is. Pure.

Runtimes up to containerd 2.2 tell of an event that cannot change anything by one method, StateChange; newer ones call a
method for each. Both arrive here as the same event (`METHODS`, `BY_EVENT`).
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from kubeqos.nri.proto import nri_pb2 as nri

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
NRI_VERSION = "v0.12.2"
"""The version of the protocol that this room speaks; told when a plugin registers."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the plugin: its name on the wire, that of its handler, and its messages."""

    name: str
    handler: str
    event: int
    request: type[Message]
    response: type[Message]


def _method(handler: str, event: int) -> Method:
    name = "".join(word.capitalize() for word in handler.split("_"))
    return Method(name, handler, event, getattr(nri, f"{name}Request"), getattr(nri, f"{name}Response"))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("run_pod_sandbox", nri.RUN_POD_SANDBOX),
        _method("stop_pod_sandbox", nri.STOP_POD_SANDBOX),
        _method("remove_pod_sandbox", nri.REMOVE_POD_SANDBOX),
        _method("update_pod_sandbox", nri.UPDATE_POD_SANDBOX),
        _method("post_update_pod_sandbox", nri.POST_UPDATE_POD_SANDBOX),
        _method("create_container", nri.CREATE_CONTAINER),
        _method("post_create_container", nri.POST_CREATE_CONTAINER),
        _method("start_container", nri.START_CONTAINER),
        _method("post_start_container", nri.POST_START_CONTAINER),
        _method("update_container", nri.UPDATE_CONTAINER),
        _method("post_update_container", nri.POST_UPDATE_CONTAINER),
        _method("stop_container", nri.STOP_CONTAINER),
        _method("remove_container", nri.REMOVE_CONTAINER),
        _method("validate_container_adjustment", nri.VALIDATE_CONTAINER_ADJUSTMENT),
    )
}
BY_EVENT: dict[int, Method] = {method.event: method for method in METHODS.values()}
# A runtime refuses a plugin that asks for an event it does not know. Those that say their NRI version know all events
# above; those that do not, which are older, may know only the first eleven.
_EVENTS_OF_OLD_RUNTIMES = 11


def event_mask(handlers: set[str], runtime_nri_version: str) -> int:
    """The events that a plugin has handlers for, in the bits that the runtime counts them by."""
    known = max(BY_EVENT) if runtime_nri_version else _EVENTS_OF_OLD_RUNTIMES
    asked = (method.event for method in METHODS.values() if method.handler in handlers)
    return sum(1 << (event - 1) for event in asked if event <= known)
