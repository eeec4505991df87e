"""Speaks to an API server: requests, list-and-watch caches, work queues, events.

Used by controllers, scheduler, node agents and the CLI. The same interface (`Api`) is served over HTTP with a
kubeconfig (`HttpApi`) and in-process by the embedded API server (`TransportApi` over its own `Transport`).

What is imported from here comes from its module when it is first named: the command line reads with `client.light`
alone and must not pay for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeqos.client.api import Answer, Api, Call, Listing, Metadata, PatchType, Transport, TransportApi, WatchEvent
    from kubeqos.client.errors import ApiError, Unreachable
    from kubeqos.client.events import EventRecorder
    from kubeqos.client.informer import Change, Informer
    from kubeqos.client.resources import Resource
    from kubeqos.client.shared import SharedInformers
    from kubeqos.client.workqueue import WorkQueue

__all__ = [
    "Answer",
    "Api",
    "ApiError",
    "Call",
    "Change",
    "EventRecorder",
    "Informer",
    "Listing",
    "Metadata",
    "PatchType",
    "Resource",
    "SharedInformers",
    "Transport",
    "TransportApi",
    "Unreachable",
    "WatchEvent",
    "WorkQueue",
]

_HOMES = {
    "Answer": "api",
    "Api": "api",
    "Call": "api",
    "Listing": "api",
    "Metadata": "api",
    "PatchType": "api",
    "Transport": "api",
    "TransportApi": "api",
    "WatchEvent": "api",
    "ApiError": "errors",
    "Unreachable": "errors",
    "EventRecorder": "events",
    "Change": "informer",
    "Informer": "informer",
    "Resource": "resources",
    "SharedInformers": "shared",
    "WorkQueue": "workqueue",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
