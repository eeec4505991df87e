"""What goes wrong between us and a container runtime.

`CallError` is what every caller of a runtime sees, whether the runtime is a process behind a socket or simulated in
this one. The codes are gRPC's by name, without needing gRPC.
"""

from __future__ import annotations

import enum

from kubeqos.errors import KubeqosError, RemoteError


class Code(enum.StrEnum):
    """Why a call failed, in gRPC's words."""

    CANCELLED = enum.auto()
    UNKNOWN = enum.auto()
    INVALID_ARGUMENT = enum.auto()
    DEADLINE_EXCEEDED = enum.auto()
    NOT_FOUND = enum.auto()
    ALREADY_EXISTS = enum.auto()
    PERMISSION_DENIED = enum.auto()
    RESOURCE_EXHAUSTED = enum.auto()
    FAILED_PRECONDITION = enum.auto()
    ABORTED = enum.auto()
    OUT_OF_RANGE = enum.auto()
    UNIMPLEMENTED = enum.auto()
    INTERNAL = enum.auto()
    UNAVAILABLE = enum.auto()
    DATA_LOSS = enum.auto()
    UNAUTHENTICATED = enum.auto()


REMEDIES = {
    Code.UNAVAILABLE: "check that the runtime runs and that the endpoint is its CRI socket",
    Code.DEADLINE_EXCEEDED: "the runtime is overloaded or stuck; its log says which",
    Code.UNIMPLEMENTED: "the runtime does not know this call; is it a CRI v1 runtime?",
}


class CallError(RemoteError):
    """A runtime refused a call, failed in it or did not answer in time. The library's error is the cause."""

    def __init__(self, method: str, code: Code, details: str, *, endpoint: str) -> None:
        super().__init__(f"{method}: {details}", where=f"{endpoint} ({code.name})", remedy=REMEDIES.get(code))
        self.method = method
        self.code = code
        self.details = details
        self.endpoint = endpoint


class RuntimeRefused(KubeqosError):
    """A simulated runtime's core says no; its shell turns this into a `CallError` that names the call."""

    def __init__(self, code: Code, what: str) -> None:
        super().__init__(what)
        self.code = code
