"""Speaks to an API server: requests, list-and-watch caches, work queues, events.

Used by controllers, scheduler, node agents and the CLI. The same interface (`Api`) is served over HTTP with a
kubeconfig (`HttpApi`) and in-process by the embedded API server (`TransportApi` over its own `Transport`).
"""

from kubeqos.client.api import Answer, Api, Call, Listing, Metadata, PatchType, Transport, TransportApi, WatchEvent
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.events import EventRecorder
from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import Resource
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
    "Transport",
    "TransportApi",
    "Unreachable",
    "WatchEvent",
    "WorkQueue",
]
